"""The exact constant of the kl bound: what ``2 sqrt(m)`` in Proposition 1 is an upper bound of (Maurer 2004)."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from pacbayes.checks import plain
from pacbayes.errors import InvalidInput

_LARGEST = 10**12


@lru_cache(maxsize=1024)
def xi(m: int) -> float:
    """``xi(m) = sum_k C(m,k) (k/m)^k (1 - k/m)^(m-k)``, about ``sqrt(pi m/2) + 2/3``; never below it.

    It is the largest expectation of ``exp(m kl(mean‖p))`` over means of m independent terms in [0, 1] of mean p.
    Abel's identity makes it a sum of products, ``sum_i prod_{l<i} (1 - l/m)``, with as many terms that count as a
    few times sqrt(m); the rest are below a geometric series.

    >>> xi(2)  # 1 + 1/2 + 1
    2.50000000...
    """
    m = plain(m)
    if type(m) is not int or not 1 <= m <= _LARGEST:
        raise InvalidInput(f"the constant is for 1 to {_LARGEST} examples, and m = {m!r}")
    count = min(m, math.ceil(9 * math.sqrt(m)))
    products = np.cumprod(1 - np.arange(count) / m)
    # Terms from here on fall by a factor of 1 - count/m at least.
    rest = products[-1] * m / count
    total = 1 + math.fsum(products[:-1]) + float(rest)
    # Each product has taken no more than 3 count roundings.
    return total * (1 + 3 * (count + 2) * 2.0**-53)
