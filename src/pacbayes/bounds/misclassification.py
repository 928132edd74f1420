"""P(argmax F != y) for independent Gaussian outputs F_i ~ N(M_i, V_i): section 3.1 and Proposition 2 of the paper."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pacbayes.checks import check_kind, check_one_of
from pacbayes.errors import InvalidInput

Normals = Callable[[tuple[int, ...]], Tensor]
"""A source of independent standard normal variables of any shape."""

ESTIMATORS = ("closed-form", "L1", "L2", "quadrature")

# Beyond this many standard deviations a normal variable is taken never to be: 3e-13 of mass.
_REACH = 7.2
_VARIANCE_FLOOR = 1e-30


def check_outputs(mean: Tensor, variance: Tensor, labels: Tensor) -> None:
    for name, value in (("mean", mean), ("variance", variance), ("labels", labels)):
        check_kind(name, value, Tensor, "a tensor")
    if mean.dim() < 1 or mean.shape != variance.shape or mean.shape[:-1] != labels.shape or mean.shape[-1] < 2:
        raise InvalidInput(
            f"mean {tuple(mean.shape)} and variance {tuple(variance.shape)} must be [..., classes], "
            f"with labels {tuple(labels.shape)} one each, and two classes at least"
        )


def misclassification_probability(
    mean: Tensor,
    variance: Tensor,
    labels: Tensor,
    method: str | None = None,
    *,
    samples: int = 100,
    generator: torch.Generator | None = None,
    normals: Normals | None = None,
    nodes: int | None = None,
) -> Tensor:
    """The probability that the largest of the outputs is not the labelled one.

    ``mean`` and ``variance`` are [..., classes], ``labels`` [...]; the result is [...], differentiable in mean and
    variance. ``method`` is one of

    - ``"closed-form"``: two classes only, and their default;
    - ``"L1"``, ``"L2"``: the unbiased Monte-Carlo estimators of Proposition 2, averages of ``samples`` draws, from
      ``generator``, or from ``normals``, a function that gives standard normal variables of a shape;
    - ``"quadrature"``: the default for more classes; one-dimensional, deterministic, ``nodes`` points
      (64, or 96 beyond a hundred classes, where the chance to beat all rivals rises more steeply).

    >>> misclassification_probability(torch.zeros(1, 4), torch.ones(1, 4), torch.tensor([2]))
    tensor([0.7500])
    """
    check_outputs(mean, variance, labels)
    classes = mean.shape[-1]
    if method is None:
        method = "closed-form" if classes == 2 else "quadrature"
    check_one_of("method", method, ESTIMATORS)
    if method == "closed-form" and classes != 2:
        raise InvalidInput(f"the closed form holds for two classes, not {classes}: use 'quadrature'")

    for name, count in (("samples", samples), ("nodes", nodes)):
        if count is not None and count < 1:
            raise InvalidInput(f"{name} must be at least 1, and is {count}")
    outputs = Outputs.of(mean, variance.clamp_min(_VARIANCE_FLOOR), labels)
    if method == "closed-form":
        return _closed_form(outputs.gap, variance)
    if method == "quadrature":
        return _quadrature(outputs, nodes if nodes is not None else 64 if classes <= 100 else 96)
    if normals is None:
        normals = partial(torch.randn, generator=generator, dtype=mean.dtype, device=mean.device)
    return (_l1 if method == "L1" else _l2)(outputs, normals, samples)


class Outputs(NamedTuple):
    """Gaussian outputs, as seen from the labelled one."""

    gap: Tensor
    """``M_y - M_i``: only differences of means matter, and they lose nothing when the means are large."""
    deviation: Tensor
    own_deviation: Tensor
    """``s_y``, [..., 1]."""
    is_label: Tensor

    @classmethod
    def of(cls, mean: Tensor, variance: Tensor, labels: Tensor) -> Outputs:
        y = labels.unsqueeze(-1)
        deviation = variance.sqrt()
        is_label = torch.arange(mean.shape[-1], device=mean.device) == y
        return cls(mean.gather(-1, y) - mean, deviation, deviation.gather(-1, y), is_label)


def _closed_form(gap: Tensor, variance: Tensor) -> Tensor:
    """Two classes: ``P(F_y < F_i) = Phi((M_i - M_y) / sqrt(V_y + V_i))``."""
    return _ndtr(-gap.sum(-1) / variance.sum(-1).clamp_min(_VARIANCE_FLOOR).sqrt())


def _l1(outputs: Outputs, normals: Normals, samples: int) -> Tensor:
    """L1 of Proposition 2: the rivals are drawn, and the label's output falls below the largest of them."""
    noise = normals((samples, *outputs.gap.shape))
    rivals = (outputs.deviation * noise - outputs.gap).masked_fill(outputs.is_label, -math.inf)
    return _ndtr(rivals.amax(-1, keepdim=True) / outputs.own_deviation).mean(0).squeeze(-1)


