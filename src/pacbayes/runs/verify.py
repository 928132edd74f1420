"""Verification of a run folder: each check a line, passed, failed, or not checkable and why."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from pacbayes.certificates import Certificate
from pacbayes.errors import MissingData, PacBayesError
from pacbayes.files import sha256_of
from pacbayes.runs.folder import RunFolder, training_data

PASSED, FAILED, OPEN = "passed", "failed", "not checkable"


@dataclass(frozen=True)
class Check:
    name: str
    status: str
    detail: str


def verify_run(run: RunFolder) -> list[Check]:
    """Recompute what can be recomputed from the folder, and from the data where they are at hand."""
    return list(_checks(run))


def _checks(run: RunFolder) -> Iterator[Check]:
    try:
        certificate = Certificate.load(run.certificate_file)
    except PacBayesError as error:
        yield Check("record", FAILED, str(error))
        return
    yield Check("record", PASSED, "certificate.json has the expected fields and types")

    faults = certificate.check()
    yield Check(
        "arithmetic",
        FAILED if faults else PASSED,
        "; ".join(faults) or "every number follows from the counts",
    )

    for which in ("prior", "posterior"):
        recorded = getattr(certificate, f"{which}_fingerprint")
        path = run.weights_file(which)
        found = sha256_of(path) if path.is_file() else "no file"
        yield _equal(f"{which} fingerprint", recorded, found, path.name)

    try:
        data = training_data(run.config())
    except MissingData as error:
        for name in ("data record", "bound data", "m", "KL"):
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
    bound_data = data.bound
    yield _equal("bound data", certificate.bound_data_fingerprint, bound_data.fingerprint(), "the bound data")
    yield _equal("m", str(certificate.m), str(len(bound_data)), "the number of bound examples")
    try:
        with torch.no_grad():
            divergence = float(run.network(bound_data.shape, bound_data.classes).kl())
    except PacBayesError as error:
        yield Check("KL", FAILED, str(error))
        return
    holds = divergence <= certificate.kl and math.isclose(divergence, certificate.kl, rel_tol=1e-9, abs_tol=1e-300)
    yield Check(
        "KL",
        PASSED if holds else FAILED,
        f"recomputed from the two weight files: {divergence:.9g}, recorded {certificate.kl:.9g}",
    )


def _equal(name: str, recorded: str, found: str, what: str) -> Check:
    if recorded == found:
        return Check(name, PASSED, f"{what} is the one certified ({found[:16]})")
    return Check(name, FAILED, f"{what} gives {found[:16]}, and the certificate says {recorded[:16]}")
