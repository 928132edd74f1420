"""One network drawn from Q: its weights as a file, what the bound needs of it, and its errors."""

from __future__ import annotations

from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from pacbayes.certificates.certificate import Certificate, check_certificate
from pacbayes.certificates.monte_carlo import network_errors
from pacbayes.data import Data
from pacbayes.errors import InvalidInput, RunError
from pacbayes.files import sha256, write_atomically
from pacbayes.networks.divergence import log_ratios
from pacbayes.networks.stochastic import StochasticNetwork, check_stochastic
from pacbayes.seeds import derived_seed

_SINGLE = (1, 1, 2)


def single_weights(net: StochasticNetwork, seed: int) -> Tensor:
    """The draw with this seed, a flat vector; made on the CPU, so that it is the same whatever the device."""
    generator = torch.Generator().manual_seed(derived_seed(seed, *_SINGLE))
    return net.on_cpu().draw_weights(generator)


def single_file(net: StochasticNetwork, weights: Tensor) -> bytes:
    """The network as a safetensors file: the state of the ordinary model."""
    return safetensors.torch.save(net.module_state(weights))


def flat_weights(net: StochasticNetwork, state: dict[str, Tensor]) -> Tensor:
    """The drawn weights of a model's state as a flat vector; what is fixed in it must be the network's own."""
    expected = net.module_state(net.mean)
    if expected.keys() != state.keys():
        raise InvalidInput("the weights are not those of this model: their names differ")
    for name, old in expected.items():
        new = state[name]
        if new.shape != old.shape or new.dtype != old.dtype:
            raise InvalidInput(f"{name!r} is {new.dtype} {tuple(new.shape)}, not {old.dtype} {tuple(old.shape)}")
        if name in net.aliases and not torch.equal(new, state[net.aliases[name]]):
            raise InvalidInput(f"{name!r} is {net.aliases[name]!r} by another name, and has other weights")
        if name not in {*net.slots, *net.aliases} and not torch.equal(new, old):
            raise InvalidInput(f"{name!r} is fixed, and is not what it was when the prior was")
    return torch.cat([state[name].flatten() for name in net.slots])


def recomputed(net: StochasticNetwork, state: dict[str, Tensor], data: Data | None = None) -> dict[str, float | int]:
    """What a certificate of this single network must hold: its log ratios, and with the bound data its errors."""
    weights = flat_weights(net, state)
    plain, profile = log_ratios(net.on_cpu(), weights)
    found: dict[str, float | int] = {"log_ratio": plain, "profile_log_ratio": profile}
    if data is not None:
        found["errors"] = network_errors(net.at(weights), data)
    return found


def export_single(net: StochasticNetwork, certificate: Certificate, path: str | Path) -> None:
    """Write the weights of the certified single network: an ordinary state dict for the model, as safetensors.

    ``model.load_state_dict(safetensors.torch.load_file(path))`` is then the network that the certificate is for.
    """
    check_stochastic(net)
    check_certificate(certificate)
    write_atomically(Path(path), certified_file(net, certificate))


def certified_file(net: StochasticNetwork, certificate: Certificate) -> bytes:
    """The safetensors file that the certificate names."""
    if certificate.predictor != "single":
        raise InvalidInput(f"the certificate is for the {certificate.predictor} predictor, not for a single network")
    content = single_file(net, single_weights(net, certificate.seed))
    if sha256(content) != certificate.single_fingerprint:
        raise RunError("this network does not give the weights that the certificate names: it was changed since")
    return content
