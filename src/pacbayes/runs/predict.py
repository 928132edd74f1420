"""Prediction with a certified run: the randomised classifier itself, a fresh draw for every example."""

from __future__ import annotations

import secrets

import torch
from torch import Tensor

from pacbayes.certificates.monte_carlo import chunk_size
from pacbayes.data import Data
from pacbayes.errors import InvalidInput
from pacbayes.runs.folder import RunFolder
from pacbayes.runs.journal import EVENTS, check_files
from pacbayes.seeds import check_seed


@torch.no_grad()
def predict_run(run: RunFolder, inputs: Tensor, seed: int | None = None, device: str | None = None) -> Tensor:
    """A label for each input [n, ...]; what the certificate promises is the risk of just this."""
    check_files(run, EVENTS["trained"])
    net, shape = run.network(device), run.data_record()["shape"]
    if list(inputs.shape[1:]) != shape:
        raise InvalidInput(f"the network takes examples of shape {shape}, not {list(inputs.shape[1:])}")
    seed = secrets.randbits(63) if seed is None else seed
    check_seed(seed)
    generator = torch.Generator(net.mean.device).manual_seed(seed)
    examples = Data(inputs, torch.zeros(len(inputs), dtype=torch.int64), net.classes)
    chunks = inputs.split(chunk_size(net, examples))
    return torch.cat([net(x.to(net.mean.device), "independent", generator).argmax(-1).cpu() for x in chunks])
