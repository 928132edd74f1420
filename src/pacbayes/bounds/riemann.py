"""A rigorous upper bound on P(argmax F != y) for Gaussian outputs: the lower Riemann sum of P(correct)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pacbayes.errors import InvalidInput

_REACH = 8.0
# What float64 may add up to in a sum of products of at most a few thousand factors below 1.
_ROUNDING = 1e-12


def misclassification_upper(mean: Tensor, variance: Tensor, labels: Tensor, *, cells: int = 1024) -> Tensor:
    """At least the probability that the labelled output is not strictly the largest; float64, [...].

    With z the labelled output's own noise, ``P(correct) = ∫ φ(z) G(z) dz``, where G, the product over the rivals i of
    ``Φ((M_y + s_y z - M_i)/s_i)``, increases, so the
    sum over cells of (mass of the cell) G(its left end) is below the integral. ``cells`` of equal width lie
    between -8 and 8; what is to their left counts as error, and the last one reaches to infinity.
    ``mean`` and ``variance`` are [..., classes], ``labels`` [...].

    >>> misclassification_upper(torch.zeros(1, 2), torch.ones(1, 2), torch.tensor([0]))  # 1/2, from above
    tensor([0.502...], dtype=torch.float64)
    """
    classes = mean.shape[-1]
    if mean.shape != variance.shape or mean.shape[:-1] != labels.shape or classes < 2 or cells < 1:
        raise InvalidInput(
            "mean and variance must be [..., classes], labels [...], with two classes and a cell or more"
        )
    mean, variance = mean.double(), variance.double()
    own = labels.unsqueeze(-1)
    is_label = torch.arange(classes, device=mean.device) == own
    deviation = variance.sqrt()
    gap = mean.gather(-1, own) - mean
    edges = torch.linspace(-_REACH, _REACH, cells + 1, dtype=torch.float64, device=mean.device)
    # From the left end of each cell to the next; the last reaches to infinity.
    tails = torch.special.erfc(edges * math.sqrt(0.5)) / 2
    masses = torch.cat([tails[:-2] - tails[1:-1], tails[-2:-1]])
    correct = torch.zeros(labels.shape, dtype=torch.float64, device=mean.device)
    for left, mass in zip(edges[:-1], masses, strict=True):
        margin = gap + deviation.gather(-1, own) * left
        # A rival without variance is beaten or not; 0/0, a tie, is not.
        beaten = torch.special.ndtr(margin / deviation).masked_fill((deviation == 0) & (margin <= 0), 0.0)
        correct += mass * beaten.masked_fill(is_label, 1.0).prod(-1)
    return (1 - correct * (1 - _ROUNDING) + _ROUNDING).clamp(0, 1)
