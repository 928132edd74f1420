"""The objective on a batch: the one that was named, for the right m and kappa, unbiased where Proposition 3 says so."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from scipy import optimize
from torch import Tensor, nn

from pacbayes.errors import InvalidInput
from pacbayes.networks import StochasticNetwork, stochastic
from pacbayes.training.loss import batch_loss, bounded_cross_entropy, objective_of
from pacbayes.training.settings import Settings

M, DELTA = 50, 0.1


def moved_net(model: nn.Module, seed: int = 0, distribution: str = "gaussian") -> StochasticNetwork:
    """A float64 network whose posterior is some way from its prior."""
    net = stochastic(model, 0.2, distribution=distribution).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for vector in (net.mean, net.rho):
            vector.add_(0.2 * torch.randn(vector.shape, generator=generator, dtype=torch.float64))
    return net


def seeded(model: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return model()


@pytest.fixture
def objective():
    """(objective, error) with the noise of a seed."""

    def evaluate(net, x, y, settings, m=M, seed=0, lam=None) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        normals = partial(torch.randn, generator=generator, dtype=net.mean.dtype)
        loss, error = batch_loss(net, x, y, settings, normals)
        return objective_of(loss, net.kl(exact=False), settings, m, lam), error

    return evaluate


@pytest.fixture
def linear_case() -> tuple[StochasticNetwork, Tensor, Tensor, float]:
    """No hidden layer, two classes: the risk is a closed form without noise."""
    net = moved_net(seeded(lambda: nn.Linear(3, 2)))
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = torch.tensor([0, 1, 1, 0, 1, 0])
    mean, scale = net.mean.detach(), net.rho.detach().abs() ** 1.5
    gap = (x @ mean[:6].view(2, 3).T + mean[6:]) @ torch.tensor([1.0, -1.0], dtype=torch.float64)
    spread = ((x**2) @ scale[:6].view(2, 3).T ** 2 + scale[6:] ** 2).sum(1).sqrt()
    return net, x, y, float(torch.special.ndtr(-gap * (1 - 2 * y) / spread).mean())


def gaussian_divergence(net: StochasticNetwork) -> Tensor:
    """The textbook formula, summed over all weights."""
    s, prior = net.rho.abs() ** 1.5, net.prior_rho.abs() ** 1.5
    terms = torch.log(prior / s) + (s**2 + (net.mean - net.prior_mean) ** 2) / (2 * prior**2) - 0.5
    return terms.sum()


def small_kl(q: float, p: float) -> float:
    return q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))


FORMULAS = {
    "invKL": lambda risk, pen: optimize.brentq(lambda p: small_kl(risk, p) - pen, risk, 1 - 1e-15, xtol=1e-14),
    "McAll": lambda risk, pen: risk + math.sqrt(pen / 2),
    "quad": lambda risk, pen: (math.sqrt(risk + pen / 2) + math.sqrt(pen / 2)) ** 2,
    "lbd": lambda risk, pen: min((risk + pen / lam) / (1 - lam / 2) for lam in np.linspace(0.001, 1, 100_000)),
    "ERM": lambda risk, pen: risk,
}


@pytest.mark.parametrize("kappa", [1.0, 0.1])
@pytest.mark.parametrize("name", FORMULAS)
def test_the_objective_is_the_one_that_was_named(name, kappa, linear_case, objective):
    """kappa multiplies the whole penalty, and m is what is given, not the batch's size."""
    net, x, y, risk = linear_case
    pen = kappa * (gaussian_divergence(net).item() + math.log(2 * math.sqrt(M) / DELTA)) / M
    settings = Settings(objective=name, kappa=kappa, delta=DELTA, lam="best")
    value, error = objective(net, x, y, settings)
    assert value.item() == pytest.approx(FORMULAS[name](risk, pen), rel=1e-7)
    assert error.item() == pytest.approx(risk, rel=1e-10)
    assert not error.requires_grad


