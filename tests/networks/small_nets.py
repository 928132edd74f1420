"""Small models and the statistics they are tested with."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn

from pacbayes.data import as_data
from pacbayes.networks import StochasticNetwork
from pacbayes.networks.normals import Normals


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normals(seed: int) -> Normals:
    """The float64 normals that a pass with ``seeded(seed)`` draws, in their order."""
    return partial(torch.randn, generator=seeded(seed), dtype=torch.float64)


def two_layers(seed: int = 0, inputs: int = 3, hidden: int = 4, classes: int = 2) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes)).double()


def shaken(net: StochasticNetwork, seed: int = 0) -> StochasticNetwork:
    """The posterior moved away from the prior, with deviations of every size and rhos of both signs."""
    generator = seeded(seed)
    with torch.no_grad():
        net.mean += 0.3 * torch.randn(net.mean.shape, generator=generator, dtype=net.mean.dtype)
        factor = torch.rand(net.rho.shape, generator=generator, dtype=net.rho.dtype) + 0.5
        net.rho *= factor * torch.where(torch.arange(len(net.rho)) % 2 == 0, 1.0, -1.0)
    return net


def mean_z(draws: Tensor, expected: Tensor | float) -> Tensor:
    """The z-scores of the means of draws [n, ...]."""
    return (draws.mean(0) - expected) / (draws.std(0) / math.sqrt(len(draws)))


def variance_z(draws: Tensor, expected: Tensor | float) -> Tensor:
    """The z-scores of the variances of draws [n, ...], their error taken from the fourth moments."""
    return mean_z((draws - draws.mean(0)).square() * (len(draws) / (len(draws) - 1)), expected)


def two_sample_z(first: Tensor, second: Tensor) -> Tensor:
    """The z-scores of the difference of two means."""
    error = (first.var(0) / len(first) + second.var(0) / len(second)).sqrt()
    return (first.mean(0) - second.mean(0)) / error


def squared_deviations(draws: Tensor) -> Tensor:
    return (draws - draws.mean(0)).square()


def noise(m=60, features=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return as_data(
        (torch.randn(m, features, generator=generator), torch.randint(2, (m,), generator=generator)), classes=2
    )


class Applied(nn.Module):
    """A function around and between two Linear layers."""

    def __init__(self, forward, hidden=4):
        super().__init__()
        self.first, self.last, self.way = nn.Linear(hidden, hidden), nn.Linear(hidden, 2), forward

    def forward(self, x):
        return self.way(self, x)
