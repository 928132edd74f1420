"""The law of a weight (SM3): a reparameterised sample, a divergence between two of its kind, and a scale.

``scale`` is the standard deviation in every family, so that a prior variance means the same thing in each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from pacbayes.bounds.binary_kl import x_minus_log1p
from pacbayes.checks import check_number, check_one_of
from pacbayes.errors import InvalidInput
from pacbayes.networks.normals import Normals

# A deviation never counts as smaller than this, in sampling and in the divergence alike: objectives without a
# penalty drive some of them to 0, where the divergence of the next training stage would be infinite. Its curvature
# there is 1/s², so that at 1e-6 the paper's rates for posteriors made it explode (to 8e7 nats); the noise is nothing
# beside weights of size .01 either way.
SCALE_FLOOR = 1e-4

# Of a prior: far beyond any use, and far below what float32 cannot square.
_LARGEST_VARIANCE = 1e12


def check_variance(name: str, value: float) -> None:
    """Refuse what is no variance for a prior."""
    check_number(name, value)
    if not 0 < value <= _LARGEST_VARIANCE:
        raise InvalidInput(f"{name} must be positive, at most {_LARGEST_VARIANCE:g}, and is {value}")


def scale_of(rho: Tensor) -> Tensor:
    """``s = |rho|^1.5`` (SM5), at least ``SCALE_FLOOR``."""
    size = rho.abs().clamp_min(SCALE_FLOOR ** (2 / 3))
    return size * size.sqrt()


def slope_of(rho: Tensor) -> Tensor:
    """The derivative of :func:`scale_of`."""
    size = rho.abs()
    return torch.where(size < SCALE_FLOOR ** (2 / 3), 0.0, 1.5 * size.sqrt() * rho.sign())


def rho_of(scale: Tensor) -> Tensor:
    """The positive rho behind a scale."""
    return scale.pow(2 / 3)


class Distribution(Protocol):
    """A location-scale family of independent weights."""

    name: str

    def noise(self, shape: tuple[int, ...], normals: Normals) -> Tensor:
        """Standard noise (mean 0, deviation 1), so that ``mean + scale * noise`` is a sample."""
        ...

    def kl(self, mean: Tensor, scale: Tensor, prior_mean: Tensor, prior_scale: Tensor) -> Tensor:
        """The divergence of each weight's posterior from its prior, elementwise."""
        ...

    def log_density(self, x: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
        """The logarithm of the density, elementwise, up to a constant of the family."""
        ...

    def over_a_cell(self, away: Tensor, scale: Tensor, shift: Tensor, width: Tensor) -> tuple[Tensor, Tensor]:
        """How far ``log`` of the mean density over a cell may lie above, and below, ``log_density`` at a point of it.

        ``away`` is the point less the mean of the law; the cell has this width, its middle is at most ``shift`` from
        the point, and the point is at least a third of the width from either end.
        """
        ...


class Gaussian:
    name = "gaussian"

    def noise(self, shape: tuple[int, ...], normals: Normals) -> Tensor:
        return normals(shape)

    def kl(self, mean: Tensor, scale: Tensor, prior_mean: Tensor, prior_scale: Tensor) -> Tensor:
        """``(s²/s̃² - 1 + ((m - m̃)/s̃)²)/2 - log(s/s̃)``."""
        ratio = scale / prior_scale
        spread = (ratio.square() - 1) / 2 - torch.log(ratio)
        if mean.dtype == torch.float64:
            # Next to ratio 1 that cancels, so certificates take h(r² - 1)/2 with h(x) = x - log(1 + x) there.
            excess = (scale - prior_scale) * (scale + prior_scale) / prior_scale.square()
            spread = torch.where(excess.abs() < 0.3, x_minus_log1p(excess.clamp(-0.3, 0.3)) / 2, spread)
        return spread + ((mean - prior_mean) / prior_scale).square() / 2

    def log_density(self, x: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
        return -((x - mean) / scale).square() / 2 - scale.log()

    def over_a_cell(self, away: Tensor, scale: Tensor, shift: Tensor, width: Tensor) -> tuple[Tensor, Tensor]:
        # At e from the point the logarithm changes by -slope e - e²/(2s²). Above: without the square, and by
        # Hoeffding's lemma. Below: by Jensen's inequality, as the mean of e² is at most width²/9.
        slope = away / scale.square()
        moved = (slope * shift).abs()
        return moved + (slope * width).square() / 8, moved + (width / scale).square() / 18


class Laplace:
    name = "laplace"

    def noise(self, shape: tuple[int, ...], normals: Normals) -> Tensor:
        # A Laplace variable is a normal one times the root of twice an exponential one, and half the sum of two
        # squared normals is exponential; divided by its deviation √2.
        a, b, c = normals((3, *shape))
        return ((a.square() + b.square()) / 2).sqrt() * c

    def kl(self, mean: Tensor, scale: Tensor, prior_mean: Tensor, prior_scale: Tensor) -> Tensor:
        """``log(b̃/b) + |d|/b̃ + (b/b̃) exp(-|d|/b) - 1`` with b = s/√2, d the difference of the means.

        Written ``h(b/b̃ - 1) + (b/b̃) h(exp(-|d|/b) - 1)`` with h(x) = x - log(1 + x), which does not cancel.
        """
        ratio, excess = scale / prior_scale, (scale - prior_scale) / prior_scale
        away = (mean - prior_mean).abs() * math.sqrt(2) / scale
        spread = torch.where(excess.abs() < 0.3, x_minus_log1p(excess.clamp(-0.3, 0.3)), excess - ratio.log())
        lost = torch.expm1(-away)
        shift = torch.where(lost > -0.3, x_minus_log1p(lost.clamp_min(-0.3)), lost + away)
        return spread + ratio * shift

    def log_density(self, x: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
        return -(x - mean).abs() * math.sqrt(2) / scale - scale.log()

    def over_a_cell(self, away: Tensor, scale: Tensor, shift: Tensor, width: Tensor) -> tuple[Tensor, Tensor]:
        # The logarithm has the slope √2/s, of either sign, and turns in a cell that the mean is in.
        slope = math.sqrt(2) / scale
        moved = slope * torch.where(away.abs() < width, width, shift)
        return moved + (slope * width).square() / 8, moved


GAUSSIAN = Gaussian()
DISTRIBUTIONS: dict[str, Distribution] = {d.name: d for d in (GAUSSIAN, Laplace())}


def kl_pieces(family: Distribution, law: Sequence[Tensor]) -> list[Tensor]:
    """The family's ``kl`` of a law: mean, scale, and the prior's.

    In float64 piece by piece: on a CPU that is four times faster, since what is on the way stays in the cache, and on a
    GPU, where each piece has to be started, larger ones still bound the memory.
    """
    if law[0].dtype != torch.float64:
        return [family.kl(*law)]
    size = 2**22 if law[0].is_cuda else 2**16
    return [family.kl(*piece) for piece in zip(*(vector.split(size) for vector in law), strict=True)]


def distribution_named(name: str) -> Distribution:
    check_one_of("distribution", name, DISTRIBUTIONS)
    return DISTRIBUTIONS[name]
