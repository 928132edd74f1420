"""Catoni's bound: a parameter C that is fixed before the bound data are seen, in place of the constant xi(m)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pacbayes.bounds.binary_kl import kl_inverse
from pacbayes.bounds.deltas import check_delta
from pacbayes.checks import check_number
from pacbayes.errors import InvalidInput

SMALLEST, LARGEST = 1e-4, 20.0
"""The range of C: at 20 the bound for an empirical risk of 0 is within 3e-9 of the best."""

CATONI_GRID = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""The values tried where none was chosen, at log 6 nats: for bounds from 1.1 to 20 times the empirical risk."""


def catoni(risk: float, penalty: float, c: float) -> float:
    """``(1 - exp(-C risk - penalty))/(1 - exp(-C))``, at most 1, rounded up; Catoni 2007, theorem 1.2.6.

    ``penalty`` is ``(KL + log(1/delta))/m``: there is no constant. C must not depend on the bound data. The least
    value over C is ``kl_inverse(risk, penalty)``, at :func:`catoni_parameter`.

    >>> catoni(0.0, 0.01, 1.0)
    0.01574093...
    """
    check_catoni([c])
    if not (0 <= risk <= 1 and penalty >= 0):
        raise InvalidInput(f"a risk in [0, 1] and a penalty of 0 or more are needed, not {risk} and {penalty}")
    # Five roundings of one unit each.
    return min(1.0, math.expm1(-c * risk - penalty) / math.expm1(-c) * (1 + 1e-15))


def catoni_parameter(risk: float, kl: float, m: int, delta: float) -> float:
    """The C that is best where the empirical risk and the KL turn out to be these: ``log(p(1-r)/(r(1-p)))``.

    p is the bound there, ``kl_inverse(r, (kl + log(1/delta))/m)``. The bound is valid for any C, if only it is fixed
    before the bound data are seen, and flat around the best.
    """
    delta = check_delta(delta)
    if not (0 <= risk <= 1 and 0 <= kl < math.inf and m >= 1):
        raise InvalidInput(f"a risk in [0, 1], a finite KL and m >= 1 are needed, not {risk}, {kl} and {m}")
    p = kl_inverse(risk, (kl - math.log(delta)) / m)
    if risk == 0 or p >= 1:
        return LARGEST
    return min(LARGEST, max(SMALLEST, math.log(p / risk) + math.log1p(-risk) - math.log1p(-p)))


def check_catoni(values: Sequence[float]) -> tuple[float, ...]:
    """The values of C as floats; refused unless 1 to 64 of them lie in the range."""
    if not 1 <= len(values) <= 64:
        raise InvalidInput(f"between one and 64 values of Catoni's C are needed, not {len(values)}")
    for c in values:
        check_number("Catoni's C", c)
        if not SMALLEST <= c <= LARGEST:
            raise InvalidInput(f"Catoni's C must lie in [{SMALLEST}, {LARGEST}], and is {c}")
    return tuple(float(c) for c in values)
