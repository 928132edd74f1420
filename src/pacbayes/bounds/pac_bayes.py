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
from pacbayes.checks import check_number, plain
from pacbayes.errors import InvalidInput

Value = TypeVar("Value", float, Tensor)

# Below this the square roots' slopes are cut off: the penalty of m examples is above log(2)/m.
_ROOT_FLOOR = 1e-12


def penalty(kl: Value, m: int, delta: float, kappa: float = 1.0, *, exact: bool = False) -> Value:
    """``Pen = kappa (KL(Q‖P) + log(2 sqrt(m)/delta)) / m``, equations (1) and (7).

    ``exact`` takes :func:`~pacbayes.bounds.constant.xi` in place of ``2 sqrt(m)``, which holds from m = 1 on.

    >>> round(penalty(0.0, 30_000, 0.025), 7), round(penalty(0.0, 30_000, 0.025, exact=True), 7)
    (0.0003179, 0.0003024)
    """
    delta = check_delta(delta)
    if exact:
        return (kl + math.log(xi(m) / delta)) * (kappa / m)
    if m < 8:
        raise InvalidInput(f"the bounds need at least 8 examples, and m = {m}")
    return (kl + math.log(2 * math.sqrt(m) / delta)) * (kappa / m)


SMALLEST_DELTA = 1e-300


def check_delta(delta: float, name: str = "delta") -> float:
    """The delta, as a number of Python's own: NumPy's may have fewer digits, and all that follows would."""
    check_number(name, delta)
    delta = plain(delta)
    if not 0 < delta < 1:
        raise InvalidInput(f"{name} must lie strictly between 0 and 1, and is {delta}")
    # Smaller floats have fewer digits.
    if delta < SMALLEST_DELTA:
        raise InvalidInput(f"{name}, or what is left of it for each prior or part, is below {SMALLEST_DELTA:g}")
    return delta


def check_deltas(delta: float, mc_delta: float) -> None:
    """Refuse what is no probability of failure, or leaves no confidence."""
    check_delta(delta)
    check_delta(mc_delta, "mc_delta")
    if delta + mc_delta >= 1:
        raise InvalidInput(f"delta + mc_delta must be below 1, and is {delta + mc_delta}")


def check_priors(priors: int) -> None:
    if type(priors) is not int or not 1 <= priors <= 2**53:
        raise InvalidInput(
            f"the number of priors to choose among must be a whole number from 1 to 2^53, and is {priors!r}"
        )


def invKL(risk: Value, penalty: Value) -> Value:
    """(3a): ``kl_inverse(risk | penalty)``, the tightest of the four."""
    return kl_inverse(risk, penalty)


def McAll(risk: Value, penalty: Value) -> Value:
    """(3b), McAllester: ``risk + sqrt(penalty/2)``."""
    return risk + _root(penalty / 2)


def quad(risk: Value, penalty: Value) -> Value:
    """(3c): ``(sqrt(risk + penalty/2) + sqrt(penalty/2))²``."""
    return (_root(risk + penalty / 2) + _root(penalty / 2)) ** 2


def lbd(risk: Value, penalty: Value, lam: Value | float | None = None) -> Value:
    """(3d): ``(risk + penalty/lam)/(1 - lam/2)`` for lam in (0, 1); the best lam if none is given."""
    lam = best_lambda(risk, penalty) if lam is None else lam
    return (risk + penalty / lam) / (1 - lam / 2)


def best_lambda(risk: Value, penalty: Value) -> Value:
    """The lambda that minimises ``lbd`` at this (risk, penalty): ``2/(1 + sqrt(1 + 2 risk/penalty))``.

    >>> best_lambda(0.0, 0.1), round(best_lambda(0.4, 0.1), 9)
    (1.0, 0.5)
    """
    return 2 / (1 + _root(1 + 2 * risk / penalty))


def ERM(risk: Value, penalty: Value) -> Value:
    """Empirical risk minimisation: the risk alone. An objective for priors, not a bound."""
    return risk


OBJECTIVES: dict[str, Callable[..., Tensor]] = {f.__name__: f for f in (invKL, McAll, quad, lbd, ERM)}


def _root(x: Value) -> Value:
    return torch.sqrt(x.clamp_min(_ROOT_FLOOR)) if isinstance(x, Tensor) else math.sqrt(x)
