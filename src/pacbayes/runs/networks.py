"""The network that a configuration means."""

from __future__ import annotations

from torch import nn

from pacbayes.data import Data
from pacbayes.devices import device_named
from pacbayes.errors import RunError
from pacbayes.networks import StochasticNetwork, build, standardise, stochastic
from pacbayes.networks.architectures import count_weights
from pacbayes.networks.conversion import output_name
from pacbayes.networks.standardisation import standardised
from pacbayes.runs.config import Config


def new_model(config: Config, shape: tuple[int, ...], classes: int, prior_data: Data | None = None) -> nn.Module:
    """The model at its initialisation, on its device; without prior data, what is fitted on them is left open."""
    model: nn.Module = build(config.model_name(shape), shape, classes, init=config.init, seed=config.seed)
    if config.scales(shape):
        model = standardised(model, shape) if prior_data is None else standardise(model, prior_data)
    return model.to(device_named(config.device))


def network_of(config: Config, model: nn.Module) -> StochasticNetwork:
    """The network whose prior has this model's weights for its means."""
    layers = None if config.drawn == "all" else [output_name(model)]
    return stochastic(model, config.prior_variance, distribution=config.distribution, layers=layers)


def new_network(
    config: Config, shape: tuple[int, ...], classes: int, prior_data: Data | None = None
) -> StochasticNetwork:
    """The network at its initialisation."""
    return network_of(config, new_model(config, shape, classes, prior_data))


def parameters_of(config: Config, shape: tuple[int, ...], classes: int) -> int:
    """The number of weights of the network, which is not made."""
    try:
        return count_weights(config.model_name(shape), shape, classes)
    except (RuntimeError, OverflowError, TypeError):
        raise RunError(f"no network can be made for examples of shape {list(shape)} and {classes} classes") from None
