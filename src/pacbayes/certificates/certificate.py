"""The certificate: a frozen record of the bound and of every number needed to recompute it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from pacbayes.bounds.single import draw_share
from pacbayes.certificates.evidence import LOSS_UNIT, Evidence
from pacbayes.certificates.records import record_of, same
from pacbayes.certificates.wording import confidence_percent, percent, rounded_down, rounded_up, table
from pacbayes.checks import check_kind
from pacbayes.errors import InvalidInput, RunError
from pacbayes.files import read_plain_file, write_atomically
from pacbayes.seeds import check_seed

_LARGEST_FILE = 2**20


@dataclass(frozen=True)
class Certificate:
    """With probability at least ``confidence``, the true risk is at most ``risk_bound``.

    For the paper's bound ``risk_bound = kl_inverse(empirical_risk_bound, penalty)``, section 3.5, where

    - ``penalty = (kl + log(2 sqrt(m)/delta))/m``, with m the number of examples of the bound data;
    - ``empirical_risk_bound`` is the ``limit`` for ``empirical_risk = errors/visits`` at mc_delta, from ``draws``
      independent terms;
    - ``confidence = 1 - delta - mc_delta``.

    For other bounds and predictors see :mod:`pacbayes.certificates.evidence`; these four numbers are then those of
    the ``part`` that is the least.
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
    """The formula of ``risk_bound``, or "best": one of ``BOUNDS``."""
    limit: str
    """The Monte-Carlo limit: one of ``LIMITS``."""
    sampling: str
    """"independent": each visit of an example has its own draw; "shared": each draw passes over all the data;
    "once": the one network of the certificate does; "exact": no draws, the risk is computed."""
    errors: int
    visits: int
    prior_fingerprint: str
    posterior_fingerprint: str
    bound_data_fingerprint: str
    seed: int
    versions: dict[str, str]
    time: str
    """When it was issued, UTC."""
    predictor: str = "randomised"
    """What errs no more often than this: "randomised" (a fresh draw for each prediction), "single" (the network whose
    weights have ``single_fingerprint``) or "majority" (the vote of ``voters`` fresh draws for each prediction)."""
    loss: str = "0-1"
    """The loss whose mean is the risk: the error, or a function of another name with values in [0, 1]."""
    unit: int = 1
    """``errors`` counts in this part of an error; above 1 where losses are no whole numbers."""
    part: str = ""
    """The formula that gave ``risk_bound``, the least of ``parts``."""
    parts: dict[str, float] = field(default_factory=dict)
    """Each formula evaluated, at its share of delta, and its bound."""
    catoni: list[float] = field(default_factory=list)
    """The values of C fixed with the prior."""
    profile_kl: float | None = None
    """The KL with the prior's scale chosen for each tensor, its union bound included."""
    log_ratio: float | None = None
    """log dQ/dP at the single network's weights, and the same for the prior of the best scales."""
    profile_log_ratio: float | None = None
    single_fingerprint: str = ""
    """SHA-256 of the safetensors file with the single network's weights."""
    draw: int = 0
    """How many networks were drawn for certificates of this kind, this one included: all are charged for."""
    voters: int = 1
    pair_errors: int = 0
    """Visits where two of the voters, picked at random with replacement, both err."""
    vote_errors: int = 0
    """Visits where the vote errs."""
    priors: int = 1
    """How many priors (splits, scales, seeds) this one was to be chosen among: each has an equal share of delta."""

    def counted(self) -> float:
        """The errors behind ``empirical_risk``: of what the formula that gave the bound counts."""
        counts = {"pairs": self.pair_errors, "vote": self.vote_errors}
        return counts.get(self.part.partition(" ")[0], self.errors) / self.unit

    def __str__(self) -> str:
        shown = f"{self.counted():.0f}" if self.unit == 1 else f"{self.counted():.1f}"
        what = "errors" if self.loss == "0-1" else "in all"
        draws = f"{self.draws} {self.sampling} draws"
        how = {"exact": "computed, ", "once": "one network, "}.get(self.sampling, "")
        rows = [
            (
                "certified risk",
                f"<= {percent(self.risk_bound)}",
                f"{rounded_up(self.risk_bound, 6)}, confidence {rounded_down(self.confidence):g}"
                + "; it says nothing" * _says_nothing(self.risk_bound),
            ),
            ("empirical risk", f"{100 * self.empirical_risk:.2f} %", f"{how}{shown} {what} in {self.visits} visits"),
            ("KL(Q‖P)", f"{self.kl:.4f}", f"nats{self._about_kl()}"),
            (
                "penalty",
                f"{self.penalty:.6f}",
                f"m = {self.m}, delta = {self.delta:g}, mc_delta = {self.mc_delta:g}",
            ),
        ]
        if self.limit != "none":
            rows.insert(2, ("  its upper limit", percent(self.empirical_risk_bound), f"{self.limit}, {draws}"))
        if self.log_ratio is not None:
            rows.insert(3, ("log dQ/dP", f"{self.log_ratio:.4f}", f"nats, of network {self.single_fingerprint[:16]}"))
        if self.draw:
            share = draw_share(self.draw)
            rows.append(("network", f"number {self.draw}", f"drawn for a certificate: it has {share:.2g} of delta"))
        if self.priors > 1:
            rows.append(("chosen among", f"{self.priors:,}", "priors: each is charged delta divided by their number"))
        if len(self.parts) > 1:
            others = ", ".join(
                f"{name} {'says nothing' if _says_nothing(v) else percent(v)}"
                for name, v in self.parts.items()
                if name != self.part
            )
            rows.append(("bound", self.part, f"the least of {len(self.parts)}, a choice that is paid for; {others}"))
        elif self.bound != "invKL":
            rows.append(("bound", self.part, "in place of the paper's invKL"))
        return f"{self.sentence()}\n\n{table(rows)}"

    def _about_kl(self) -> str:
        if self.kl > self.m and self.risk_bound == 1:
            return f": too far from the prior for {self.m} examples; a prior that was trained needs freeze_prior()"
        return "" if self.kl else ": the posterior is the prior"

    def sentence(self) -> str:
        """The promise, in one sentence; numbers are rounded to the safe side."""
        sampled = " and of the Monte-Carlo samples" if self.mc_delta else ""
        over = "the data" + (" and of the network" if self.predictor == "single" else sampled)
        who = {
            "single": "this network",
            "majority": f"the majority vote of {self.voters} networks drawn for each prediction",
        }.get(self.predictor, "this randomised classifier")
        what = f"errs on at most {percent(self.risk_bound)} of new examples"
        if self.loss != "0-1":
            most = rounded_up(self.risk_bound, 4)
            what = f"has a mean {self.loss}, a loss from 0 to 1, of at most {most} on new examples"
        return f"With probability at least {confidence_percent(self.confidence)} over the draw of {over}, {who} {what}."

    def evidence(self) -> Evidence:
        """The counts and constants alone."""
        return Evidence(**{f.name: getattr(self, f.name) for f in fields(Evidence)})

    def check(self) -> list[str]:
        """Recompute every number from the others; what does not hold, in words. Empty if all does."""
        try:
            check_seed(self.seed)
            expected = self.evidence().derived()
        except InvalidInput as error:
            return [str(error)]
        except OverflowError:
            return ["a count is too large to be one"]
        faults = []
        for name, value in expected.items():
            recorded = getattr(self, name)
            if not same(recorded, value):
                faults.append(f"{name} is {recorded!r}, and its parts give {value!r}")
        if (self.loss == "0-1") == (self.unit == LOSS_UNIT):
            faults.append(f"the loss {self.loss!r} is not counted in parts of 1/{self.unit}")
        if (self.predictor == "single") != bool(self.single_fingerprint):
            faults.append("a single network's weights are named where there is one, and only there")
        return faults

    def to_json(self) -> bytes:
        return (json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n").encode()

    def save(self, path: str | Path) -> None:
        write_atomically(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Certificate:
        """Read a certificate; its shape is checked here, its arithmetic by :meth:`check`."""
        path = Path(path)
        if not path.is_file():
            raise RunError(f"there is no certificate at {path}")
        return cls.from_json(read_plain_file(path, _LARGEST_FILE), str(path))

    @classmethod
    def from_json(cls, content: bytes, source: str) -> Certificate:
        return record_of(cls, content, f"{source} is not a certificate")


def check_certificate(certificate: object) -> None:
    check_kind("the certificate", certificate, Certificate, "one that certify() gave, or Certificate.load(path)")


def _says_nothing(bound: float) -> bool:
    """Of an error that is at most 100 %, as it is shown."""
    return bound > 0.9999
