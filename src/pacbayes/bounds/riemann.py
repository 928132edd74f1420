"""A rigorous upper bound on P(argmax F != y) for Gaussian outputs: the integral of P(correct) from below, in cells."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pacbayes.bounds.misclassification import Outputs, check_outputs
from pacbayes.errors import InvalidInput

# Cells of equal width lie between -5 and 5; the mass beyond 8 on the left counts as error.
_DENSE, _REACH = 5.0, 8.0
# Of log G: beyond it exp(slope²/2) would leave the range of float64.
_STEEPEST = 25.0
# What float64 may add up to in a sum of a few thousand terms, each a product of some tens of factors.
_ROUNDING = 1e-11


def misclassification_upper(mean: Tensor, variance: Tensor, labels: Tensor, *, cells: int = 256) -> Tensor:
    """At least the probability that the labelled output is not strictly the largest; float64, [...].

    With z the labelled output's own noise, ``P(correct) = ∫ φ(z) G(z) dz``, where G is the product over the rivals i of
    ``Φ((M_y + s_y z - M_i)/s_i)``. Each factor, and so G, is log-concave: between the ends of a cell it is at least
    ``exp(l)``, with l linear and log G at both ends, and the integral of ``φ exp(l)`` is known. G increases, too, so it
    is at least its value at the left end: that is taken where G rises so steeply that the other form might overflow.
    ``mean`` and ``variance`` are [..., classes], ``labels`` [...].

    >>> misclassification_upper(torch.zeros(1, 2), torch.ones(1, 2), torch.tensor([0]))  # 1/2, from above
    tensor([0.5000...], dtype=torch.float64)
    """
    check_outputs(mean, variance, labels)
    if cells < 1:
        raise InvalidInput(f"one cell at least is needed, not {cells}")
    gap, deviation, own_deviation, is_label = Outputs.of(mean.double(), variance.double(), labels)

    def beats_all(z: float) -> Tensor:
        """G(z). A rival without variance is beaten or not; 0/0, a tie, is not."""
        margin = gap + own_deviation * z
        beaten = torch.special.ndtr(margin / deviation).masked_fill((deviation == 0) & (margin <= 0), 0.0)
        return beaten.masked_fill(is_label, 1.0).prod(-1)

    coarse = [-_REACH + step for step in range(int(_REACH - _DENSE))]
    edges = [*coarse, *(-_DENSE + 2 * _DENSE * k / cells for k in range(cells + 1))]
    low = beats_all(edges[0])
    correct = torch.zeros(labels.shape, dtype=torch.float64, device=gap.device)
    for left, right in zip(edges[:-1], edges[1:], strict=True):
        high = beats_all(right)
        slope = (high.log() - low.log()) / (right - left)
        # ∫ φ(z) exp(slope (z - left)) dz over the cell: the normal law moved by the slope.
        moved = torch.exp(slope * (slope / 2 - left)) * _mass(left - slope, right - slope)
        steep = ~(slope <= _STEEPEST)  # also where G is 0
        at_left = _mass(torch.tensor(left, dtype=torch.float64), torch.tensor(right, dtype=torch.float64)).item()
        correct += low * torch.where(steep, at_left, moved)
        low = high
    correct += low * math.erfc(_DENSE * math.sqrt(0.5)) / 2  # the last cell reaches to infinity
    risks = (1 - correct * (1 - _ROUNDING) + _ROUNDING).clamp(0, 1)
    return torch.where(risks.isfinite(), risks, 1.0)  # what is no number is no right answer


def _mass(left: Tensor, right: Tensor) -> Tensor:
    """``Φ(right) - Φ(left)``, from the tails of the side on which the two lie."""
    side = torch.where(left + right > 0, math.sqrt(0.5), -math.sqrt(0.5))
    return (torch.special.erfc(side * left) - torch.special.erfc(side * right)).abs() / 2
