"""How far Q is from P: KL(Q‖P), also with the prior's scale chosen for each weight tensor, and at one drawn network.

The prior's variances of a weight tensor may all be multiplied by one factor, chosen after training from a fixed grid:
a union bound over the grid costs ``log 2 + log J`` nats for a tensor whose factor is one of the J, and ``log 2`` for
a tensor that keeps its prior (the best prior variance is the mean of ``s² + (m - m̃)²``).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pacbayes.networks.distributions import GAUSSIAN, Distribution, kl_pieces, scale_of

if TYPE_CHECKING:
    from pacbayes.networks.stochastic import StochasticNetwork

PROFILE_SIZE = 4096
PROFILE_RANGE = (-12.0, 12.0)
"""The grid: 4096 factors of the variance whose logarithms lie evenly in this range, ends included."""

_STEP = (PROFILE_RANGE[1] - PROFILE_RANGE[0]) / (PROFILE_SIZE - 1)
KEEPING, CHANGING = math.log(2), math.log(2 * PROFILE_SIZE)


def kl(net: StochasticNetwork, mean: Tensor, rho: Tensor, exact: bool = False) -> Tensor:
    """KL(Q‖P) of the posterior with these means and rhos; ``exact`` as in :meth:`StochasticNetwork.kl`."""
    vectors = _laws(net, mean, rho, exact)
    if net.distribution is GAUSSIAN:
        return _sum(kl_pieces(GAUSSIAN, vectors))
    hidden, last = (_sum(kl_pieces(family, [v[part] for v in vectors])) for family, part in _families(net))
    return hidden + last


@torch.no_grad()
def kl_of_tensors(net: StochasticNetwork) -> Tensor:
    """KL(Q‖P) by weight tensor, float64."""
    return _by_tensor(net, _kl(net, *_laws(net, net.mean, net.rho, exact=True)))


def profile_kl(net: StochasticNetwork, mean: Tensor, rho: Tensor, exact: bool = False) -> Tensor:
    """``sum over tensors of min(KL + log 2, KL to the prior of the best scale + log 2J)``, never below the least.

    Of the posterior with these means and rhos. Differentiable, so an objective too: the factors are constants in its
    gradient, which is right as they are the best. ``exact`` as in :meth:`StochasticNetwork.kl`.
    """
    return _profile(net, _laws(net, mean, rho, exact))[0].sum()


def prior_factors(net: StochasticNetwork) -> Tensor:
    """The factor of the prior's variance of each weight tensor that :func:`profile_kl` takes, float64."""
    with torch.no_grad():
        return _profile(net, _laws(net, net.mean, net.rho, exact=True))[1]


def log_ratios(net: StochasticNetwork, weights: Tensor) -> tuple[float, float]:
    """``log dQ/dP`` at these weights (a flat vector), for P and, at its cost, for P of the best scales; rounded up.

    The weights are floating-point numbers, and their laws those of a sample that was rounded to the nearest: each
    stands for all that lie nearer to it than to its neighbours. That is next to nothing where deviations are far above
    the distance of neighbours, and without it a weight too large for its deviation would have no ratio at all.
    """
    # A few roundings for each weight, and those of the sum.
    plain, profile = (
        float((own - other).sum()) + 1e-14 * float(own.abs().sum() + other.abs().sum()) + price + rounded
        for (own, other, price), rounded in zip(_densities(net, weights), _of_rounding(net, weights), strict=True)
    )
    return plain, profile


def rounding_of_log_ratios(net: StochasticNetwork, weights: Tensor, room: Tensor) -> tuple[float, float]:
    """How far :func:`log_ratios` may be off if each weight is rounded by so much, up or down by chance."""

    def shares(at: Tensor) -> list[Tensor]:
        return [own - other for own, other, _ in _densities(net, at)]

    here, above, below = (shares(weights.double() + way * room) for way in (0, 1, -1))
    plain, profile = (
        6 * float(torch.maximum((up - now).abs(), (down - now).abs()).norm())
        for now, up, down in zip(here, above, below, strict=True)
    )
    return plain, profile


@torch.no_grad()
def _densities(net: StochasticNetwork, weights: Tensor) -> list[tuple[Tensor, Tensor, float]]:
    """The log densities of each weight under Q and P, and P's price: for P, and for P of the best scales."""
    mean, scale, prior_mean, _ = _laws(net, net.mean, net.rho, exact=True)
    weights = weights.to(mean)
    own = _log_density(net, weights, mean, scale)
    return [(own, _log_density(net, weights, prior_mean, other), price) for other, price in _prior_scales(net)]


