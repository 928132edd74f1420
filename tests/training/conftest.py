"""Small problems and networks to train on them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from pacbayes.bounds import kl_inverse, misclassification_probability, penalty
from pacbayes.networks import StochasticNetwork, stochastic

Problem = tuple[Tensor, Tensor]


@pytest.fixture
def blobs() -> Callable[..., Problem]:
    """m examples, x [m, 4] around one centre a class, labels in turn."""

    def make(m: int = 128, classes: int = 2, spread: float = 0.5, seed: int = 0) -> Problem:
        generator = torch.Generator().manual_seed(seed)
        y = torch.arange(m) % classes
        return torch.eye(4)[y] * 2 + spread * torch.randn(m, 4, generator=generator), y

    return make


@pytest.fixture
def small_net() -> Callable[..., StochasticNetwork]:
    """4 inputs, one hidden layer (none if ``hidden`` is 0), prior centred at a seeded random start."""

    def make(
        classes: int = 2, hidden: int = 8, variance: float = 0.03, distribution: str = "gaussian", seed: int = 0
    ) -> StochasticNetwork:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            if hidden:
                model: nn.Module = nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, classes))
            else:
                model = nn.Linear(4, classes)
        return stochastic(model, variance, distribution=distribution)

    return make


@pytest.fixture
def average_risk() -> Callable[..., float]:
    """The empirical risk Err_S(Q), from 16 hidden draws for each example and the exact error given each."""

    @torch.no_grad()
    def risk(net: StochasticNetwork, problem: Problem, seed: int = 99) -> float:
        x, y = problem[0].repeat(16, 1), problem[1].repeat(16)
        mean, variance = net.conditional(x, "independent", torch.Generator().manual_seed(seed))
        return float(misclassification_probability(mean, variance, y).double().mean())

    return risk


@pytest.fixture
def average_bound(average_risk: Callable[..., float]) -> Callable[..., float]:
    """B1 at :func:`average_risk`."""

    def bound(net: StochasticNetwork, problem: Problem) -> float:
        with torch.no_grad():
            divergence = float(net.kl())
        return kl_inverse(average_risk(net, problem), penalty(divergence, len(problem[1]), 0.025))

    return bound
