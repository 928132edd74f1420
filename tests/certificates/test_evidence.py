"""Every bound and predictor in 50 digits, from the counts alone: the numbers are never below, and close."""

from __future__ import annotations

import dataclasses
import math

import mpmath
import pytest
from fifty_digits import binomial_limit, inverse
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf

from pacbayes.bounds import clopper_pearson_upper
from pacbayes.certificates.evidence import BEST, BEST_SINGLE, BOUNDS, FORMULAS, SINGLE_BOUNDS, Evidence
from pacbayes.errors import InvalidInput

BASE = Evidence(
    errors=57, visits=2000, draws=2000, kl=12.75, m=719, delta=0.025, mc_delta=0.01, limit="one-sided",
    sampling="independent", bound="best", catoni=[0.2, 0.4, 0.8], profile_kl=9.5,
)  # fmt: skip
SINGLE = dataclasses.replace(
    BASE, errors=20, visits=719, draws=1, mc_delta=0.0, limit="none", sampling="once", predictor="single",
    log_ratio=11.0, profile_log_ratio=14.0, draw=1,
)  # fmt: skip
VOTE = dataclasses.replace(BASE, predictor="majority", voters=3, pair_errors=21, vote_errors=40)
EXACT = dataclasses.replace(
    BASE, errors=2**45, visits=719, draws=0, unit=2**40, mc_delta=0.0, limit="none", sampling="exact"
)


def xi(m: int) -> mpf:
    return mpmath.exp(mpmath.loggamma(m + 1) + m - m * mpmath.log(m)) * mpmath.gammainc(m + 1, m, regularized=True)


def binomial(errors: int, m: int, ratio: mpf, delta: mpf) -> mpf:
    """Clopper and Pearson's limit at the first level that reaches the ratio, by the sum of the chances themselves."""
    levels, most, level = ((mpf(1) / 20, mpf(8) / 10), (1, mpf(2) / 10)), 0, None
    for nats, share in levels:
        most += mpmath.exp(nats)
        if level is None and mpmath.exp(ratio) <= most:
            level = share * delta * mpmath.exp(-nats)
    return mpf(1) if level is None else max(binomial_limit(errors, m, level), min(mpf(1), mpf(errors + 1) / m))


def formula(name: str, risk: mpf, kl: mpf, profile: mpf, delta: mpf, e: Evidence) -> mpf:
    constant, _, with_profile = name.partition("+")
    kl = profile if with_profile else kl
    if constant == "catoni":
        pen = max(0, kl + mpmath.log(len(e.catoni) / delta)) / e.m
        return min(1, min(mpmath.expm1(-mpf(c) * risk - pen) / mpmath.expm1(-mpf(c)) for c in e.catoni))
    if constant == "binomial":
        return binomial(e.errors, e.m, kl, delta)
    size = xi(e.m) if constant == "exact" else 2 * mpmath.sqrt(e.m)
    return inverse(risk, max(mpf(0), (kl + mpmath.log(size / delta)) / e.m))


def true_parts(e: Evidence) -> dict[str, mpf]:
    """From the definitions, with the one-sided limit or none."""
    delta = mpf(e.delta) / e.priors * ({1: mpf(9) / 10, 2: mpf(1) / 20}[e.draw] if e.predictor == "single" else 1)
    rules = {"": (e.errors, 1, 1, mpf(1))}
    if e.predictor == "majority":
        third = mpf(1) / 3
        counts = {"twice": (e.errors, 2, 1), "pairs": (e.pair_errors, 4, 2), "vote": (e.vote_errors, 1, e.voters)}
        rules = {name: (*numbers, third) for name, numbers in counts.items()}
    kl, profile = (e.log_ratio, e.profile_log_ratio) if e.predictor == "single" else (e.kl, e.profile_kl)
    found = {}
    for rule, (count, factor, copies, share) in rules.items():
        risk = mpf(count) / (e.visits * e.unit)
        if e.limit != "none":
            risk = inverse(risk, mpmath.log(1 / (mpf(e.mc_delta) * share)) / e.draws)
        weights = {"catoni": mpf(9) / 10, "exact": mpf(1) / 20, "exact+profile": mpf(1) / 20}
        if e.predictor == "single":
            weights |= {"binomial": mpf(5) / 10, "catoni": mpf(4) / 10}
        for name in (SINGLE_BOUNDS if e.predictor == "single" else BOUNDS)[e.bound]:
            weight = weights[name] if e.bound == "best" else mpf(1)
            value = formula(name, risk, copies * mpf(kl), copies * mpf(profile), delta * share * weight, e)
            found[f"{rule} {name}".strip()] = min(mpf(1), factor * value)
    return found


def assert_right(e: Evidence) -> None:
    found = e.derived()
    with mpmath.workdps(50):
        true = true_parts(e)
        assert found["parts"].keys() == true.keys()
        for name, value in true.items():
            # The shares of delta are floats, good to 1e-16: the logarithm of 0.9 delta may be off by that.
            assert mpf(found["parts"][name]) >= value * (1 - mpf(10) ** -15), name
            assert mpf(found["parts"][name]) <= value * (1 + mpf(10) ** -10), name
    assert found["risk_bound"] == min(found["parts"].values()) == found["parts"][found["part"]]
    assert found["confidence"] == 1 - (e.delta + e.mc_delta)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("case", ["randomised", "majority", "exact", "seven priors"])
def test_every_bound_of_every_predictor(bound, case):
    seven = dataclasses.replace(BASE, priors=7)
    base = {"randomised": BASE, "majority": VOTE, "exact": EXACT, "seven priors": seven}[case]
    assert_right(dataclasses.replace(base, bound=bound))


