"""Choosing among priors by their certificates: paid for, they fail as rarely as they say; otherwise they do not."""

from __future__ import annotations

import numpy as np
from scipy import stats

from pacbayes.certificates.evidence import EXACT_UNIT, Evidence

PRIORS, M, DELTA, WORLDS, RISK = 300, 40, 0.05, 2000, 0.5
FALSE_ALARM = 1e-8


def failures(charged: int) -> int:
    """In how many worlds the least certificate of all priors is below the true risk.

    The labels are coins. Each prior is one classifier that guesses in its own way, and the posterior is the prior: then
    the errors of the best are the least of so many binomial counts, and its true risk is one half whatever it is.
    """
    least = np.random.default_rng(0).binomial(M, RISK, (WORLDS, PRIORS)).min(1)
    bounds = {
        int(errors): Evidence(
            errors=int(errors) * EXACT_UNIT, visits=M, draws=0, kl=0.0, m=M, delta=DELTA, mc_delta=0.0, limit="none",
            sampling="exact", bound="exact", priors=charged, unit=EXACT_UNIT,
        ).derived()["risk_bound"]
        for errors in set(least)
    }  # fmt: skip
    return sum(bounds[int(errors)] < RISK for errors in least)


def test_the_best_of_many_priors_holds_if_all_are_charged():
    assert stats.binomtest(failures(PRIORS), WORLDS, DELTA, alternative="greater").pvalue > FALSE_ALARM


def test_a_choice_that_is_not_paid_for_is_found():
    assert stats.binomtest(failures(1), WORLDS, DELTA, alternative="greater").pvalue < FALSE_ALARM
