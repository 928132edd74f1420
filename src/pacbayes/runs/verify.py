"""Verification of a run folder: each check a line, passed, failed, or not checkable and why."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from pacbayes.certificates import Certificate
from pacbayes.certificates.monte_carlo import independent_errors, shared_errors
from pacbayes.data import Data
from pacbayes.errors import MissingData, PacBayesError
from pacbayes.files import sha256_of
from pacbayes.networks import StochasticNetwork
from pacbayes.runs.folder import RunFolder, training_data

PASSED, FAILED, OPEN = "passed", "failed", "not checkable"


@dataclass(frozen=True)
class Check:
    name: str
    status: str
    detail: str


def verify_run(run: RunFolder, *, recompute: bool = False) -> list[Check]:
    """Recompute what can be recomputed from the folder, and from the data where they are at hand.

    ``recompute`` repeats the Monte-Carlo count with fresh draws: without it the count itself is taken as recorded.
    """
    return list(_checks(run, recompute))


def _checks(run: RunFolder, recompute: bool) -> Iterator[Check]:
    try:
        certificate = Certificate.load(run.certificate_file)
    except PacBayesError as error:
        yield Check("record", FAILED, str(error))
        return
    yield Check("record", PASSED, "certificate.json has the expected fields and types")

    faults = certificate.check()
    yield Check("arithmetic", FAILED if faults else PASSED, "; ".join(faults) or "every number follows from the counts")

    for which in ("prior", "posterior"):
        recorded = getattr(certificate, f"{which}_fingerprint")
        path = run.weights_file(which)
        found = sha256_of(path) if path.is_file() else "no file"
        yield _equal(f"{which} fingerprint", recorded, found, path.name)
        if which == "prior":
            yield _equal("prior in history", run.prior_in_history(), found, path.name)

    net = None
    try:
        net = run.network()
        yield _divergence(certificate, net)
    except PacBayesError as error:
        yield Check("KL", FAILED, str(error))

    try:
        data = training_data(run.config())
    except MissingData as error:
        for name in ("data record", "bound data", "m", "Monte Carlo"):
            yield Check(name, OPEN, f"the data are not at hand: {error}")
        return
    except PacBayesError as error:
        yield Check("data", FAILED, str(error))
        return
    try:
        run.check_data(data)
        yield Check("data record", PASSED, "prior and bound data are those of data.json")
    except PacBayesError as error:
        yield Check("data record", FAILED, str(error))
    yield _equal("bound data", certificate.bound_data_fingerprint, data.bound.fingerprint(), "the bound data")
    yield _equal("m", str(certificate.m), str(len(data.bound)), "the number of bound examples")
    if not recompute or net is None or data.bound.shape != tuple(run.data_record()["shape"]):
        yield Check("Monte Carlo", OPEN, "the count was not repeated; --recompute does")
    else:
        yield _recount(certificate, net, data.bound)


def _divergence(certificate: Certificate, net: StochasticNetwork) -> Check:
    with torch.no_grad():
        divergence = float(net.kl())
    holds = divergence <= certificate.kl and math.isclose(divergence, certificate.kl, rel_tol=1e-9, abs_tol=1e-300)
    detail = f"recomputed from the two weight files: {divergence:.9g}, recorded {certificate.kl:.9g}"
    return Check("KL", PASSED if holds else FAILED, detail)


def _recount(certificate: Certificate, net: StochasticNetwork, data: Data) -> Check:
    """Fresh draws, as many; a right record fails with probability below 1e-6 (five standard deviations)."""
    seed = secrets.randbits(63)
    if certificate.sampling == "independent":
        errors = independent_errors(net, data, certificate.draws, seed)
        spread = math.sqrt(errors + certificate.errors + 25)
    else:
        counts = torch.tensor(shared_errors(net, data, certificate.draws, seed), dtype=torch.float64)
        errors = int(counts.sum())
        spread = math.sqrt(2 * (len(counts) * float(counts.var()) + len(data) ** 2)) if len(counts) > 1 else math.inf
    holds = abs(errors - certificate.errors) <= 5 * spread
    detail = f"{errors} errors with fresh draws, {certificate.errors} recorded, in {certificate.visits} visits"
    return Check("Monte Carlo", PASSED if holds else FAILED, detail)


def _equal(name: str, recorded: str, found: str, what: str) -> Check:
    if recorded == found:
        return Check(name, PASSED, f"{what} is the one certified ({found[:16]})")
    return Check(name, FAILED, f"{what} gives {found[:16]}, and what was recorded is {recorded[:16] or 'nothing'}")
