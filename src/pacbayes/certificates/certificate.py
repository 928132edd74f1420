"""The certificate: a frozen record of the bound and of every number needed to recompute it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Any

from pacbayes.bounds.binary_kl import kl_inverse
from pacbayes.bounds.confidence import chernoff_upper, clopper_pearson_upper
from pacbayes.bounds.pac_bayes import penalty
from pacbayes.errors import InvalidInput, RunError
from pacbayes.files import write_atomically

LIMITS = {
    "two-sided": "kl_inverse(mean, log(2/mc_delta)/draws), the paper's",
    "one-sided": "kl_inverse(mean, log(1/mc_delta)/draws)",
    "clopper-pearson": "the exact binomial limit, for independent visits",
}
DRAWS = ("independent", "shared")

_LARGEST_FILE = 2**20
# Another machine's logarithm may differ in the last digit; nothing more is forgiven.
_TOLERANCE = 1e-12


@dataclass(frozen=True)
class Certificate:
    """With probability at least ``confidence``, the true risk is at most ``risk_bound``.

    ``risk_bound = kl_inverse(empirical_risk_bound, penalty)``, equation (final_bound) of the paper, where

    - ``penalty = (kl + log(2 sqrt(m)/delta))/m``, with m the number of examples of the bound data;
    - ``empirical_risk_bound`` is the ``limit`` for ``empirical_risk = errors/visits`` at mc_delta, from ``draws``
      independent terms;
    - ``confidence = 1 - delta - mc_delta``.
    """

    risk_bound: float
    empirical_risk: float
    empirical_risk_bound: float
    kl: float
    penalty: float
    m: int
    delta: float
    mc_delta: float
    draws: int
    confidence: float
    objective: str
    """What the posterior was trained with; the bound holds whatever it was."""
    bound: str
    """The formula of ``risk_bound``: "invKL"."""
    limit: str
    """The Monte-Carlo limit: one of ``LIMITS``."""
    sampling: str
    """"independent": each visit of an example has its own draw; "shared": each draw passes over all the data."""
    errors: int
    visits: int
    prior_fingerprint: str
    posterior_fingerprint: str
    bound_data_fingerprint: str
    seed: int
    versions: dict[str, str]
    time: str
    """When it was issued, UTC."""

    def __str__(self) -> str:
        rows = [
            (
                "certified risk",
                f"<= {percent(self.risk_bound)}",
                f"{_up(self.risk_bound):.6f}, confidence {-_up(-self.confidence):g}",
            ),
            ("empirical risk", f"{100 * self.empirical_risk:.2f} %", f"{self.errors} errors in {self.visits} visits"),
            (
                "  its upper limit",
                percent(self.empirical_risk_bound),
                f"{self.limit}, {self.draws} {self.sampling} draws",
            ),
            ("KL(Q‖P)", f"{self.kl:.4f}", "nats"),
            (
                "penalty",
                f"{self.penalty:.6f}",
                f"m = {self.m}, delta = {self.delta:g}, mc_delta = {self.mc_delta:g}",
            ),
        ]
        return f"{self.sentence()}\n\n{table(rows)}"

    def sentence(self) -> str:
        """The promise, in one sentence; numbers are rounded to the safe side."""
        confidence = Decimal(math.floor(self.confidence * 1e4 + 1e-6)) / 100
        return (
            f"With probability at least {confidence.normalize():f} % over the draw of the data, this randomised "
            f"classifier errs on at most {percent(self.risk_bound)} of new examples."
        )

    def check(self) -> list[str]:
        """Recompute every number from the others; what does not hold, in words. Empty if all does."""
        try:
            expected = derived_numbers(
                errors=self.errors, visits=self.visits, draws=self.draws, kl=self.kl, m=self.m, delta=self.delta,
                mc_delta=self.mc_delta, limit=self.limit, sampling=self.sampling,
            )  # fmt: skip
        except InvalidInput as error:
            return [str(error)]
        except OverflowError:
            return ["a count is too large to be one"]
        faults = []
        for name, value in expected.items():
            recorded = getattr(self, name)
            if not math.isclose(recorded, value, rel_tol=_TOLERANCE, abs_tol=0):
                faults.append(f"{name} is {recorded!r}, and its parts give {value!r}")
        if self.bound != "invKL":
            faults.append(f"bound {self.bound!r} is not known")
        return faults

    def save(self, path: str | Path) -> None:
        write_atomically(Path(path), (json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n").encode())

    @classmethod
    def load(cls, path: str | Path) -> Certificate:
        """Read a certificate; its shape is checked here, its arithmetic by :meth:`check`."""
        path = Path(path)
        if not path.is_file():
            raise RunError(f"there is no certificate at {path}")
        if path.stat().st_size > _LARGEST_FILE:
            raise RunError(f"{path} is too large for a certificate")
        try:
            record = json.loads(path.read_text("utf-8"), parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise RunError(f"{path} is not a certificate: {error}") from None
        return cls.from_record(record, str(path))

    @classmethod
    def from_record(cls, record: Any, source: str = "the record") -> Certificate:
        if not isinstance(record, dict):
            raise RunError(f"{source} is not a certificate: a JSON object is expected")
        names = {f.name: f.type for f in fields(cls)}
        if odd := sorted(names.keys() ^ record.keys()):
            raise RunError(
                f"{source} is not a certificate: {odd[0]!r} is {'missing' if odd[0] in names else 'unknown'}"
            )
        for name, kind in names.items():
            value = record[name]
            if kind == "float" and type(value) is int and abs(value) < 2**53:
                record[name] = value = float(value)
            if kind == "dict[str, str]":
                fits = isinstance(value, dict) and all(isinstance(v, str) for v in value.values())
            else:
                fits = type(value).__name__ == kind
            if not fits:
                raise RunError(f"{source} is not a certificate: {name} must be of type {kind}")
        return cls(**record)


def derived_numbers(
    *,
    errors: int,
    visits: int,
    draws: int,
    kl: float,
    m: int,
    delta: float,
    mc_delta: float,
    limit: str,
    sampling: str,
) -> dict[str, Any]:
    """Equation (final_bound): all the record's derived numbers, from its counts and constants, rounded up."""
    if limit not in LIMITS:
        raise InvalidInput(f"unknown limit {limit!r}: choose one of {', '.join(LIMITS)}")
    if sampling not in DRAWS:
        raise InvalidInput(f"unknown sampling {sampling!r}: choose one of {', '.join(DRAWS)}")
    if visits != (draws if sampling == "independent" else draws * m):
        raise InvalidInput(f"{visits} visits do not make {draws} {sampling} draws on {m} examples")
    if not 0 <= errors <= visits or visits < 1:
        raise InvalidInput(f"{errors} errors in {visits} visits cannot be")
    if not 0 <= kl < math.inf:
        raise InvalidInput(f"the KL must be finite and not negative, and is {kl}")
    if delta + mc_delta >= 1:
        raise InvalidInput(f"delta + mc_delta must be below 1, and is {delta + mc_delta}")
    if limit == "clopper-pearson":
        if sampling != "independent":
            raise InvalidInput("the Clopper-Pearson limit is for independent 0-1 visits, not for shared draws")
        risk_bound = clopper_pearson_upper(errors, visits, mc_delta)
    else:
        # errors/visits may be rounded down; for n terms the next float up is enough.
        mean = math.nextafter(errors / visits, 1) if errors else 0.0
        risk_bound = chernoff_upper(mean, draws, mc_delta, two_sided=limit == "two-sided")
    pen = penalty(kl, m, delta) * (1 + 1e-15)
    return {
        "empirical_risk": errors / visits,
        "empirical_risk_bound": risk_bound,
        "penalty": pen,
        "risk_bound": kl_inverse(risk_bound, pen),
        "confidence": 1 - (delta + mc_delta),
    }


def _up(value: float) -> float:
    """Rounded up to six digits, but for what float64 itself adds."""
    return math.ceil(value * 1e6 - 1e-6) / 1e6


def table(rows: list[tuple[str, str, str]]) -> str:
    """Lines of a name, a value and a remark."""
    return "\n".join(f"  {name:<18} {value:>10}   {remark}" for name, value, remark in rows)


def percent(value: float) -> str:
    """A rate in percent with two digits, or four below one percent, never rounded down."""
    number = Decimal(value) * 100
    digits = 2 if number >= 1 else 4
    return f"{number.quantize(Decimal(1).scaleb(-digits), ROUND_CEILING)} %"


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number a certificate may hold")
