"""High-precision references, and networks whose risk is known."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace

import mpmath
import pytest
import torch
from fifty_digits import binomial_limit, inverse
from mpmath import mpf
from small_data import gaussian_data
from torch import nn

from pacbayes.networks import StochasticNetwork, stochastic
from pacbayes.training import fit


def reference(record: dict) -> dict[str, mpf]:
    """The final bound of section 3.5 in 50 digits, from counts and constants alone."""
    with mpmath.workdps(50):
        r = SimpleNamespace(**record)
        delta, mc_delta = mpf(r.delta), mpf(r.mc_delta)
        ratio = Fraction(r.errors, r.visits)
        mean = mpf(ratio.numerator) / ratio.denominator
        if r.limit == "clopper-pearson":
            limit = binomial_limit(r.errors, r.visits, mc_delta)
        else:
            limit = inverse(mean, mpmath.log((2 if r.limit == "two-sided" else 1) / mc_delta) / r.draws)
        penalty = (mpf(r.kl) + mpmath.log(2 * mpmath.sqrt(r.m) / delta)) / r.m
        return {
            "empirical_risk": mean,
            "empirical_risk_bound": limit,
            "penalty": penalty,
            "risk_bound": inverse(limit, penalty),
            "confidence": 1 - delta - mc_delta,
        }


@pytest.fixture(scope="session")
def exact_numbers() -> Callable[[dict], dict[str, mpf]]:
    return reference


@pytest.fixture
def coin() -> Callable[..., StochasticNetwork]:
    """One input, two classes, no bias: class 0 wins with probability 1/2 wherever x is not 0, whatever x is."""

    def make(classes: int = 2) -> StochasticNetwork:
        net = stochastic(nn.Linear(1, classes, bias=False), 1.0)
        with torch.no_grad():
            net.mean.zero_()
        net.freeze_prior()
        return net

    return make


@pytest.fixture
def hidden_net() -> Callable[..., StochasticNetwork]:
    """4 inputs, 6 hidden units, wide posteriors; prior at the start."""

    def make(classes: int = 3, variance: float = 0.3, seed: int = 0) -> StochasticNetwork:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, classes))
        return stochastic(model, variance)

    return make


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    net, data = stochastic(model, 0.05), gaussian_data()
    fit(net, data, epochs=5, rate=0.05)
    return net, data, model
