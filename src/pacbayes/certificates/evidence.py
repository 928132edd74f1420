"""The arithmetic of certificates: from counts and constants to the certified risk, rounded up at each step.

A *formula* is one PAC-Bayes bound for a risk and a divergence:

- ``invKL``: the paper's, ``kl_inverse(risk, (KL + log(2 sqrt(m)/delta))/m)``;
- ``exact``: the same with ``xi(m)`` for ``2 sqrt(m)``;
- ``catoni``: Catoni's with each C of the prior, at delta shared equally among them, and the least taken;
- with ``+profile``: the profile KL in place of the KL;
- ``binomial``, for a single network alone: Clopper and Pearson's limit, at :func:`~pacbayes.bounds.binomial_level`.

A *bound* is one formula, or ``best``: the least of a fixed few, each at its share of delta.

Where the prior is one of ``priors`` that were to be tried, each has an equal share of delta: the bounds of all of them
hold at once, whichever is then certified. ``mc_delta`` is of this certificate's own draws, and is not shared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pacbayes.bounds.binary_kl import kl_inverse
from pacbayes.bounds.catoni import catoni, check_catoni
from pacbayes.bounds.confidence import chernoff_upper, clopper_pearson_upper
from pacbayes.bounds.deltas import check_delta, check_deltas, check_priors
from pacbayes.bounds.majority import Rule, vote_rules
from pacbayes.bounds.pac_bayes import penalty_of_ratio
from pacbayes.bounds.single import binomial_level, draw_share
from pacbayes.checks import check_one_of
from pacbayes.errors import InvalidInput

FORMULAS = ("invKL", "exact", "catoni", "invKL+profile", "exact+profile", "catoni+profile")
# Catoni's is the best of small divergences, where shares matter. Where the divergence is large they do not.
BEST = {"catoni": 0.9, "exact": 0.05, "exact+profile": 0.05}
BOUNDS: dict[str, dict[str, float]] = {name: {name: 1.0} for name in FORMULAS} | {"best": BEST}
"""Each bound's formulas and their shares of delta."""
BEST_SINGLE = {"binomial": 0.5, "catoni": 0.4, "exact": 0.05, "exact+profile": 0.05}
SINGLE_BOUNDS = BOUNDS | {"binomial": {"binomial": 1.0}, "best": BEST_SINGLE}
"""The same for a single network."""

LIMITS = {
    "two-sided": "kl_inverse(mean, log(2/mc_delta)/draws), the paper's",
    "one-sided": "kl_inverse(mean, log(1/mc_delta)/draws)",
    "clopper-pearson": "the exact binomial limit, for independent 0-1 visits",
    "none": "no Monte Carlo: the mean is Err_S itself, or above it",
}
SAMPLINGS = ("independent", "shared", "once", "exact")
PREDICTORS = ("randomised", "single", "majority")
LOSS_UNIT, EXACT_UNIT = 2**20, 2**40
"""A loss of one's own, and an exact risk, are counted in parts of 1/unit, each rounded up."""

# The quotient of two floats and a sum of a few may be rounded down by some ulps; this puts them back above.
_UP = 1 + 1e-15


def formulas_of(bound: str, predictor: str) -> dict[str, float]:
    """The formulas of a predictor's bound, with their shares of delta."""
    check_one_of("predictor", predictor, PREDICTORS)
    choices = SINGLE_BOUNDS if predictor == "single" else BOUNDS
    check_one_of(f"bound of the {predictor} predictor", bound, choices)
    return choices[bound]


