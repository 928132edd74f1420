"""A certificate against the network and the data it is for: what verification asks beyond the record's arithmetic."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pacbayes.certificates.certificate import Certificate
from pacbayes.certificates.certify import divergences
from pacbayes.certificates.monte_carlo import exact_errors, independent_errors, shared_errors, vote_errors
from pacbayes.certificates.single import recomputed
from pacbayes.data import Data
from pacbayes.errors import InvalidInput
from pacbayes.networks.stochastic import StochasticNetwork

_DEVIATIONS = 5.0
"""A right record is doubted with probability below 1e-6 for each count."""


def network_faults(
    certificate: Certificate, net: StochasticNetwork, single: dict[str, Tensor] | None = None
) -> list[str]:
    """What in the record does not follow from the weights: divergences, the prior's C, a single network's ratios.

    ``single`` is the state in the single network's file, for a certificate of one.
    """
    kl, profile_kl = divergences(net)
    found: dict[str, float | None] = {"kl": kl}
    if certificate.profile_kl is not None:
        found["profile_kl"] = profile_kl
    if certificate.predictor == "single":
        if single is None:
            return ["the single network's weights are missing"]
        found |= recomputed(net, single)
    faults = [
        f"{name} is {getattr(certificate, name)!r}, and the weights give {value!r}"
        for name, value in found.items()
        if not _follows(getattr(certificate, name), value)
    ]
    if certificate.catoni and certificate.catoni != list(net.catoni):
        faults.append(f"C is {certificate.catoni}, and was fixed with the prior as {list(net.catoni)}")
    return faults


def recount(
    certificate: Certificate, net: StochasticNetwork, data: Data, seed: int, single: dict[str, Tensor] | None = None
) -> dict[str, tuple[int, int, bool]]:
    """Each count as (recorded, found, whether they agree): with fresh draws where there are any, else the same."""
    c = certificate
    if c.loss != "0-1":
        raise InvalidInput(f"the loss {c.loss!r} is a function that the record does not hold")
    if c.predictor == "single":
        if single is None:
            raise InvalidInput("the single network's weights are missing")
        errors = int(recomputed(net, single, data)["errors"])
        return {"errors": (c.errors, errors, c.errors == errors)}
    if c.sampling == "exact":
        errors = exact_errors(net, data)
        # Another machine's features differ in their last digits.
        return {"errors": (c.errors, errors, math.isclose(c.errors, errors, rel_tol=1e-4))}
    if c.sampling == "shared":
        counts = torch.tensor(shared_errors(net, data, c.draws, seed), dtype=torch.float64)
        spread = math.sqrt(2 * (len(counts) * float(counts.var()) + len(data) ** 2)) if len(counts) > 1 else math.inf
        errors = int(counts.sum())
        return {"errors": (c.errors, errors, abs(errors - c.errors) <= _DEVIATIONS * spread)}
    if c.predictor == "majority":
        names = ("errors", "pair_errors", "vote_errors")
        found = dict(zip(names, vote_errors(net, data, c.voters, c.draws, seed), strict=True))
    else:
        found = {"errors": independent_errors(net, data, c.draws, seed)}
    return {name: (getattr(c, name), count, _agree(getattr(c, name), count)) for name, count in found.items()}


def _follows(recorded: float | None, value: float | None) -> bool:
    """The same, to what another machine's rounding may change."""
    return recorded is not None and value is not None and math.isclose(recorded, value, rel_tol=1e-9, abs_tol=1e-9)


def _agree(first: int, second: int) -> bool:
    return abs(first - second) <= _DEVIATIONS * math.sqrt(first + second + 25)
