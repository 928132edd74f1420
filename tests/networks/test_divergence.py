"""The profile KL and the log density ratio: against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from pacbayes.errors import InvalidInput
from pacbayes.networks import stochastic
from pacbayes.networks.distributions import scale_of
from pacbayes.networks.divergence import CHANGING, KEEPING, PROFILE_RANGE, PROFILE_SIZE, log_ratios, prior_factors


def moved(distribution: str = "gaussian", shift: float = 0.5, shrink: float = 0.3):
    torch.manual_seed(0)
    net = stochastic(nn.Sequential(nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 3)), 0.04, distribution=distribution)
    with torch.no_grad():
        net.mean.add_(shift * torch.randn_like(net.mean))
        net.rho.mul_(shrink)
    return net


def by_hand(net) -> float:
    """Gaussian weights: the least over the whole grid, tensor by tensor."""
    total = 0.0
    grid = torch.linspace(*PROFILE_RANGE, PROFILE_SIZE, dtype=torch.float64).exp()
    laws = [net.parts(v.detach().double()) for v in (net.mean, net.prior_mean)]
    laws += [net.parts(scale_of(v.detach()).double()) for v in (net.rho, net.prior_rho)]
    for name in net.slots:
        m, m0, s, s0 = (law[name].flatten() for law in laws)
        excess, logs = ((s**2 + (m - m0) ** 2) / s0**2).sum(), torch.log(s0 / s).sum()
        kl = [float(excess / g / 2 - len(m) / 2 + logs + len(m) / 2 * math.log(g)) for g in (1.0, *grid.tolist())]
        total += min(kl[0] + math.log(2), min(kl[1:]) + math.log(2 * PROFILE_SIZE))
    return total


@pytest.mark.parametrize("shift", [0.0, 0.05, 0.5, 3.0])
def test_it_is_the_least_over_the_grid(shift):
    net = moved(shift=shift)
    assert net.profile_kl().item() == pytest.approx(by_hand(net), rel=1e-10)


def test_far_from_the_prior_it_is_smaller_and_next_to_it_costs_log_2_a_tensor():
    net = moved()
    assert net.profile_kl() < 0.7 * net.kl()
    net = moved(shift=0.0, shrink=1.0)
    assert net.profile_kl().item() == pytest.approx(4 * KEEPING) and prior_factors(net).tolist() == [1.0] * 4


@pytest.mark.parametrize("distribution", ["gaussian", "laplace"])
def test_it_is_the_kl_to_a_prior_of_the_grid(distribution):
    """Whatever the factors, a union bound over them is paid: it is the KL to a scaled prior, and its cost."""
    net = moved(distribution)
    factors = prior_factors(net)
    found = net.profile_kl().item()
    with torch.no_grad():
        for part, factor in zip(net.prior_rho.split(net.sizes), factors, strict=True):
            part.mul_(float(factor) ** (1 / 3))
    cost = sum(KEEPING if f == 1 else CHANGING for f in factors.tolist())
    assert found == pytest.approx(net.kl().item() + cost, rel=1e-5)
    on_grid = (factors.log() - PROFILE_RANGE[0]) * (PROFILE_SIZE - 1) / (PROFILE_RANGE[1] - PROFILE_RANGE[0])
    assert torch.allclose(on_grid[factors != 1], on_grid[factors != 1].round(), atol=1e-6)


def test_its_gradient_is_that_of_the_value():
    """In the weights' own precision, as training takes it; the factors move in steps, too small to matter."""
    net = moved().double()
    value = net.profile_kl(exact=False)
    by_mean, by_rho = torch.autograd.grad(value, (net.mean, net.rho))
    assert value.dtype == torch.float64
    for vector, gradient in ((net.mean, by_mean), (net.rho, by_rho)):
        direction = torch.randn_like(vector) * 1e-3
        with torch.no_grad():
            vector.add_(direction)
            up = net.profile_kl(exact=False).item()
            vector.sub_(2 * direction)
            down = net.profile_kl(exact=False).item()
            vector.add_(direction)
        assert (up - down) / 2 == pytest.approx(float(gradient @ direction), rel=1e-2)


