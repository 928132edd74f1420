"""The Monte-Carlo count of a certificate, made again with fresh draws."""

from __future__ import annotations

import math
import secrets

import torch

from pacbayes.certificates import Certificate
from pacbayes.certificates.monte_carlo import independent_errors, shared_errors
from pacbayes.data import Data
from pacbayes.networks import StochasticNetwork

ERROR_RATE = 1e-6
"""The probability with which a right count is called wrong, at most."""


def recount(certificate: Certificate, net: StochasticNetwork, data: Data) -> tuple[int, float]:
    """(errors, allowance): a count with as many fresh draws, and how far from it the recorded one may be."""
    seed = secrets.randbits(63)
    if certificate.sampling == "independent":
        errors = independent_errors(net, data, certificate.draws, seed)
        return errors, allowance(errors, certificate.errors)
    counts = torch.tensor(shared_errors(net, data, certificate.draws, seed), dtype=torch.float64)
    # What few draws say of their spread is little: one whole pass is added to it.
    spread = math.sqrt(2 * (len(counts) * float(counts.var()) + len(data) ** 2)) if len(counts) > 1 else math.inf
    return int(counts.sum()), 5 * spread


def allowance(errors: int, others: int) -> float:
    """How far apart two such counts of independent visits may be, at ``ERROR_RATE``.

    The difference of the two is a sum of symmetric terms in {-1, 0, 1}, of which k, say, are not 0. Given which, they
    are k fair signs, and |difference| > c √k has probability at most 2 exp(-c²/2) (Hoeffding); and k is at most the
    sum of the counts.
    """
    return math.sqrt(2 * math.log(2 / ERROR_RATE) * (errors + others))
