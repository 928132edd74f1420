"""Inputs brought to size 1 by mean and deviation of the prior data: a first layer, fixed with the prior."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pacbayes.data import Data, as_data
from pacbayes.errors import InvalidInput
from pacbayes.networks.conversion import check_model
from pacbayes.networks.shaping import remember_data
from pacbayes.networks.stochastic import StochasticNetwork

# Below this a feature counts as constant: nothing to divide by.
_SMALLEST = 1e-30
_ROWS = 4096


class Standardisation(nn.Module):
    """``(x - mean) / deviation``, feature by feature: two buffers, in no KL, as they never train."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: Tensor, deviation: Tensor):
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.deviation


def standardise(model: nn.Module, data: Any) -> nn.Sequential:
    """The model behind a layer that subtracts the mean of these data from each feature, and divides by the deviation.

    The data must be prior data: what is fitted on the bound data voids the certificate. They are remembered, and
    :func:`~pacbayes.certify` refuses data that overlap with them. Everything after that takes the data as they are.
    A feature that is constant in these data is only shifted. The model's own layers are called ``model.…`` then.

    >>> prior_data = torch.tensor([[1.0, 0.0], [3.0, 100.0]]), [0, 1]
    >>> standardise(nn.Identity(), prior_data)(torch.tensor([[3.0, 50.0]]))
    tensor([[1., 0.]])
    """
    check_model(model)
    if isinstance(model, StochasticNetwork):
        raise InvalidInput("a model is standardised first: stochastic(standardise(model, prior_data))")
    data = as_data(data)
    layer = Standardisation(*moments(data))
    if (first := next(model.parameters(), None)) is not None:
        layer.to(first.device)
    remember_data(layer, [data])
    return behind(layer, model)


def standardised(model: nn.Module, shape: Sequence[int]) -> nn.Sequential:
    """The same with nothing fitted yet, to be filled from a file."""
    return behind(Standardisation(*(torch.full(tuple(shape), v, dtype=torch.float32) for v in (0.0, 1.0))), model)


def moments(data: Data) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each feature, float32 of the shape of an example; 1 for a deviation of nothing."""
    mean = torch.stack([x.double().sum(0) for x in data.x.split(_ROWS)]).sum(0) / len(data)
    squares = torch.stack([(x.double() - mean).square().sum(0) for x in data.x.split(_ROWS)]).sum(0)
    deviation = (squares / len(data)).sqrt()
    return mean.float(), torch.where(deviation > _SMALLEST, deviation, 1.0).float()


def behind(layer: Standardisation, model: nn.Module) -> nn.Sequential:
    return nn.Sequential(OrderedDict(scaling=layer, model=model))


def scaling_of(model: nn.Module) -> Standardisation:
    """The layer of a model that was made here."""
    layer = model.get_submodule("scaling")
    assert isinstance(layer, Standardisation)
    return layer
