"""Upper confidence limits for the mean of independent terms: the Monte-Carlo step of section 3.5, and hold-out."""

from __future__ import annotations

import math

from pacbayes.bounds.binary_kl import kl_inverse
from pacbayes.bounds.deltas import check_delta
from pacbayes.checks import check_type, plain
from pacbayes.errors import InvalidInput


def chernoff_upper(mean: float, n: int, delta: float, *, two_sided: bool = False) -> float:
    """``kl_inverse(mean, log(1/delta)/n)``: above the true mean with probability at least 1 - delta.

    For independent terms in [0, 1], not necessarily with the same mean (Hoeffding 1963, theorem 1). The paper
    writes ``log(2/delta)`` (Langford and Caruana 2002), which also limits the mean from below: ``two_sided=True``.
    """
    delta = check_delta(delta)
    check_type("n", n := plain(n), int)
    if n < 1 or not 0 <= mean <= 1:
        raise InvalidInput(f"a mean in [0, 1] of at least one term is needed, not {mean} of {n}")
    # The quotient may be rounded down by an ulp; the factor puts it back above.
    level = (math.log(2) if two_sided else 0.0) - math.log(delta)
    return kl_inverse(mean, level / n * (1 + 1e-15))


def clopper_pearson_upper(errors: int, n: int, delta: float) -> float:
    """The largest p for which ``errors`` or fewer of n have probability delta or more.

    Exact for independent 0-1 terms of one mean, and valid for independent 0-1 terms of different means whose
    average is sought (Hoeffding 1956, theorem 4), as long as it is above (errors + 1)/n, which is enforced.

    >>> clopper_pearson_upper(0, 100, 0.05) > 1 - 0.05 ** (1 / 100)
    True
    """
    delta = check_delta(delta)
    for name, count in (("errors", errors := plain(errors)), ("n", n := plain(n))):
        check_type(name, count, int)
    if n < 1 or not 0 <= errors <= n:
        raise InvalidInput(f"0 <= errors <= n and n >= 1 are needed, not errors = {errors} of n = {n}")
    if errors == n:
        return 1.0
    # Only here: it would be most of what importing this package takes beyond importing torch.
    from scipy import special

    # The tail, P(X <= errors), as a beta integral: bdtr takes 1 - p, which loses the digits of a small p.
    p, step = float(special.betainccinv(errors + 1, n - errors, delta)), 1e-12
    # Step up until the tail itself says so, with room for its own error.
    while p < 1 and not special.betaincc(errors + 1, n - errors, p) <= delta * (1 - 2e-12):
        p, step = max(p, 1e-300) * (1 + step), 2 * step
    return min(1.0, max(p * (1 + 1e-12), (errors + 1) / n))
