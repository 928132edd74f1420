"""The prior's variance for an ordinary trained network: as large as its error on the prior data allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pacbayes.checks import check_count, check_in_range, check_number, plain
from pacbayes.data import Data, as_data
from pacbayes.networks.layers import Draw
from pacbayes.networks.normals import normals_like
from pacbayes.networks.shaping import OF_A_LOOP
from pacbayes.networks.stochastic import StochasticNetwork, check_stochastic
from pacbayes.seeds import check_seed, derived_seed
from pacbayes.training.fit import check_fit
from pacbayes.training.loss import conditional_risk
from pacbayes.training.settings import Settings

# Multiples of the variance lie within 2 to the power of this, and are found to the nearest sixteenth of a doubling.
_LARGEST_POWER, _FINEST_STEP = 40.0, 1 / 16

# A tag that keeps this stream apart from those of training and of certificates.
_SCALING = (1, 2)


@dataclass(frozen=True)
class PriorScale:
    """What :func:`pacbayes.scale_prior` found."""

    multiple: float
    """What the variances were multiplied by."""
    error: float
    """The drawn network's error on the prior data, estimated."""
    error_of_means: float
    """That of the deterministic network."""


@torch.no_grad()
def scale_prior(
    net: StochasticNetwork,
    data: Any,
    *,
    tolerance: float = 0.01,
    passes: int = 4,
    batch_size: int = 256,
    seed: int = 0,
) -> PriorScale:
    """Multiply all variances by the largest number that costs at most ``tolerance`` of error, and freeze the prior.

    For a network whose means were trained in any way on the prior data, and on nothing of the bound data: the more
    variance the prior has, the less a posterior pays for moving. ``tolerance`` is how much larger than the error of the
    deterministic network the error of drawn networks on ``data``, the prior data, may be. The error is estimated in
    ``passes`` over the data, with the same noise for every scale. The data count as seen by the prior.

    >>> net = pb.stochastic(pb.build("mlp", (4,), 2), prior_variance=0.01)
    >>> scale = scale_prior(net, (torch.randn(50, 4), torch.arange(50) % 2), tolerance=0.05)
    >>> scale.error <= scale.error_of_means + 0.05
    True
    """
    check_stochastic(net)
    if len(net.prior_trained_on):
        net.refuse_unnamed()  # whether the loop came before that prior or after it, nobody knows
    data = as_data(data, classes=net.classes)
    check_number("tolerance", tolerance)
    passes, batch_size, seed = plain(passes), plain(batch_size), plain(seed)
    check_count("passes", passes)
    check_count("batch_size", batch_size)
    check_in_range("tolerance", tolerance, 0, 1)
    check_seed(seed)
    settings = Settings()
    check_fit(net, data, settings)
    start = net.rho.clone()

    def risk(power: float) -> float:
        net.rho.copy_(start * 2 ** (power / 3))  # s² = |rho|³
        return _risk(net, data, settings, passes, batch_size, seed)

    of_means = _error_of_means(net, data, batch_size)
    limit = of_means + tolerance
    try:
        power = _largest(lambda power: risk(power) <= limit)
        error = risk(power)
    except BaseException:
        net.rho.copy_(start)
        raise
    # Whatever loop has made the means, these are its data.
    net.trained_on = net.trained_on.without(OF_A_LOOP)
    net.trained_on.note(data)
    net.freeze_prior()
    return PriorScale(2**power, error, of_means)


def _largest(fits: Callable[[float], bool]) -> float:
    """The largest number in reach that fits, if all below one that fits do; the smallest in reach, if none does."""
    step, power = 1.0, 0.0
    direction = 1.0 if fits(power) else -1.0
    while abs(power + direction * step) <= _LARGEST_POWER:
        power += direction * step
        if fits(power) != (direction > 0):
            break
    else:
        return power
    low = power if direction < 0 else power - step
    while step > _FINEST_STEP:
        step /= 2
        if fits(low + step):
            low += step
    return low


def _risk(net: StochasticNetwork, data: Data, settings: Settings, passes: int, batch_size: int, seed: int) -> float:
    """The expected 0-1 error of drawn networks; infinite where it is no number."""
    generator = torch.Generator(net.mean.device).manual_seed(derived_seed(seed, *_SCALING))
    normals = normals_like(net.mean, generator)
    total = 0.0
    for _ in range(passes):
        for x, y in _batches(net, data, batch_size):
            total += float(conditional_risk(net, x, y, settings, Draw(settings.sampling, normals))) * len(y)
    risk = total / (passes * len(data))
    return risk if math.isfinite(risk) else math.inf


def _error_of_means(net: StochasticNetwork, data: Data, batch_size: int) -> float:
    errors = sum(int((net(x, "mean").argmax(-1) != y).sum()) for x, y in _batches(net, data, batch_size))
    return errors / len(data)


def _batches(net: StochasticNetwork, data: Data, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    device = net.mean.device
    pairs = zip(data.x.split(batch_size), data.y.split(batch_size), strict=True)
    return ((x.to(device), y.to(device)) for x, y in pairs)
