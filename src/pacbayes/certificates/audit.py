"""A certificate against the network and the data it is for: what verification asks beyond the record's arithmetic."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor

from pacbayes.bounds.confidence import clopper_pearson_upper
from pacbayes.certificates.certificate import Certificate
from pacbayes.certificates.certify import divergences
from pacbayes.certificates.classes import ClassCertificate
from pacbayes.certificates.exact import exact_errors
from pacbayes.certificates.monte_carlo import (
    Progress,
    confusion_counts,
    independent_errors,
    pair_errors,
    shared_errors,
    vote_errors,
)
from pacbayes.certificates.single import flat_weights, recomputed, single_weights
from pacbayes.data import Data
from pacbayes.errors import InvalidInput
from pacbayes.networks.distributions import scale_of
from pacbayes.networks.divergence import log_ratios, rounding_of_log_ratios
from pacbayes.networks.stochastic import StochasticNetwork
from pacbayes.seeds import derived_seed

ERROR_RATE = 1e-6
"""The probability with which a right count is called wrong, at most."""

CLAIM_VISITS, MANY = 20_000, 10**8
"""How many fresh visits test the recorded limit of the risk, whatever the record counted; 25 times as many where the
record counted more than ``MANY`` draws."""
CLAIM_VOTES = 5_000
"""How many votes do."""


def network_faults(
    certificate: Certificate, net: StochasticNetwork, single: dict[str, Tensor] | None = None
) -> list[str]:
    """What in the record does not follow from the weights: divergences, the prior's C, a single network's ratios.

    ``single`` is the state in the single network's file, for a certificate of one.
    """
    kl, profile_kl = divergences(net)
    found: dict[str, float] = {"kl": kl}
    if certificate.profile_kl is not None:
        found["profile_kl"] = profile_kl
    if certificate.predictor == "single":
        if single is None:
            return ["the single network's weights are missing"]
        if fault := _single_fault(certificate, net.on_cpu(), flat_weights(net, single)):
            return [fault]
        found |= recomputed(net, single)
    faults = [
        f"{name} is {getattr(certificate, name)!r}, and the weights give {value!r}"
        for name, value in found.items()
        if not _follows(getattr(certificate, name), value)
    ]
    if certificate.catoni and certificate.catoni != list(net.catoni):
        faults.append(f"C is {certificate.catoni}, and was fixed with the prior as {list(net.catoni)}")
    return faults


def _single_fault(certificate: Certificate, net: StochasticNetwork, weights: Tensor) -> str | None:
    """Whether the single network is the draw that its seed gives, but for another machine's rounding.

    Weights that are all rounded in the same direction would have a ratio that no draw has: so the recorded one is also
    compared with that of the draw itself.
    """
    drawn = single_weights(net, certificate.seed)
    room = 1e-5 * scale_of(net.rho.detach()) + 2 * torch.finfo(drawn.dtype).eps * drawn.abs()
    if not bool(((weights - drawn).abs() <= room).all()):
        return f"the single network is not the draw from the posterior that seed {certificate.seed} gives"
    names = ("log_ratio", "profile_log_ratio")
    for name, value, noise in zip(names, log_ratios(net, drawn), rounding_of_log_ratios(net, drawn, room), strict=True):
        if (recorded := getattr(certificate, name)) is not None and recorded < value - noise - 1e-9 * (1 + abs(value)):
            return f"{name} is {recorded!r}, and that of the draw itself is {value!r}"
    return None


def class_faults(issued: ClassCertificate, net: StochasticNetwork) -> list[str]:
    """What in a record of classes does not follow from the weights."""
    found = dict(zip(("kl", "profile_kl"), divergences(net), strict=True))
    other = f"its C is {issued.catoni}, and was fixed with the prior as {list(net.catoni)}"
    return [other] * (issued.catoni != list(net.catoni)) + [
        f"its {name} is {getattr(issued, name)!r}, and the weights give {value!r}"
        for name, value in found.items()
        if not _follows(getattr(issued, name), value)
    ]


def smaller_divergences(
    certificate: Certificate, net: StochasticNetwork, start: StochasticNetwork, single: dict[str, Tensor] | None
) -> list[str]:
    """Which divergences of the record are smaller than those from the prior as the initialisation gives it."""
    honest = copy.deepcopy(net.on_cpu())
    with torch.no_grad():
        honest.prior_mean.copy_(start.prior_mean)
        honest.prior_rho.copy_(start.prior_rho)
    found = dict(zip(("kl", "profile_kl"), divergences(honest), strict=True))
    if single is not None:
        found |= dict(
            zip(("log_ratio", "profile_log_ratio"), log_ratios(honest, flat_weights(net, single)), strict=True)
        )
    return [
        f"{name} is {recorded!r}, and from the initialisation itself it is {value!r}"
        for name, value in found.items()
        if (recorded := getattr(certificate, name)) is not None and recorded < value - 1e-3 - 1e-6 * abs(value)
    ]


def recount(
    certificate: Certificate,
    net: StochasticNetwork,
    data: Data,
    seed: int,
    single: dict[str, Tensor] | None = None,
    progress: Progress | None = None,
) -> dict[str, tuple[int, int, float]]:
    """Each count as (recorded, found, how far apart right ones may be): with fresh draws where there are any."""
    c = certificate
    if c.loss != "0-1":
        raise InvalidInput(f"the loss {c.loss!r} is a function that the record does not hold")
    if c.predictor == "single":
        if single is None:
            raise InvalidInput("the single network's weights are missing")
        # Another machine rounds otherwise, and one label in a hundred thousand may be a tie but for that.
        return {"errors": (c.errors, int(recomputed(net, single, data)["errors"]), 2e-5 * c.visits)}
    if c.sampling == "exact":
        # Another machine's features differ in their last digits.
        return {"errors": (c.errors, exact_errors(net, data), 1e-4 * c.errors)}
    if c.sampling == "shared":
        counts = torch.tensor(shared_errors(net, data, c.draws, seed, progress), dtype=torch.float64)
        # What few draws say of their spread is little: one whole pass is added to it.
        spread = math.sqrt(2 * (len(counts) * float(counts.var()) + len(data) ** 2)) if len(counts) > 1 else math.inf
        return {"errors": (c.errors, int(counts.sum()), 5 * spread)}
    if c.predictor == "majority":
        names = ("errors", "pair_errors", "vote_errors")
        found = dict(zip(names, vote_errors(net, data, c.voters, c.draws, seed, progress), strict=True))
    else:
        found = {"errors": independent_errors(net, data, c.draws, seed, progress)}
    return {name: (getattr(c, name), count, allowance(getattr(c, name), count)) for name, count in found.items()}


def contradicted(certificate: Certificate, net: StochasticNetwork, data: Data, seed: int) -> str | None:
    """Whether fresh draws show that the risk is above its recorded limit, in words; a record of few draws says little.

    A right record is contradicted with probability ``ERROR_RATE`` at most, or its own mc_delta.
    """
    c = certificate
    if c.sampling in ("once", "exact") or c.loss != "0-1":
        return None
    draws = CLAIM_VISITS * (25 if c.visits * c.voters > MANY else 1)
    part = c.part.partition(" ")[0]
    if part == "vote":
        draws = CLAIM_VOTES
        count = vote_errors(net, data, c.voters, draws, seed)[2]
    elif part == "pairs":
        count = pair_errors(net, data, c.voters, draws, seed)
    else:
        count = independent_errors(net, data, draws, seed)
    if (least := _lower(count, draws)) <= c.empirical_risk_bound:
        return None
    limit = f"its recorded limit {c.empirical_risk_bound:.4f}"
    return f"{count} errors in {draws} fresh visits: the risk is above {least:.4f}, and so above {limit}"


def contradicted_classes(issued: ClassCertificate, net: StochasticNetwork, data: Data, seed: int) -> str | None:
    """The same for each class and confusion, and whether the sizes of the classes are those of the data."""
    rates = len(issued.m) ** 2
    if data.class_counts() != issued.m:
        return "the sizes of the classes are not those of the bound data"
    for y, size in enumerate(issued.m):
        if not size:
            continue
        # Of a rare class more than its share: its few examples are visited again.
        draws = max(CLAIM_VISITS * size // len(data), min(2000, 10 * size))
        part = data.of_class(y)
        counts = confusion_counts(net, part, draws, derived_seed(seed, y))[y].tolist()
        counts[y] = draws - counts[y]
        for j, count in enumerate(counts):
            limit = clopper_pearson_upper(issued.counts[y][j], issued.visits[y], issued.mc_delta / rates)
            if _lower(count, draws, ERROR_RATE / rates) > limit:
                return f"{count} of {draws} fresh visits of class {y} are answered {j if j != y else 'wrongly'}"
    return None


def _lower(count: int, visits: int, rate: float = ERROR_RATE) -> float:
    return 1 - clopper_pearson_upper(visits - count, visits, rate)


def allowance(errors: int, others: int) -> float:
    """How far apart two such counts of independent visits may be, at ``ERROR_RATE``.

    The difference of the two is a sum of symmetric terms in {-1, 0, 1}, of which k, say, are not 0. Given which, they
    are k fair signs, and |difference| > c √k has probability at most 2 exp(-c²/2) (Hoeffding); and k is at most the
    sum of the counts.
    """
    return math.sqrt(2 * math.log(2 / ERROR_RATE) * (errors + others))


def _follows(recorded: float | None, value: float) -> bool:
    """The same, but for what another machine's rounding may change; and not below the value before its rounding up."""
    if recorded is None:
        return False
    return recorded >= value - 2e-11 * abs(value) and math.isclose(recorded, value, rel_tol=1e-9, abs_tol=1e-9)
