"""Bounds on the risk of a majority vote from the risks of its voters (Masegosa et al. 2020), for a finite vote too.

The vote: for each prediction N networks are drawn anew from Q, and the label with most votes is the answer. Where it
errs, half of the voters or more do, so with p(x, y) = P_Q(error on (x, y)) and the share of erring voters A,

- ``twice``: P(A >= 1/2) <= 2 E A = 2 p (Markov);
- ``pairs``: P(A >= 1/2) <= 4 E A² = 4 (p/N + (1 - 1/N) p²), four times the chance that two voters, picked at random
  with replacement, both err. It is the risk of pairs of networks from Q², whose divergence is 2 KL(Q‖P); as N grows,
  the tandem loss;
- ``vote``: the vote's risk is that of N networks from Q^N, whose divergence is N KL(Q‖P): no factor, N times the KL.

Each holds on average over the examples. Ties count as errors. The vote over the whole of Q is the limit of large N.
"""

from __future__ import annotations

from dataclasses import dataclass

from pacbayes.errors import InvalidInput

MOST_VOTERS = 1000
"""So many networks have to be drawn for each prediction; the record that says so may come from anywhere."""


@dataclass(frozen=True)
class Rule:
    """``risk of the predictor <= factor * (risk of what is drawn)``, at ``copies`` times the divergence."""

    factor: int
    copies: int


def vote_rules(voters: int) -> dict[str, Rule]:
    """The three ways, for a vote of this many networks drawn anew for each prediction."""
    if type(voters) is not int or not 1 <= voters <= MOST_VOTERS:
        raise InvalidInput(f"voters must be a whole number from 1 to {MOST_VOTERS}, and is {voters!r}")
    return {"twice": Rule(2, 1), "pairs": Rule(4, 2), "vote": Rule(1, voters)}
