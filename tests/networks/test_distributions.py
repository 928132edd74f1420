"""The law of a weight: samples, divergences, and the divergence of a whole network."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from small_nets import normals, seeded, shaken, two_layers
from torch import nn
from torch.distributions import Laplace, Normal, kl_divergence

from pacbayes.errors import InvalidInput
from pacbayes.networks import stochastic
from pacbayes.networks.distributions import DISTRIBUTIONS, SCALE_FLOOR, distribution_named, rho_of, scale_of, slope_of

REFERENCE = {"gaussian": Normal, "laplace": lambda mean, s: Laplace(mean, s / math.sqrt(2))}


def reference_kl(family: str, mean, s, prior_mean, prior_s):
    law = REFERENCE[family]
    return kl_divergence(law(mean, s), law(prior_mean, prior_s))


def scattered(seed: int, n: int = 2000) -> list[torch.Tensor]:
    """Means and deviations, prior and posterior, from close to far and from narrow to wide."""
    generator = seeded(seed)

    def uniform(low, high):
        return low + (high - low) * torch.rand(n, generator=generator, dtype=torch.float64)

    s, prior_s = 10 ** uniform(-4, 1), 10 ** uniform(-4, 1)
    prior_mean = uniform(-1, 1)
    return [prior_mean + prior_s * 10 ** uniform(-3, 1.5) * uniform(-1, 1).sign(), s, prior_mean, prior_s]


def test_the_slope_is_the_derivative_of_the_scale():
    edge = SCALE_FLOOR ** (2 / 3)
    sizes = torch.tensor([0.0, edge / 2, edge * 1.01, 0.09, 0.5, 2.0], dtype=torch.float64)
    rho = torch.cat([-sizes, sizes]).requires_grad_()
    (expected,) = torch.autograd.grad(scale_of(rho).sum(), rho)
    torch.testing.assert_close(slope_of(rho.detach()), expected)
    assert expected.count_nonzero() == 8


def test_scale_is_the_three_halves_power_of_rho():
    rho = torch.tensor([-4.0, -0.09, 0.01, 0.25, 1.0])
    torch.testing.assert_close(scale_of(rho), torch.tensor([8.0, 0.027, 0.001, 0.125, 1.0]))
    s = torch.tensor([1e-3, 0.1, 3.0], dtype=torch.float64)
    torch.testing.assert_close(scale_of(rho_of(s)), s)
    assert scale_of(torch.zeros(1)).item() == pytest.approx(SCALE_FLOOR)


@pytest.mark.parametrize("family", DISTRIBUTIONS)
def test_divergence_against_torch(family):
    values = scattered(1)
    torch.testing.assert_close(DISTRIBUTIONS[family].kl(*values), reference_kl(family, *values), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("family", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("ratio", [1e-7, 1e-5, 1e-4, 1e-3, 0.1, 10.0, 1e3])
def test_divergence_of_a_deviation_far_from_its_prior(family, dtype, ratio):
    """log(s²/s̃²) must not be lost in 1 + (s²/s̃² - 1): it cancels to log 0 where s is far below s̃."""
    mean, prior_s = torch.zeros(1, dtype=dtype), torch.full((1,), 0.1, dtype=dtype)
    s = (ratio * prior_s).requires_grad_()
    value = DISTRIBUTIONS[family].kl(mean, s, mean, prior_s)
    value.backward()
    double = s.detach().double().requires_grad_()
    expected = reference_kl(family, mean.double(), double, mean.double(), prior_s.double())
    expected.backward()
    precision = 1e-12 if dtype == torch.float64 else 1e-5
    assert value.item() == pytest.approx(expected.item(), rel=precision)
    assert s.grad.item() == pytest.approx(double.grad.item(), rel=precision)


@pytest.mark.parametrize("family", DISTRIBUTIONS)
@pytest.mark.parametrize("shift", [1e-9, 1e-6, 1e-4, 1e-2])
def test_divergence_next_to_the_prior_is_never_negative(family, shift):
    """Early in training the posterior is next to the prior; a divergence below 0 would lower a bound."""
    generator = seeded(4)
    prior_mean = torch.randn(5000, generator=generator, dtype=torch.float64)
    prior_s = torch.rand(5000, generator=generator, dtype=torch.float64) + 0.1
    mean = prior_mean + shift * prior_s * torch.randn(5000, generator=generator, dtype=torch.float64)
    s = prior_s * (1 + shift * torch.randn(5000, generator=generator, dtype=torch.float64))
    for dtype in (torch.float32, torch.float64):
        value = DISTRIBUTIONS[family].kl(*(v.to(dtype) for v in (mean, s, prior_mean, prior_s)))
        # the Laplace formula is a sum of terms of both signs: zero to within their rounding
        assert value.min() >= (0 if family == "gaussian" else -2 * torch.finfo(dtype).eps), dtype


@pytest.mark.parametrize("family", DISTRIBUTIONS)
def test_divergence_gradients_against_torch(family):
    values = [v.requires_grad_() for v in scattered(2)]
    ours = torch.autograd.grad(DISTRIBUTIONS[family].kl(*values).sum(), values)
    theirs = torch.autograd.grad(reference_kl(family, *values).sum(), values)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("family", DISTRIBUTIONS)
def test_divergence_is_zero_only_at_the_prior(family):
    mean, s = torch.tensor([0.3, -2.0]).double(), torch.tensor([0.1, 1.5]).double()
    kl = DISTRIBUTIONS[family].kl
    assert kl(mean, s, mean, s).tolist() == [0, 0]
    assert (kl(mean + 1e-3, s, mean, s) > 0).all()
    assert (kl(mean, s * 1.001, mean, s) > 0).all()
    assert (kl(mean, s * 0.999, mean, s) > 0).all()


@pytest.mark.parametrize("family", DISTRIBUTIONS)
def test_noise_has_the_law_of_its_name_with_mean_0_and_deviation_1(family):
    """Kolmogorov-Smirnov: a right sampler fails with probability 1e-7."""
    noise = DISTRIBUTIONS[family].noise((100_000,), normals(5))
    law = stats.norm() if family == "gaussian" else stats.laplace(scale=1 / math.sqrt(2))
    assert law.std() == pytest.approx(1)
    assert stats.kstest(noise.numpy(), law.cdf).pvalue > 1e-7


def test_distributions_by_name():
    for name, law in DISTRIBUTIONS.items():
        assert law.name == name
        assert distribution_named(name) is law
    with pytest.raises(InvalidInput, match=r"'Gauss'.*gaussian.*laplace"):
        distribution_named("Gauss")
    with pytest.raises(InvalidInput, match="cauchy"):
        stochastic(two_layers(), distribution="cauchy")


# The divergence of a network


def split_reference(net, family: str) -> torch.Tensor:
    """The sum over all weights: the hidden ones of the family, the last layer Gaussian."""
    mean, rho, prior_mean, prior_rho = (v.double() for v in (net.mean, net.rho, net.prior_mean, net.prior_rho))
    s, prior_s = rho.abs() ** 1.5, prior_rho.abs() ** 1.5
    last = sum(shape.numel() for name, shape in net.slots.items() if name.startswith("2."))
    total = torch.zeros((), dtype=torch.float64)
    for kind, part in ((family, slice(None, -last)), ("gaussian", slice(-last, None))):
        total = total + reference_kl(kind, mean[part], s[part], prior_mean[part], prior_s[part]).sum()
    return total


@pytest.mark.parametrize("family", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kl_is_the_sum_over_all_weights_in_float64(family, dtype):
    net = shaken(stochastic(two_layers(inputs=60, hidden=500, classes=10).to(dtype), 0.01, distribution=family))
    assert net.kl().dtype == torch.float64
    assert net.kl().shape == ()
    expected = split_reference(net, family).item()
    assert expected > 1000
    # The scales are rounded as they are in sampling.
    assert net.kl().item() == pytest.approx(expected, rel=1e-12 if dtype == torch.float64 else 1e-6)
    assert net.kl(exact=False).dtype == dtype
    assert net.kl(exact=False).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("family", DISTRIBUTIONS)
def test_kl_gradients_against_torch(family):
    net = shaken(stochastic(two_layers(), 0.01, distribution=family))
    ours = torch.autograd.grad(net.kl(), [net.mean, net.rho])
    theirs = torch.autograd.grad(split_reference(net, family), [net.mean, net.rho])
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("family", DISTRIBUTIONS)
def test_kl_is_zero_at_first_and_after_each_freeze(family):
    net = stochastic(two_layers().float(), 0.01, distribution=family)
    assert net.kl().item() == 0
    shaken(net)
    assert net.kl().item() > 1
    net.freeze_prior()
    assert net.kl().item() == 0
    assert not net.prior_mean.requires_grad
    with torch.no_grad():
        net.mean += 1
    assert net.kl().item() > 1, "the prior must not follow the posterior"


@pytest.mark.parametrize("family", DISTRIBUTIONS)
def test_kl_does_not_depend_on_the_sign_of_rho(family):
    net = shaken(stochastic(two_layers(), 0.01, distribution=family))
    before = net.kl().item()
    with torch.no_grad():
        net.rho.neg_()
    assert net.kl().item() == before


@pytest.mark.parametrize("family", DISTRIBUTIONS)
@pytest.mark.parametrize("exact", [False, True])
def test_kl_and_its_gradients_stay_finite_when_deviations_vanish(family, exact):
    """ERM drives rhos to 0, in the prior too."""
    for prior_too in (False, True):
        net = stochastic(two_layers().float(), 0.01, distribution=family)
        with torch.no_grad():
            net.rho[::2] = 0
            if prior_too:
                net.freeze_prior()
                net.rho.fill_(0.1)
                net.mean += 0.01
        kl = net.kl(exact)
        kl.backward()
        assert kl.isfinite()
        assert kl > 0
        assert net.mean.grad.isfinite().all()
        assert net.rho.grad.isfinite().all()


@pytest.mark.parametrize("variance", [1e-4, 0.01, 2.5])
@pytest.mark.parametrize("family", DISTRIBUTIONS)
def test_prior_variance_is_the_variance_of_a_drawn_weight(family, variance):
    """A mean of squares of 200,000 draws: relative error 0.5 % at most, and 8 standard errors are allowed."""
    net = stochastic(
        nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)), variance, distribution=family
    )
    assert scale_of(net.rho).tolist() == pytest.approx([math.sqrt(variance)] * 2, rel=1e-6)
    drawn = []
    layer = net.model[0]
    handle = layer.register_forward_hook(lambda module, args, out: drawn.append(out.detach()))
    net(torch.ones(200_000, 1), "independent", seeded(3))
    handle.remove()
    weights = drawn[-1].double() - net.mean[0].item()
    assert weights.square().mean().item() == pytest.approx(variance, rel=0.04)


@pytest.mark.parametrize("variance", [0.0, -0.1, math.inf, math.nan])
def test_prior_variances_that_are_none_are_refused(variance):
    with pytest.raises(InvalidInput, match="prior_variance"):
        stochastic(two_layers(), variance)


@pytest.mark.parametrize("family", DISTRIBUTIONS)
def test_a_divergence_of_nearly_equal_laws_keeps_its_digits(family):
    """Where it is 1e-20 of a nat, not that it mattered."""
    prior = torch.rand(1000, dtype=torch.float64, generator=seeded(0)) + 0.01
    scale = prior * (1 + 1e-10 * torch.randn(1000, dtype=torch.float64, generator=seeded(1)))
    zero = torch.zeros_like(prior)
    excess = (scale - prior) / prior  # exact: the two are near
    expected = excess.square() * (1 if family == "gaussian" else 0.5)
    torch.testing.assert_close(DISTRIBUTIONS[family].kl(zero, scale, zero, prior), expected, rtol=1e-9, atol=0)