def test_kappa_may_weigh_the_divergence_alone(linear_case, objective):
    net, x, y, risk = linear_case
    pen = (0.1 * gaussian_divergence(net).item() + math.log(2 * math.sqrt(M) / DELTA)) / M
    value, _ = objective(net, x, y, Settings(objective="McAll", kappa=0.1, weighted="KL", delta=DELTA))
    assert value.item() == pytest.approx(FORMULAS["McAll"](risk, pen), rel=1e-7)
    with pytest.raises(InvalidInput, match="weighted"):
        Settings(weighted="risk")


def test_the_named_objectives_differ_from_each_other(linear_case, objective):
    net, x, y, _ = linear_case
    # At its best lambda, lbd is quad.
    lam = torch.tensor(0.9, dtype=torch.float64)
    values = [
        objective(net, x, y, Settings(objective=name), lam=lam if name == "lbd" else None)[0].item()
        for name in FORMULAS
    ]
    assert min(abs(a - b) for i, a in enumerate(values) for b in values[:i]) > 1e-3


def test_a_trained_lambda_enters_as_it_is(linear_case, objective):
    net, x, y, risk = linear_case
    pen = (gaussian_divergence(net).item() + math.log(2 * math.sqrt(M) / DELTA)) / M
    lam = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    value, _ = objective(net, x, y, Settings(objective="lbd", delta=DELTA), lam=lam)
    assert value.item() == pytest.approx((risk + pen / 0.3) / (1 - 0.15), rel=1e-10)
    assert torch.autograd.grad(value, lam)[0].abs() > 0


