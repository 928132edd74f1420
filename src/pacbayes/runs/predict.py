"""Prediction with a certified run: by just the predictor that the certificate is for."""

from __future__ import annotations

import secrets

import torch
from torch import Tensor

from pacbayes.certificates import Certificate
from pacbayes.certificates.monte_carlo import chunk_size
from pacbayes.certificates.single import flat_weights
from pacbayes.data import Data
from pacbayes.data.streamed import Inputs
from pacbayes.errors import InvalidInput, RunError
from pacbayes.files import sha256
from pacbayes.runs.folder import RunFolder
from pacbayes.runs.journal import EVENTS, check_files
from pacbayes.seeds import check_seed


@torch.no_grad()
def predict_run(
    run: RunFolder,
    inputs: Inputs,
    seed: int | None = None,
    device: str | None = None,
    certificate: Certificate | None = None,
) -> Tensor:
    """A label for each input [n, ...]: what the certificate promises is the risk of just this.

    Without a certificate, or with one for the randomised classifier, each input has a fresh draw of the weights.
    """
    check_files(run, EVENTS["trained"])
    net, shape = run.network(device), run.data_record()["shape"]
    if list(inputs.shape[1:]) != shape:
        raise InvalidInput(f"the network takes examples of shape {shape}, not {list(inputs.shape[1:])}")
    seed = secrets.randbits(63) if seed is None else seed
    check_seed(seed)
    generator = torch.Generator(net.mean.device).manual_seed(seed)
    sampling, voters = "independent", 1 if certificate is None else certificate.voters
    if certificate is not None and certificate.predictor == "single":
        if sha256(run.read("single.safetensors")) != certificate.single_fingerprint:
            raise RunError(f"{run.single_file} is not the network that the certificate is for")
        net, sampling = net.at(flat_weights(net, run.weights("single"))), "mean"
    examples = Data(inputs, torch.zeros(len(inputs), dtype=torch.int64), net.classes)
    labels = []
    for x in inputs.split(chunk_size(net, examples)):
        x = x.to(net.mean.device)
        votes = torch.zeros(len(x), net.classes, dtype=torch.int64, device=x.device)
        for _ in range(voters):
            answers = net(x, sampling, generator).argmax(-1, keepdim=True)
            votes.scatter_add_(1, answers, torch.ones_like(answers))
        labels.append(votes.argmax(-1).cpu())
    return torch.cat(labels)
