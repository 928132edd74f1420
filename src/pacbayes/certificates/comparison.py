"""Every bound for the same network and counts, side by side. For display: only the certificate is a promise."""

from __future__ import annotations

from dataclasses import replace

from pacbayes.certificates.certificate import Certificate, check_certificate
from pacbayes.certificates.wording import percent, table
from pacbayes.errors import InvalidInput


def compare_bounds(certificate: Certificate) -> dict[str, float]:
    """The paper's bound, each improvement alone, and all together, from the counts of a randomised certificate.

    Each is at the certificate's confidence as if it were the only one. The least of them, picked after the fact, is no
    certificate: that is what ``best`` pays for. A Monte-Carlo limit that the counts do not allow has no row.
    """
    check_certificate(certificate)
    if certificate.predictor != "randomised" or certificate.profile_kl is None:
        raise InvalidInput("the comparison needs the record of a randomised classifier, with its profile KL and C")
    if certificate.limit == "none":
        paper, others = "none", {}
    else:
        paper, others = "two-sided", {"one-sided limit": "one-sided", "binomial limit": "clopper-pearson"}
        if certificate.unit > 1 or certificate.sampling == "shared":
            del others["binomial limit"]
    rows = {
        "the paper's": ("invKL", paper),
        **{name: ("invKL", limit) for name, limit in others.items()},
        "exact constant": ("exact", paper),
        "Catoni": ("catoni", paper),
        "prior's scale": ("invKL+profile", paper),
        "best, all together": ("best", [paper, *others.values()][-1]),
    }
    evidence = certificate.evidence()
    return {
        name: float(replace(evidence, bound=bound, limit=limit).derived()["risk_bound"])
        for name, (bound, limit) in rows.items()
    }


def comparison_table(certificate: Certificate, holdout: float | None = None) -> str:
    """The comparison as lines, each with what it gains on the paper's; and the plain hold-out bound of the prior."""
    bounds = compare_bounds(certificate)
    first = bounds["the paper's"]
    rows = [(name, f"<= {percent(value)}", f"{100 * (value / first - 1):+.1f} %") for name, value in bounds.items()]
    if holdout is not None:
        rows.append(("plain hold-out", f"<= {percent(holdout)}", "the prior alone, no posterior"))
    return table(rows)
