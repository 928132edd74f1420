"""The largest prior variance that the error on prior data allows, and what is recorded of it."""

from __future__ import annotations

import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pacbayes import certify, fit, load, scale_prior, split, stochastic
from pacbayes.certificates.monte_carlo import independent_errors
from pacbayes.data import as_data
from pacbayes.errors import InvalidInput
from pacbayes.networks import StochasticNetwork
from pacbayes.networks.distributions import SCALE_FLOOR, scale_of
from pacbayes.training import PriorScale
from pacbayes.training.scale_prior import _FINEST_STEP, _LARGEST_POWER, _largest


def ordinary_network(x: Tensor, y: Tensor, model: nn.Module, steps: int = 150) -> nn.Module:
    """Trained as people do: cross-entropy and Adam, in a loop of their own."""
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(steps):
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()
    return model


@pytest.fixture
def trained(blobs) -> tuple[StochasticNetwork, tuple[Tensor, Tensor]]:
    x, y = blobs(256, 3, spread=0.4)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = ordinary_network(x, y, nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)))
    return stochastic(model, 1e-3), (x, y)


@pytest.mark.parametrize("tolerance", [0.02, 0.1])
def test_the_scale_is_the_largest_that_keeps_the_error(tolerance, trained):
    """Errors are counted anew: 40,000 visits, so that .01 are four standard errors or more at these rates."""
    net, data = trained
    scale = scale_prior(net, data, tolerance=tolerance)
    wrong = (net(data[0], "mean").argmax(-1) != data[1]).double().mean().item()
    assert scale.error_of_means == pytest.approx(wrong, abs=1e-12)
    assert scale.error <= wrong + tolerance

    def counted() -> float:
        return independent_errors(net, as_data(data, classes=3), 40_000, seed=7) / 40_000

    assert counted() == pytest.approx(wrong + tolerance, abs=0.01)
    with torch.no_grad():
        net.rho *= 2 ** (1 / 3)
    assert counted() > wrong + tolerance + 0.2 * tolerance


def test_all_variances_are_multiplied_and_the_means_stay(trained):
    net, data = trained
    mean = net.mean.detach().clone()
    with torch.no_grad():
        net.rho *= torch.linspace(-1, 1, len(net.rho))
    before = scale_of(net.rho.detach())
    scale = scale_prior(net, data, tolerance=0.05)
    large = before > 2 * SCALE_FLOOR  # which is not scaled
    ratio = (scale_of(net.rho.detach()) / before)[large].square()
    torch.testing.assert_close(ratio, torch.full_like(ratio, scale.multiple), rtol=1e-4, atol=0)
    assert torch.equal(net.mean, mean)
    assert net.kl().item() == 0.0


def test_the_data_count_as_seen_by_the_prior(trained):
    net, (x, y) = trained
    data = as_data((torch.cat([x, 9 + x]), torch.cat([y, y])), classes=3)
    prior_data, bound_data = data.take(range(256)), data.take(range(256, 512))
    scale_prior(net, prior_data, tolerance=0.05)
    assert net.prior_trained_on == net.trained_on == [prior_data]
    with pytest.raises(InvalidInput, match="prior was trained on"):
        certify(net, prior_data, draws=10)
    with pytest.raises(InvalidInput, match="prior was trained on"):
        certify(net, data, draws=10)
    assert certify(net, bound_data, draws=10).kl == 0


def test_the_same_seed_the_same_scale_and_no_trace_in_the_global_generator(trained):
    net, data = trained
    start, state = net.rho.detach().clone(), torch.get_rng_state()
    found = []
    for seed in (1, 1):
        with torch.no_grad():
            net.rho.copy_(start)
        found.append(scale_prior(net, data, seed=seed))
    assert found[0] == found[1]
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    "options", [{"tolerance": 0.0}, {"tolerance": 1.0}, {"passes": 0}, {"batch_size": 0}, {"seed": -1}]
)
def test_bad_options_are_refused_and_change_nothing(options, trained):
    net, data = trained
    before = net.fingerprint(), net.fingerprint("prior")
    with pytest.raises(InvalidInput, match=next(iter(options))):
        scale_prior(net, data, **options)
    assert (net.fingerprint(), net.fingerprint("prior")) == before and net.trained_on == []


def test_a_failure_leaves_the_network_as_it_was(trained, monkeypatch):
    net, data = trained
    before = net.fingerprint()

    def fail(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules[PriorScale.__module__], "conditional_risk", fail)
    with pytest.raises(KeyboardInterrupt):
        scale_prior(net, data)
    assert net.fingerprint() == before and net.trained_on == []


def test_from_an_ordinary_network_to_a_certificate():
    prior_data, bound_data = split(load("digits"), 0.5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 10))
        ordinary_network(prior_data.x, prior_data.y, model)
    net = stochastic(model, 1e-3)
    scale_prior(net, prior_data, tolerance=0.01)
    fit(net, bound_data, epochs=5, rate=0.002, batch_size=64)
    assert certify(net, bound_data, draws=5000, seed=0).risk_bound < 0.15


@pytest.mark.parametrize("limit", [-100.0, -3.3, 0.0, 5.1, 100.0])
def test_the_largest_number_that_fits(limit):
    found = _largest(lambda power: power <= limit)
    reach = float(_LARGEST_POWER)
    assert found == reach if limit > reach else found <= max(limit, -reach) <= found + _FINEST_STEP