@pytest.mark.parametrize("distribution", ["gaussian", "laplace"])
def test_the_log_ratio_is_that_of_the_densities_and_its_mean_the_kl(distribution):
    net = moved(distribution, shift=0.02, shrink=0.9)
    generator = torch.Generator().manual_seed(1)
    weights = net.draw_weights(generator)
    found, profile = log_ratios(net, weights)

    def log_density(mean, rho):
        scale, x, mean = scale_of(rho.detach()).double(), weights.double(), mean.detach().double()
        gauss = torch.distributions.Normal(mean, scale).log_prob(x)
        if distribution == "gaussian":
            return gauss.sum()
        hidden = torch.distributions.Laplace(mean, scale / math.sqrt(2)).log_prob(x)
        return hidden[: net.hidden_size].sum() + gauss[net.hidden_size :].sum()

    true = float(log_density(net.mean, net.rho) - log_density(net.prior_mean, net.prior_rho))
    assert 0 <= found - true + 1e-10 < 1e-8
    assert found < profile  # so near, a choice of scales only costs
    # 400 draws: the mean is within 6 standard errors with probability 1 - 2e-9.
    ratios = torch.tensor([log_ratios(net, net.draw_weights(generator))[0] for _ in range(400)])
    assert abs(ratios.mean() - net.kl().item()) < 6 * ratios.std() / 20


@pytest.mark.parametrize("distribution", ["gaussian", "laplace"])
@pytest.mark.parametrize("size", [0.1, 1.0, 2.0**10, 3e3, 1e5])
def test_a_ratio_is_never_below_that_of_the_rounded_laws(distribution, size):
    """Where float32 numbers are wide apart beside the deviations, a weight stands for all that are rounded to it."""
    net = stochastic(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), 4e-6, distribution=distribution)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        net.mean.copy_(size * torch.randn(len(net.mean), generator=generator).sign())
        net.prior_mean.copy_(net.mean)
        net.mean.add_(1e-3 * torch.randn(len(net.mean), generator=generator))
        net.rho.mul_(1 + 0.3 * torch.rand(len(net.mean), generator=generator))
    for _ in range(20):
        weights = net.draw_weights(generator)
        # The middles between neighbours; exact in float64.
        beside = (torch.nextafter(weights, torch.tensor(end)) for end in (-torch.inf, torch.inf))
        low, high = ((weights.double() + other.double()).numpy() / 2 for other in beside)

        def log_masses(mean, rho, low=low, high=high):
            mean, scale = mean.detach().double().numpy(), scale_of(rho.detach()).double().numpy()
            last = stats.norm(mean, scale)
            hidden = last if distribution == "gaussian" else stats.laplace(mean, scale / math.sqrt(2))
            # From the nearer end: the difference of two numbers next to 1 has few digits.
            masses = [np.where(low > mean, f.sf(low) - f.sf(high), f.cdf(high) - f.cdf(low)) for f in (hidden, last)]
            return np.log(np.where(np.arange(len(mean)) < net.hidden_size, *masses))

        true = (log_masses(net.mean, net.rho) - log_masses(net.prior_mean, net.prior_rho)).sum()
        found = log_ratios(net, weights)[0]
        assert found >= true - 1e-6 * abs(true)
        if size <= 1:
            assert found <= true + 1e-2


def test_a_fixed_c_is_a_part_of_the_prior_and_of_its_fingerprint():
    net = moved(shift=0)
    net.freeze_prior()
    before = net.fingerprint("prior")
    net.fix_catoni(0.3)
    assert net.fingerprint("prior") != before and net.catoni == (0.3,)
    other = moved()
    other.load_state(net.state("prior"), "prior")
    assert other.catoni == (0.3,) and other.fingerprint("prior") == net.fingerprint("prior")
    net.freeze_prior()
    assert len(net.catoni) == 6 and net.fingerprint("prior") == before
    other.load_state(net.state("prior"), "prior")
    assert len(other.catoni) == 6


def test_a_c_that_is_none():
    net = moved()
    for values in ((), (0.0,), (math.nan,), (1.0,) * 65):
        with pytest.raises(InvalidInput, match="Catoni's C"):
            net.fix_catoni(*values)
    good = net.state("prior")
    for bad in (torch.tensor([0.5]), torch.tensor(0.5, dtype=torch.float64), torch.tensor([99.0], dtype=torch.float64)):
        with pytest.raises(InvalidInput, match="catoni|Catoni"):
            net.load_state(good | {"catoni": bad}, "prior")
    with pytest.raises(InvalidInput, match="catoni"):
        net.load_state(net.state() | {"catoni": torch.tensor([0.5], dtype=torch.float64)})


def test_the_state_of_a_drawn_network_is_that_of_the_model():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3).requires_grad_(False), nn.Flatten(), nn.Linear(12, 2))
    net = stochastic(model.eval(), 0.1)
    weights = net.draw_weights(torch.Generator().manual_seed(0))
    model.load_state_dict(net.module_state(weights))
    x = torch.randn(5, 1, 4, 4)
    assert torch.allclose(model(x), net.at(weights)(x, "mean"), atol=1e-6)
    assert not torch.equal(net.at(weights).mean, net.mean)
