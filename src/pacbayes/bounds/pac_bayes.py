"""Proposition 1: four upper bounds on the true risk, as functions of (risk, penalty), and plain ERM.

Each takes floats or tensors. As training objectives the penalty may carry kappa; in a certificate it never does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from pacbayes.bounds.binary_kl import kl_inverse
from pacbayes.bounds.constant import xi
from pacbayes.bounds.deltas import check_delta
from pacbayes.checks import check_number, plain
from pacbayes.errors import InvalidInput

Value = TypeVar("Value", float, Tensor)

# Below this the square roots' slopes are cut off: the penalty of m examples is above log(2)/m.
_ROOT_FLOOR = 1e-12

SMALLEST_M = 8
"""What Maurer 2004 asks for (the footnote of Proposition 1)."""


def penalty(kl: Value, m: int, delta: float, kappa: float = 1.0, *, exact: bool = False) -> Value:
    """``Pen = kappa (KL(Q‖P) + log(2 sqrt(m)/delta)) / m``: ``Pen`` of Proposition 1, ``Pen_κ`` of section 4.

    ``exact`` takes :func:`~pacbayes.bounds.xi` in place of ``2 sqrt(m)``, which holds from m = 1 on.

    >>> round(penalty(0.0, 30_000, 0.025), 7), round(penalty(0.0, 30_000, 0.025, exact=True), 7)
    (0.0003179, 0.0003024)
    """
    if not isinstance(kl, Tensor):
        check_number("the KL", kl)
        if not kl >= 0:
            raise InvalidInput(f"a KL is at least 0, and this is {kl}")
    return penalty_of_ratio(kl, m, delta, kappa, exact=exact)


def penalty_of_ratio(log_ratio: Value, m: int, delta: float, kappa: float = 1.0, *, exact: bool = False) -> Value:
    """:func:`penalty`, also for ``log dQ/dP`` at one network in place of the KL, its mean: that may be negative."""
    delta, log_ratio = check_delta(delta), plain(log_ratio)
    if exact:
        return (log_ratio + math.log(xi(m) / delta)) * (kappa / m)
    if m < SMALLEST_M:
        raise InvalidInput(f"the bounds need at least {SMALLEST_M} examples, and m = {m}")
    return (log_ratio + math.log(2 * math.sqrt(m) / delta)) * (kappa / m)


def invKL(risk: Value, penalty: Value) -> Value:
    """B1 of Proposition 1: ``kl_inverse(risk | penalty)``, the tightest of the four."""
    return kl_inverse(risk, penalty)


def McAll(risk: Value, penalty: Value) -> Value:
    """B2, McAllester's: ``risk + sqrt(penalty/2)``."""
    return risk + _root(penalty / 2)


def quad(risk: Value, penalty: Value) -> Value:
    """B3: ``(sqrt(risk + penalty/2) + sqrt(penalty/2))²``."""
    return (_root(risk + penalty / 2) + _root(penalty / 2)) ** 2


def lbd(risk: Value, penalty: Value, lam: Value | float | None = None) -> Value:
    """B4: ``(risk + penalty/lam)/(1 - lam/2)`` for lam in (0, 1]; the best lam if none is given."""
    lam = best_lambda(risk, penalty) if lam is None else lam
    if not isinstance(lam, Tensor) and not 0 < lam <= 1:
        raise InvalidInput(f"lambda must lie in (0, 1], and is {lam}")
    return (risk + penalty / lam) / (1 - lam / 2)


def best_lambda(risk: Value, penalty: Value) -> Value:
    """The lambda that minimises ``lbd`` at this (risk, penalty): ``2/(1 + sqrt(1 + 2 risk/penalty))``.

    >>> best_lambda(0.0, 0.1), round(best_lambda(0.4, 0.1), 9)
    (1.0, 0.5)
    """
    if not isinstance(penalty, Tensor) and not penalty > 0:
        raise InvalidInput(f"there is a best lambda where the penalty is positive, and it is {penalty}")
    least = penalty.clamp_min(_ROOT_FLOOR) if isinstance(penalty, Tensor) else penalty
    return 2 / (1 + _root(1 + 2 * risk / least))


def ERM(risk: Value, penalty: Value) -> Value:
    """Empirical risk minimisation: the risk alone. An objective for priors, not a bound."""
    return risk


OBJECTIVES: dict[str, Callable[..., Tensor]] = {f.__name__: f for f in (invKL, McAll, quad, lbd, ERM)}


def _root(x: Value) -> Value:
    return torch.sqrt(x.clamp_min(_ROOT_FLOOR)) if isinstance(x, Tensor) else math.sqrt(x)
