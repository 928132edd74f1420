"""One network θ drawn from Q after training: disintegrated bounds, at its own log dQ/dP(θ) in place of the KL.

Let e(θ, S) have mean at most 1 over the data S, for every θ. Then it has over S and θ drawn from P, and
``e(θ, S)/(dQ/dP(θ))`` has over S and θ drawn from Q, whatever Q has learnt from S. So with probability at least
1 - delta, by Markov's inequality, ``log e(θ, S) < log dQ/dP(θ) + log(1/delta)``.

- With ``e = exp(m kl(Err_S(θ)‖Err(θ)))/xi(m)`` that is the kl bound (Rivasplata et al. 2020, theorem 1), and Catoni's
  comes in the same way.
- With the chance ``p`` of as few errors as θ makes on S, ``e = 1{p <= a}/a`` has mean at most 1 for any a, and so has
  a mixture of several: :func:`binomial_level`. There is no constant to pay, and where Q is P the bound is that of
  Clopper and Pearson for hold-out data, at .76 of delta.

Each holds for one draw: each further one is charged for.
"""

from __future__ import annotations

import math

from pacbayes.errors import InvalidInput

LEVELS = {0.05: 0.8, 1.0: 0.2}
"""Nats, rising, each with its share of delta: ``a = share delta exp(-nats)``, which must fall.

Few and small: beyond them Catoni's bound is better, which pays for the log ratio as it is.
"""


def binomial_level(log_ratio: float, delta: float) -> float:
    """The delta of Clopper and Pearson's limit for the drawn network; 0 where the log ratio is beyond all levels.

    If p were at or below one of the a, e would be the sum of exp(nats)/delta over all levels up to this one. Where
    that is dQ/dP(θ)/delta or more, it has not happened, and p is above a.

    >>> round(binomial_level(0.0, 0.1), 4), round(binomial_level(1.0, 0.1), 4)
    (0.0761, 0.0074)
    """
    most = 0.0
    for nats, share in LEVELS.items():
        most += math.exp(nats)
        # The logarithm may be rounded up by some ulps, and so may the product.
        if log_ratio <= math.log(most) * (1 - 1e-14):
            return share * delta * math.exp(-nats) * (1 - 1e-15)
    return 0.0


def draw_share(draw: int) -> float:
    """The share of delta that the first, second, ... draw from Q gets: .9, then .1/(k(k - 1)); together 1.

    So all of a sequence of draws hold at once, and one may stop after any of them.

    >>> [round(draw_share(k), 4) for k in (1, 2, 3)]
    [0.9, 0.05, 0.0167]
    """
    if type(draw) is not int or draw < 1:
        raise InvalidInput(f"draws are counted 1, 2, ..., and this is draw {draw!r}")
    return 0.9 if draw == 1 else 0.1 / (draw * (draw - 1))
