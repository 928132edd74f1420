"""Prediction with a certified run: by just the predictor that the certificate is for."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from pacbayes.certificates import Certificate
from pacbayes.certificates.single import flat_weights
from pacbayes.data import load_inputs
from pacbayes.data.catalogue import image_folder, image_scaling
from pacbayes.data.folders import expanded, parted
from pacbayes.data.image_folders import find_images, read_images, unlabelled_images
from pacbayes.data.scaling import IMAGES, Scaling
from pacbayes.data.streamed import Inputs
from pacbayes.errors import InvalidInput, RunError
from pacbayes.files import in_shell, sha256
from pacbayes.networks import StochasticNetwork
from pacbayes.networks.shaping import OF_A_RUN, remember_data
from pacbayes.networks.votes import tally
from pacbayes.runs.folder import RunFolder
from pacbayes.runs.journal import EVENTS, check_files
from pacbayes.runs.networks import new_model
from pacbayes.seeds import chosen_seed


def valid_certificate(run: RunFolder) -> Certificate | None:
    """The run's certificate, if it has one; one that does not hold for its weights is refused."""
    if not os.path.lexists(run.certificate_file):
        return None
    certificate = run.certificate()
    check_files(run, EVENTS["certified"])
    if certificate.check() or certificate.posterior_fingerprint != sha256(run.read("posterior.safetensors")):
        raise RunError(
            f"the certificate in {run.path} does not hold for these weights: see 'pacbayes verify {in_shell(run.path)}'"
        )
    return certificate


def inputs_for(run: RunFolder, name: str) -> tuple[Inputs, list[str]]:
    """New examples for a run, in the way that its training data were read; and the names of their files, if any.

    Columns of a table are found by their names. Images need no folders of classes; they are resized if those were, and
    their pixels scaled as those were.
    """
    check_files(run, EVENTS["trained"])  # before anything is read that a changed config.toml names
    config, record = run.config_with_data(), run.data_record()
    place, side = parted(name)
    trained_side, scaling = parted(config.data)[1], run.scaling()
    files = unlabelled_images(expanded(place))
    labelled = image_folder(name) is not None and not files
    if files or labelled:
        shape = tuple(record["shape"])
        if side and [side, side] != [str(n) for n in shape[1:]]:
            raise InvalidInput(f"the network takes examples of shape {list(shape)}: {side} pixels each way are others")
        found = files or find_images(expanded(place), side or trained_side).files
        if scaling is None:
            warnings.warn(
                f"the run was trained on numbers, and does not say how they were made of pixels: these images are "
                f"given as {IMAGES.in_words}. If its own were made in another way, give arrays made like them",
                stacklevel=2,
            )
        # Those of files are bytes, however many levels those of the run's own data have.
        of_files = replace(scaling or IMAGES, levels=IMAGES.levels)
        images = read_images(found, shape, resize=bool(side or trained_side), scaling=of_files)
        return images, [file.name if files else file.relative_to(expanded(place)).as_posix() for file in found]
    inputs = load_inputs(name, folder=config.data_folder, features=record.get("feature_names", ()))
    if scaling is not None and image_scaling(name) is None and len(inputs):
        _look_at_the_range(inputs, scaling, config.data)
    return inputs, []


def _look_at_the_range(inputs: Inputs, scaling: Scaling, name: str) -> None:
    """Warn of arrays that are no pixels as the run's own were: nothing else would tell.

    Some of a few images are nearly black somewhere, and some nearly white.
    """
    (black, white), some = scaling.ends(), inputs[:1000]
    low, high = float(some.min()), float(some.max())
    inside = (white - black) / (8 if len(some) >= 10 else 2)
    if not (black - 1e-3 <= low <= black + inside and white - inside <= high <= white + 1e-3):
        warnings.warn(
            f"these inputs lie between {low:g} and {high:g}, and pixels of {name} between {black:g} and {white:g}: the "
            f"network takes {scaling.in_words}, and is certified for nothing else",
            stacklevel=3,
        )


@torch.no_grad()
def predict_run(run: RunFolder, inputs: Inputs, seed: int | None = None, device: str | None = None) -> Tensor:
    """A label for each input [n, ...]: what the certificate promises is the risk of just this.

    Without a certificate, or with one for the randomised classifier, each input has a fresh draw of the weights.
    """
    check_files(run, EVENTS["trained"])
    certificate = valid_certificate(run)
    net, shape = run.network(device), run.data_record()["shape"]
    if list(inputs.shape[1:]) != shape:
        raise InvalidInput(f"the network takes examples of shape {shape}, not {list(inputs.shape[1:])}")
    seed = chosen_seed(seed)
    sampling, voters = "independent", 1
    if certificate is not None and certificate.predictor == "majority":
        voters = certificate.voters
    if certificate is not None and (single := run.single(certificate)) is not None:
        net, sampling = net.at(flat_weights(net, single)), "mean"
    return voted(net, inputs, sampling, voters, seed)


def load_single(run: str | os.PathLike[str]) -> nn.Module:
    """The certified single network of a run folder, as an ordinary module on the CPU.

    ``pacbayes certify RUN --predictor single`` draws it. It takes inputs as the training data had them: where they
    were scaled, its first layer does that. It has learnt from all the data of its run. To make it a prior for other
    data, name them: ``net = stochastic(model)``, then ``freeze_prior(net, old_data)``.
    """
    folder = RunFolder.open(Path(run))
    check_files(folder, EVENTS["trained"])
    certificate = valid_certificate(folder)
    single = None if certificate is None else folder.single(certificate)
    if single is None:
        raise RunError(f"{folder.path} has no certificate of a single network: 'pacbayes certify --predictor single'")
    record = folder.data_record()
    model = new_model(folder.config().with_options({"device": "cpu"}), tuple(record["shape"]), record["classes"])
    model.load_state_dict(single)
    remember_data(model, [OF_A_RUN])
    return model.eval()


def voted(net: StochasticNetwork, inputs: Inputs, sampling: str, voters: int, seed: int) -> Tensor:
    """The label for each input that most of so many draws give."""
    return tally(net, inputs, sampling, voters, torch.Generator(net.mean.device).manual_seed(seed)).argmax(-1)
