"""One network drawn from Q after training: the disintegrated bound (Rivasplata et al. 2020, theorem 1).

With probability at least 1 - delta over the data and the draw of θ,
``kl(Err_S(θ)‖Err_P(θ)) <= (log dQ/dP(θ) + log(xi(m)/delta))/m``, and likewise Catoni's bound with the logarithm of
the density ratio in place of the KL. It holds for one draw: each further one is charged for.
"""

from __future__ import annotations

from pacbayes.errors import InvalidInput


def draw_share(draw: int) -> float:
    """The share of delta that the first, second, ... draw from Q gets: .9, then .1/(k(k - 1)); together 1.

    So all of a sequence of draws hold at once, and one may stop after any of them.

    >>> [round(draw_share(k), 4) for k in (1, 2, 3)]
    [0.9, 0.05, 0.0167]
    """
    if type(draw) is not int or draw < 1:
        raise InvalidInput(f"draws are counted 1, 2, ..., and this is draw {draw!r}")
    return 0.9 if draw == 1 else 0.1 / (draw * (draw - 1))
