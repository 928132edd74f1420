"""High-precision references for the bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import mpmath
import numpy as np
from scipy import special


def exact_kl(q: float, p: float | mpmath.mpf) -> mpmath.mpf:
    """kl(q‖p) with so many digits that nothing cancels, however small q, 1 - q or p - q are."""
    smallest = min(float(v) for v in (q, p) if v > 0) if q or p else 1.0
    with mpmath.workdps(100 + 2 * math.ceil(-math.log10(smallest))):
        q, p = mpmath.mpf(q), mpmath.mpf(p)
        total = mpmath.mpf(0)
        for a, b in ((q, p), (1 - q, 1 - p)):
            if a == 0:
                continue
            if b <= 0:
                return mpmath.inf
            total += a * mpmath.log(a / b)
        return total


def exact_inverse(q: float | mpmath.mpf, c: float | mpmath.mpf, digits: int = 80) -> mpmath.mpf:
    """sup{p : kl(q‖p) <= c} by bisection to ``digits`` digits after the point."""
    with mpmath.workdps(digits + 20):
        q, c = mpmath.mpf(q), mpmath.mpf(c)

        def divergence(p: mpmath.mpf) -> mpmath.mpf:
            below = q * mpmath.log(q / p) if q else mpmath.mpf(0)
            return below + ((1 - q) * mpmath.log((1 - q) / (1 - p)) if q < 1 else mpmath.mpf(0))

        low, high = q, mpmath.mpf(1)
        for _ in range(int(digits * 3.33)):
            middle = (low + high) / 2
            low, high = (middle, high) if divergence(middle) <= c else (low, middle)
        return (low + high) / 2


def integrated_error(mean: np.ndarray, variance: np.ndarray, label: int, nodes: int = 30) -> float:
    """P(argmax F != label) for positive variances, by a composite rule cut at every scale of every class.

    Panels end where the label's noise z takes it past a rival's mean plus or minus some of the rival's deviations,
    and at every quarter besides; with ``nodes`` Gauss-Legendre points in each, the error is that of rounding.
    """
    mean, deviation = np.asarray(mean, float), np.sqrt(np.asarray(variance, float))
    rivals = np.delete(np.arange(len(mean)), label)
    edges = np.linspace(-12, 12, 97)
    if len(mean) <= 20:
        steps = np.array([-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12])
        turns = (mean[rivals, None] - mean[label] + steps * deviation[rivals, None]) / deviation[label]
        edges = np.concatenate([edges, turns[np.abs(turns) < 12]])
    edges = np.unique(edges)
    x, w = np.polynomial.legendre.leggauss(nodes)
    total = special.ndtr(-12.0)
    for a, b in pairwise(edges):
        z = (a + b) / 2 + (b - a) / 2 * x
        against = (mean[label] - mean[rivals] + deviation[label] * z[:, None]) / deviation[rivals]
        lost = -np.expm1(special.log_ndtr(against).sum(1))
        total += (b - a) / 2 * float(w @ (lost * np.exp(-z * z / 2))) / np.sqrt(2 * np.pi)
    return float(total)


def slope(f: Callable[[float], float], at: float, step: float) -> float:
    """The derivative by the five-point rule: the error is of order step⁴."""
    return (8 * (f(at + step) - f(at - step)) - (f(at + 2 * step) - f(at - 2 * step))) / (12 * step)
