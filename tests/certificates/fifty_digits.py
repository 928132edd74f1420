"""Inverses by bisection, for numbers to be compared with."""

from __future__ import annotations

import mpmath
from mpmath import mpf


def inverse(q: mpf, c: mpf) -> mpf:
    """sup{p : kl(q‖p) <= c}, by bisection to 40 digits."""
    low, high = q, mpf(1)
    for _ in range(140):
        p = (low + high) / 2
        if p == 1:
            break
        divergence = (q * mpmath.log(q / p) if q else mpf(0)) + (
            (1 - q) * mpmath.log((1 - q) / (1 - p)) if q < 1 else mpf(0)
        )
        low, high = (p, high) if divergence <= c else (low, p)
    return (low + high) / 2


def binomial_limit(errors: int, n: int, delta: mpf) -> mpf:
    """The p for which ``errors`` or fewer of n have probability delta; 1 if all were errors."""
    if errors == n:
        return mpf(1)
    low, high = mpf(errors) / n, mpf(1)
    for _ in range(140):
        p = (low + high) / 2
        tail = sum(mpmath.binomial(n, k) * p**k * (1 - p) ** (n - k) for k in range(errors + 1))
        low, high = (p, high) if tail >= delta else (low, p)
    return (low + high) / 2