def _l2(outputs: Outputs, normals: Normals, samples: int) -> Tensor:
    """L2 of Proposition 2: the label's output is drawn, and some rival is above it."""
    noise = normals((samples, *outputs.own_deviation.shape))
    return -torch.expm1(_log_beats_all(noise, outputs)).mean(0)


def _quadrature(outputs: Outputs, nodes: int) -> Tensor:
    """L2's expectation, as an integral over the label's own noise in place of draws of it."""
    z, weights, missed = _rule(Outputs(*(part.detach() for part in outputs)), nodes)
    return missed + (weights * -torch.expm1(_log_beats_all(z, outputs))).sum(0)


def _ndtr(x: Tensor) -> Tensor:
    """The normal distribution function; ``torch.special.ndtr`` cancels to 0 in the tail in float32."""
    return torch.erfc(x * -math.sqrt(0.5)) / 2


def _log_beats_all(z: Tensor, outputs: Outputs) -> Tensor:
    """log P(every rival is below the labelled output) where that is ``M_y + s_y z``; z is [n, ..., 1]."""
    margin = (outputs.gap + outputs.own_deviation * z) / outputs.deviation
    # Further down the factor is 0 anyway, and log_ndtr's slope would overflow.
    against_each = torch.special.log_ndtr(margin.clamp_min(-25))
    return against_each.masked_fill(outputs.is_label, 0).sum(-1)


def _rule(outputs: Outputs, nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes z [n, ..., 1], weights [n, ...], and the mass to the left of all nodes, where the label surely loses.

    With z the label's own noise, P(error) = ∫ φ(z) (1 - G(z)) dz, where G, the probability to beat every rival, is
    increasing and log-concave. So wherever G has a steep part, G vanishes to the left of it: one window
    [left, right] holds all that changes, and nodes that crowd geometrically towards its left end resolve every
    scale, however much the variances differ.
    """
    gap, deviation, own_deviation, is_label = outputs
    rival_gap = gap.masked_fill(is_label, math.inf)
    rival_deviation = deviation.masked_fill(is_label, 0)
    left = ((-rival_gap - _REACH * rival_deviation) / own_deviation).amax(-1, keepdim=True).clamp(-_REACH, _REACH)
    right = ((-rival_gap + _REACH * rival_deviation) / own_deviation).amax(-1, keepdim=True).clamp(-_REACH, _REACH)
    width = (right - left).clamp_min(1e-6)
    finest = (deviation.amin(-1, keepdim=True) / own_deviation).clamp(1e-3, 1)
    scale = _REACH * finest
    growth = torch.log1p(width / scale)

    u, du = _gauss_legendre(nodes, gap.dtype, gap.device)
    shape = (nodes,) + (1,) * gap.dim()
    u, du = u.view(shape), du.view(shape)
    z = left + scale * torch.expm1(growth * u)
    density = torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    weights = du * density * growth * scale * torch.exp(growth * u)
    return z, weights.squeeze(-1), _ndtr(left).squeeze(-1)


# By (nodes, dtype, device): made once, so that a compiled or captured step finds them where they are.
_rules: dict[tuple[int, torch.dtype, torch.device], tuple[Tensor, Tensor]] = {}


def _gauss_legendre(nodes: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Nodes and weights on [0, 1]."""
    key = (nodes, dtype, device)
    if key not in _rules:
        u, du = np.polynomial.legendre.leggauss(nodes)
        _rules[key] = (
            torch.tensor((1 + u) / 2, dtype=dtype, device=device),
            torch.tensor(du / 2, dtype=dtype, device=device),
        )
    return _rules[key]