@pytest.mark.parametrize("bound", SINGLE_BOUNDS)
@pytest.mark.parametrize("draw", [1, 2])
@pytest.mark.parametrize("ratio", [-3.0, 0.0, 0.07, 1.2, 11.0, 40.0])
def test_every_bound_of_a_single_network(bound, draw, ratio):
    for errors in (0, 20, 719):
        assert_right(dataclasses.replace(SINGLE, bound=bound, draw=draw, log_ratio=ratio, errors=errors))


@settings(max_examples=40, deadline=None)
@given(
    errors=st.integers(0, 500), kl=st.floats(0, 3000), profile=st.floats(0, 3000), m=st.integers(8, 60_000),
    delta=st.floats(1e-4, 0.5), bound=st.sampled_from(list(BOUNDS)),
)  # fmt: skip
def test_any_counts(errors, kl, profile, m, delta, bound):
    assert_right(
        dataclasses.replace(
            BASE, errors=errors, visits=500, draws=500, kl=kl, profile_kl=profile, m=m, delta=delta, bound=bound
        )
    )


def test_a_log_ratio_below_zero_never_lowers_the_empirical_risk():
    found = dataclasses.replace(SINGLE, log_ratio=-500.0, bound="exact").derived()
    assert found["penalty"] == 0 and found["risk_bound"] >= 20 / 719


def test_the_shares_are_all_of_delta():
    for shares in (BEST, BEST_SINGLE):
        assert math.fsum(shares.values()) == pytest.approx(1, abs=1e-15)
    assert set(BEST) <= set(FORMULAS) and set(BEST_SINGLE) <= {*FORMULAS, "binomial"}


def test_a_network_drawn_from_the_prior_itself_has_the_hold_out_bound():
    """But for its share of delta."""
    e = dataclasses.replace(SINGLE, bound="binomial", log_ratio=0.0)
    level = 0.9 * 0.025 * 0.8 * math.exp(-0.05)
    assert e.derived()["risk_bound"] == pytest.approx(clopper_pearson_upper(20, 719, level), rel=1e-11)


def test_best_is_never_far_above_any_of_its_parts_alone():
    for kl in (0.1, 3.0, 30.0, 3000.0):
        e = dataclasses.replace(BASE, kl=kl, profile_kl=0.8 * kl + 30, m=30_000)
        alone = min(dataclasses.replace(e, bound=name).derived()["risk_bound"] for name in BEST)
        assert alone <= e.derived()["risk_bound"] <= 1.02 * alone


@pytest.mark.parametrize(
    ("base", "change", "words"),
    [
        (BASE, {"bound": "McAll"}, "bound of the randomised predictor 'McAll'"),
        (BASE, {"bound": "binomial"}, "bound of the randomised predictor 'binomial'"),
        (VOTE, {"bound": "binomial"}, "bound of the majority predictor 'binomial'"),
        (BASE, {"predictor": "mean"}, "predictor 'mean'"),
        (BASE, {"catoni": []}, "Catoni"),
        (BASE, {"catoni": [0.0]}, "Catoni"),
        (BASE, {"profile_kl": None}, "does not hold"),
        (BASE, {"profile_kl": -1.0}, "profile KL"),
        (BASE, {"profile_kl": math.nan}, "finite"),
        (BASE, {"limit": "none"}, "limit 'none'"),
        (BASE, {"limit": "none", "mc_delta": 0.0}, "limit 'none'"),
        (BASE, {"unit": 0}, "in parts of 1/0"),
        (BASE, {"priors": 0}, "number of priors"),
        (BASE, {"priors": 2**60}, "number of priors"),
        (BASE, {"unit": 2**20, "limit": "clopper-pearson"}, "Clopper-Pearson"),
        (BASE, {"predictor": "single"}, "not sampled"),
        (SINGLE, {"draw": 0}, "draws are counted"),
        (SINGLE, {"draws": 2}, "719 visits"),
        (SINGLE, {"mc_delta": 0.01}, "mc_delta is 0"),
        (SINGLE, {"limit": "one-sided", "mc_delta": 0.01}, "limit"),
        (SINGLE, {"log_ratio": None}, "does not hold"),
        (SINGLE, {"log_ratio": math.inf}, "finite"),
        (SINGLE, {"predictor": "randomised"}, "not sampled"),
        (VOTE, {"voters": 0}, "voters"),
        (VOTE, {"pair_errors": 2001}, "2001 errors"),
        (VOTE, {"vote_errors": -1}, "-1 errors"),
        (VOTE, {"sampling": "shared", "visits": 2000 * 719}, "independent"),
        (EXACT, {"visits": 718}, "718 visits"),
        (EXACT, {"draws": 5}, "5 exact draws"),
    ],
)
def test_what_makes_no_certificate(base, change, words):
    with pytest.raises(InvalidInput, match=words):
        dataclasses.replace(base, **change).derived()


@pytest.mark.parametrize(
    ("base", "change", "message"),
    [
        (EXACT, {"unit": 2**60}, "not counted in parts"),
        (SINGLE, {"unit": 2**40}, "not counted in parts"),
        (SINGLE, {"unit": 2**20}, "a loss of one's own"),
        (BASE, {"unit": 7}, "not counted in parts"),
        (BASE, {"voters": 10**9}, "has no votes"),
        (BASE, {"vote_errors": 1}, "has no votes"),
        (BASE, {"draw": 1}, "not one drawn network"),
        (BASE, {"log_ratio": 0.0}, "not one drawn network"),
        (BASE, {"delta": 5e-324, "priors": 2**53}, "delta"),
    ],
)
def test_fields_of_other_predictors_are_refused(base, change, message):
    base.derived()
    with pytest.raises(InvalidInput, match=message):
        dataclasses.replace(base, **change).derived()