def test_method_s_puts_the_bounded_cross_entropy_in_the_place_of_the_error(objective):
    net = moved_net(seeded(lambda: nn.Linear(3, 4)))
    with torch.no_grad():
        net.rho.fill_(1e-12)
        net.prior_rho.fill_(1e-12)
    x = 3 * torch.randn(9, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = torch.arange(9) % 4
    outputs = (x @ net.mean[:12].view(4, 3).T + net.mean[12:]).detach()
    probabilities = torch.softmax(outputs, 1)[torch.arange(9), y]
    for p_min in (1e-5, 0.2):
        expected = (torch.log(probabilities.clamp_min(p_min)) / math.log(p_min)).mean().item()
        value, error = objective(net, x, y, Settings(objective="ERM", method="S", p_min=p_min))
        assert value.item() == pytest.approx(expected, abs=1e-4)
        assert error.item() == (outputs.argmax(1) != y).double().mean().item()


def test_cross_entropy_is_that_of_the_means(objective):
    net = moved_net(seeded(lambda: nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))))
    x = torch.randn(9, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = torch.arange(9) % 4
    w1, b1, w2, b2 = torch.split(net.mean.detach(), [15, 5, 20, 4])
    outputs = torch.tanh(x @ w1.view(5, 3).T + b1) @ w2.view(4, 5).T + b2
    expected = -torch.log_softmax(outputs, 1)[torch.arange(9), y].mean().item()
    for seed in (0, 1):
        value, _ = objective(net, x, y, Settings(method="CE"), seed=seed)
        assert value.item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("p_min", [1e-5, 0.01, 0.4])
def test_the_bounded_cross_entropy_lies_in_the_unit_interval(p_min):
    outputs = 100 * torch.randn(500, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.arange(500) % 5
    each = [bounded_cross_entropy(o[None], t[None], p_min).item() for o, t in zip(outputs, y, strict=True)]
    assert 0 <= min(each) < 1e-12
    assert max(each) == pytest.approx(1.0, abs=1e-12) and max(each) <= 1
    assert bounded_cross_entropy(outputs, y, p_min).item() == pytest.approx(np.mean(each), rel=1e-12)


def panels(kink: float) -> tuple[Tensor, Tensor]:
    """Nodes for a standard normal and their weights, 60 on each side of the kink: smooth pieces, so exact."""
    x, w = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(60))
    kink = min(max(kink, -9.0), 9.0)
    z = torch.cat([(a + b) / 2 + (b - a) / 2 * x for a, b in ((-9, kink), (kink, 9))])
    lengths = torch.cat([(b - a) / 2 * w for a, b in ((-9, kink), (kink, 9))])
    return z, lengths * torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def exact_objective(net: StochasticNetwork, x: Tensor, y: Tensor, name: str, lam: float) -> Tensor:
    """McAll or lbd of the true Err_S(Q) of a 2-2-2 ReLU network: a sum over a grid of the two hidden noises.

    Given the weights' law, the two pre-activations of an example are independent Gaussians.
    """
    w1, b1, w2, b2 = (t.view(2, -1).squeeze(1) for t in torch.split(net.mean, [4, 2, 4, 2]))
    v1, c1, v2, c2 = (t.view(2, -1).squeeze(1) for t in torch.split(net.rho.abs() ** 3, [4, 2, 4, 2]))
    total = torch.zeros((), dtype=torch.float64)
    for example, label in zip(x, y.tolist(), strict=True):
        centre, spread = w1 @ example + b1, (v1 @ example**2 + c1).sqrt()
        (z0, density0), (z1, density1) = (
            panels(-float(c / s)) for c, s in zip(centre.detach(), spread.detach(), strict=True)
        )
        h0 = torch.relu(centre[0] + spread[0] * z0)[:, None]
        h1 = torch.relu(centre[1] + spread[1] * z1)[None]
        difference, offset = w2[label] - w2[1 - label], b2[label] - b2[1 - label]
        gap = offset + difference[0] * h0 + difference[1] * h1
        variance = c2.sum() + v2[:, 0].sum() * h0**2 + v2[:, 1].sum() * h1**2
        total = total + density0 @ torch.special.ndtr(-gap / variance.sqrt()) @ density1
    risk = total / len(x)
    pen = (gaussian_divergence(net) + math.log(2 * math.sqrt(M) / DELTA)) / M
    return risk + (pen / 2).sqrt() if name == "McAll" else (risk + pen / lam) / (1 - lam / 2)


@pytest.mark.parametrize("sampling", ["shared", "independent", "mixed"])
@pytest.mark.parametrize("name", ["McAll", "lbd"])
def test_proposition_3_the_objective_and_its_gradient_are_unbiased(name, sampling, objective):
    """The mean over hidden draws against the exact objective and its gradient, 25 numbers.

    False alarms: each number may be 7 standard errors off (3e-12 for a Gaussian mean), so below 1e-9 for all cases.
    """
    net = moved_net(seeded(lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))), seed=3)
    x = torch.tensor([[1.0, -0.5], [0.3, 0.8], [-1.2, 0.4]], dtype=torch.float64)
    y = torch.tensor([0, 1, 1])
    lam = torch.tensor(0.6, dtype=torch.float64)
    exact = exact_objective(net, x, y, name, 0.6)
    target = torch.cat([exact[None], *torch.autograd.grad(exact, (net.mean, net.rho))]).detach()

    # Where examples have draws of their own, a repeated batch holds many draws at once.
    copies = 1 if sampling == "shared" else 600
    settings = Settings(objective=name, sampling=sampling, delta=DELTA)
    found = []
    for seed in range(1000 if sampling == "shared" else 60):
        value, _ = objective(
            net, x.repeat(copies, 1), y.repeat(copies), settings, seed=seed, lam=lam if name == "lbd" else None
        )
        found.append(torch.cat([value[None], *torch.autograd.grad(value, (net.mean, net.rho))]).detach())
    draws = torch.stack(found)
    standard_error = draws.std(0) / math.sqrt(len(draws))
    excess = (draws.mean(0) - target).abs() / (7 * standard_error + 1e-9)
    assert excess.max() <= 1
    # The test has power: the error bars are small beside the gradient.
    assert standard_error.norm() < (0.2 if sampling == "shared" else 0.02) * target.norm()