@torch.no_grad()
def _of_rounding(net: StochasticNetwork, weights: Tensor) -> list[float]:
    """How far the ratio of the masses of all numbers that are rounded to these may be above that of the densities."""
    mean, scale, prior_mean, _ = _laws(net, net.mean, net.rho, exact=True)
    above, below = (torch.nextafter(weights, weights.new_tensor(end)) for end in (math.inf, -math.inf))
    up, down = (above - weights).to(mean).abs(), (weights - below).to(mean).abs()
    cell = ((up - down).abs() / 4, (up + down) / 2)
    weights = weights.to(mean)
    own, _ = _over_cells(net, weights - mean, scale, *cell)
    return [
        float((own + _over_cells(net, weights - prior_mean, other, *cell)[1]).sum()) for other, _ in _prior_scales(net)
    ]


def _prior_scales(net: StochasticNetwork) -> list[tuple[Tensor, float]]:
    """The prior's own, and the best for each weight tensor with their price in nats."""
    prior_scale, factors = scale_of(net.prior_rho).double(), prior_factors(net)
    cost = float(torch.where(factors == 1, KEEPING, CHANGING).sum())
    return [(prior_scale, 0.0), (prior_scale * _spread(net, factors.sqrt()), cost)]


def _laws(net: StochasticNetwork, mean: Tensor, rho: Tensor, exact: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Means and scales of the posterior with these means and rhos, then of the prior: in float64 if ``exact``."""
    dtype = torch.float64 if exact else mean.dtype
    # The scales are those that sampling uses, in its precision.
    return mean.to(dtype), scale_of(rho).to(dtype), net.prior_mean.to(dtype), scale_of(net.prior_rho).to(dtype)


def _profile(net: StochasticNetwork, laws: tuple[Tensor, Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """For each weight tensor its share of the profile KL, and its factor."""
    mean, scale, prior_mean, prior_scale = laws
    with torch.no_grad():
        excess = (scale.square() + (mean - prior_mean).square()) / prior_scale.square()
        best = torch.stack([part.mean() for part in excess.split(net.sizes)]).log()
        place = ((best - PROFILE_RANGE[0]) / _STEP).round().clamp(0, PROFILE_SIZE - 1)
        factors = (PROFILE_RANGE[0] + place * _STEP).exp()
    kept = _by_tensor(net, _kl(net, mean, scale, prior_mean, prior_scale)) + KEEPING
    scaled = prior_scale * _spread(net, factors.sqrt())
    changed = _by_tensor(net, _kl(net, mean, scale, prior_mean, scaled)) + CHANGING
    return torch.minimum(kept, changed), torch.where(changed < kept, factors, 1.0)


def _kl(net: StochasticNetwork, *laws: Tensor) -> Tensor:
    """Of each weight."""
    return torch.cat([piece for family, part in _families(net) for piece in kl_pieces(family, [v[part] for v in laws])])


def _log_density(net: StochasticNetwork, weights: Tensor, *law: Tensor) -> Tensor:
    args = (weights, *law)
    return torch.cat([family.log_density(*(v[part] for v in args)) for family, part in _families(net)])


def _over_cells(net: StochasticNetwork, *args: Tensor) -> tuple[Tensor, Tensor]:
    pairs = [family.over_a_cell(*(v[part] for v in args)) for family, part in _families(net)]
    above, below = (torch.cat(parts) for parts in zip(*pairs, strict=True))
    return above, below


def _families(net: StochasticNetwork) -> tuple[tuple[Distribution, slice], ...]:
    """The law of hidden weights, and of the last layer's, and where they are in a flat vector."""
    return (net.distribution, slice(None, net.hidden_size)), (GAUSSIAN, slice(net.hidden_size, None))


def _sum(pieces: list[Tensor]) -> Tensor:
    return torch.stack([piece.sum() for piece in pieces]).sum()


def _by_tensor(net: StochasticNetwork, values: Tensor) -> Tensor:
    return torch.stack([part.sum() for part in values.split(net.sizes)])


def _spread(net: StochasticNetwork, values: Tensor) -> Tensor:
    """One value for each weight tensor, given to each of its weights."""
    return torch.cat([value.expand(size) for value, size in zip(values, net.sizes, strict=True)])