@dataclass(frozen=True)
class Evidence:
    """Counts and constants: all that a certificate's numbers are derived from."""

    errors: int
    visits: int
    draws: int
    kl: float
    m: int
    delta: float
    mc_delta: float
    limit: str
    sampling: str
    bound: str = "invKL"
    predictor: str = "randomised"
    unit: int = 1
    catoni: Sequence[float] = ()
    profile_kl: float | None = None
    log_ratio: float | None = None
    profile_log_ratio: float | None = None
    draw: int = 0
    voters: int = 1
    pair_errors: int = 0
    vote_errors: int = 0
    priors: int = 1

    def derived(self) -> dict[str, Any]:
        """The final bound of section 3.5: all the record's derived numbers."""
        self._check()
        parts: dict[str, tuple[float, float, float, float]] = {}
        for name, (count, rule, share) in self._counts().items():
            mean, limit = count / (self.visits * self.unit), self._limit(count, share)
            delta = self.delta / self.priors * share * (draw_share(self.draw) if self.predictor == "single" else 1.0)
            for formula, weight in formulas_of(self.bound, self.predictor).items():
                value, pen = self._bound(formula, limit, rule.copies, delta * weight)
                label = " ".join(word for word in (name, formula) if word)
                parts[label] = (min(1.0, rule.factor * value), mean, limit, pen)
        part = min(parts, key=lambda label: parts[label][0])
        bound, mean, limit, pen = parts[part]
        return {
            "empirical_risk": mean,
            "empirical_risk_bound": limit,
            "penalty": pen,
            "risk_bound": bound,
            "confidence": 1 - (self.delta + self.mc_delta),
            "part": part,
            "parts": {label: numbers[0] for label, numbers in parts.items()},
        }

    def _counts(self) -> dict[str, tuple[int, Rule, float]]:
        """(count, rule, share of delta and mc_delta) of each risk that is estimated."""
        if self.predictor != "majority":
            return {"": (self.errors, Rule(1, 1), 1.0)}
        counts = {"twice": self.errors, "pairs": self.pair_errors, "vote": self.vote_errors}
        return {name: (counts[name], rule, 1 / 3) for name, rule in vote_rules(self.voters).items()}

    def _limit(self, count: int, share: float) -> float:
        """The upper limit of the empirical risk."""
        if self.limit == "clopper-pearson":
            return clopper_pearson_upper(count, self.visits, self.mc_delta * share)
        # The quotient may be rounded down; for n terms the next float up is enough.
        mean = min(1.0, math.nextafter(count / (self.visits * self.unit), 2)) if count else 0.0
        if self.limit == "none":
            return mean
        return chernoff_upper(mean, self.draws, self.mc_delta * share, two_sided=self.limit == "two-sided")

    def _bound(self, formula: str, risk: float, copies: int, delta: float) -> tuple[float, float]:
        """(bound, penalty) of one formula; the divergence is that of this many independent draws."""
        check_delta(delta)
        constant, _, profile = formula.partition("+")
        divergence = self._divergence(profile=bool(profile)) * copies
        if constant == "catoni":
            values = check_catoni(self.catoni)
            pen = max(0.0, divergence + math.log(len(values)) - math.log(delta)) / self.m * _UP
            return min(catoni(risk, pen, c) for c in values), pen
        if constant == "binomial":
            if not (level := binomial_level(divergence, delta)):
                return 1.0, (divergence - math.log(delta)) / self.m * _UP
            return clopper_pearson_upper(self.errors, self.m, level), -math.log(level) / self.m * _UP
        pen = max(0.0, penalty_of_ratio(divergence, self.m, delta, exact=constant == "exact")) * _UP
        return kl_inverse(risk, pen), pen

    def _divergence(self, *, profile: bool) -> float:
        if self.predictor == "single":
            value = self.profile_log_ratio if profile else self.log_ratio
        else:
            value = self.profile_kl if profile else self.kl
        if value is None:
            raise InvalidInput(f"the bound {self.bound!r} needs a divergence that the record does not hold")
        return value

    def _check(self) -> None:
        check_one_of("limit", self.limit, LIMITS)
        check_one_of("sampling", self.sampling, SAMPLINGS)
        formulas_of(self.bound, self.predictor)
        check_delta(self.delta)
        check_priors(self.priors)
        if self.m < 1:
            raise InvalidInput(f"there must be examples, and m = {self.m}")
        if self.unit not in ((EXACT_UNIT,) if self.sampling == "exact" else (1, LOSS_UNIT)):
            raise InvalidInput(f"{self.sampling} visits are not counted in parts of 1/{self.unit}")
        visits = {"independent": self.draws, "shared": self.draws * self.m, "once": self.m, "exact": self.m}
        if self.visits != visits[self.sampling] or self.draws != {"once": 1, "exact": 0}.get(self.sampling, self.draws):
            raise InvalidInput(
                f"{self.visits} visits do not make {self.draws} {self.sampling} draws on {self.m} examples"
            )
        for count in (self.errors, self.pair_errors, self.vote_errors):
            if not 0 <= count <= self.visits * self.unit or self.visits < 1:
                raise InvalidInput(f"{count} errors in {self.visits} visits cannot be")
        if not 0 <= self.kl < math.inf:
            raise InvalidInput(f"the KL must be finite and not negative, and is {self.kl}")
        for divergence in (self.profile_kl, self.log_ratio, self.profile_log_ratio):
            if divergence is not None and not math.isfinite(divergence):
                raise InvalidInput(f"a divergence must be finite, and one is {divergence}")
        if self.profile_kl is not None and self.profile_kl < 0:
            raise InvalidInput(f"the profile KL must not be negative, and is {self.profile_kl}")
        self._check_monte_carlo()

    def _check_monte_carlo(self) -> None:
        if (self.predictor == "single") != (self.sampling == "once"):
            raise InvalidInput(f"the {self.predictor} predictor is not sampled {self.sampling!r}")
        if self.predictor == "majority" and (self.sampling != "independent" or self.unit != 1):
            raise InvalidInput("the majority vote needs independent 0-1 visits")
        if self.predictor != "majority" and (self.voters, self.pair_errors, self.vote_errors) != (1, 0, 0):
            raise InvalidInput(f"the {self.predictor} predictor has no votes")
        if self.predictor != "single" and (self.draw, self.log_ratio, self.profile_log_ratio) != (0, None, None):
            raise InvalidInput(f"the {self.predictor} predictor is not one drawn network")
        if self.unit == LOSS_UNIT and (self.predictor, self.sampling) != ("randomised", "independent"):
            raise InvalidInput("a loss of one's own is for the randomised predictor, with independent draws")
        if (self.limit == "none") != (self.sampling in ("once", "exact")):
            raise InvalidInput(f"the limit {self.limit!r} is not for sampling {self.sampling!r}")
        if self.limit == "none":
            if self.mc_delta != 0:
                raise InvalidInput(f"without Monte Carlo mc_delta is 0, and it is {self.mc_delta}")
        else:
            check_deltas(self.delta, self.mc_delta)
        if self.limit == "clopper-pearson" and (self.sampling != "independent" or self.unit != 1):
            raise InvalidInput("the Clopper-Pearson limit is for independent 0-1 visits, not for shared draws")
