"""Confidence limits: their definitions to high precision, and their coverage by exact enumeration."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from high_precision import exact_kl
from scipy import stats

from pacbayes.bounds import chernoff_upper, clopper_pearson_upper
from pacbayes.errors import InvalidInput

DELTAS = [1e-6, 0.01, 0.05, 0.5]


@pytest.mark.parametrize("mean", [0.0, 1e-7, 0.0123, 0.5, 0.97])
@pytest.mark.parametrize("n", [1, 50, 150_000, 10**9])
@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("two_sided", [False, True])
def test_chernoff_solves_its_equation_from_above(mean, n, delta, two_sided):
    with mpmath.workdps(60):
        level = mpmath.log((2 if two_sided else 1) / mpmath.mpf(delta)) / n
        upper = chernoff_upper(mean, n, delta, two_sided=two_sided)
        assert exact_kl(mean, upper) >= level
        lower = mpmath.mpf(upper) * (1 - mpmath.mpf(10) ** -11)
        assert lower <= mean or exact_kl(mean, lower) <= level


def test_chernoff_ends_and_default():
    assert chernoff_upper(1.0, 10, 0.05) == 1.0
    assert chernoff_upper(0.0, 100, 0.05) == pytest.approx(1 - 0.05 ** (1 / 100), rel=1e-12)
    assert chernoff_upper(0.1, 100, 0.05) == chernoff_upper(0.1, 100, 0.05, two_sided=False)
    assert chernoff_upper(0.1, 100, 0.05) < chernoff_upper(0.1, 100, 0.05, two_sided=True)
    assert chernoff_upper(0.1, 100, 0.05, two_sided=True) == pytest.approx(chernoff_upper(0.1, 100, 0.025), rel=1e-13)


def binomial_tail(errors: int, n: int, p: float | mpmath.mpf) -> mpmath.mpf:
    """P(Bin(n, p) <= errors), term by term from the largest downwards."""
    p = mpmath.mpf(p)
    term = mpmath.binomial(n, errors) * p**errors * (1 - p) ** (n - errors)
    ratio, total = (1 - p) / p, mpmath.mpf(0)
    for k in range(errors, -1, -1):
        total += term
        if term < total * mpmath.mpf(10) ** -40:
            break
        term *= ratio * k / (n - k + 1)
    return total


CASES = [
    (0, 1),
    (0, 50),
    (1, 50),
    (17, 50),
    (49, 50),
    (3, 1000),
    (999, 1000),
    (500, 1000),
    (2345, 150_000),
    (0, 10**7),
    (12, 10**7),
    (100_000, 10**7),
    (9_999_999, 10**7),
]


@pytest.mark.parametrize(("errors", "n"), CASES)
@pytest.mark.parametrize("delta", [1e-6, 0.01, 0.2])
@mpmath.workdps(60)
def test_clopper_pearson_is_its_definition_from_above(errors, n, delta):
    upper = clopper_pearson_upper(errors, n, delta)
    assert (errors + 1) / n <= upper <= 1
    assert upper == 1 or binomial_tail(errors, n, upper) <= delta
    if upper > (errors + 1) / n:
        assert binomial_tail(errors, n, mpmath.mpf(upper) * (1 - mpmath.mpf(10) ** -9)) > delta


@pytest.mark.parametrize("n", [1, 7, 10**7])
@pytest.mark.parametrize("delta", DELTAS)
def test_clopper_pearson_at_the_ends(n, delta):
    assert clopper_pearson_upper(n, n, delta) == 1.0
    true = -math.expm1(math.log(delta) / n)
    none = clopper_pearson_upper(0, n, delta)
    assert none >= max(true * (1 - 1e-15), 1 / n)
    assert none == pytest.approx(max(true, 1 / n), rel=1e-9)


@pytest.mark.parametrize("delta", [0.9, 0.999])
def test_clopper_pearson_never_goes_below_where_it_holds_for_unequal_means(delta):
    for errors in range(50):
        assert clopper_pearson_upper(errors, 50, delta) >= (errors + 1) / 50


def test_limits_grow_with_errors_and_shrink_with_n_and_delta():
    for n in (20, 500):
        limits = [clopper_pearson_upper(k, n, 0.05) for k in range(n + 1)]
        assert limits == sorted(limits)
    assert clopper_pearson_upper(5, 50, 0.05) > clopper_pearson_upper(50, 500, 0.05) > 0.1
    assert clopper_pearson_upper(5, 50, 0.01) > clopper_pearson_upper(5, 50, 0.05)
    assert chernoff_upper(0.1, 50, 0.05) > clopper_pearson_upper(5, 50, 0.05)


LIMITS = {
    "chernoff": lambda k, n, delta: chernoff_upper(k / n, n, delta),
    "two-sided chernoff": lambda k, n, delta: chernoff_upper(k / n, n, delta, two_sided=True),
    "clopper-pearson": clopper_pearson_upper,
}
N = 50


def missed(limits: np.ndarray, p: float, pmf: np.ndarray) -> float:
    """The probability that the limit is below the true mean p."""
    return float(pmf[limits < p].sum())


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("delta", [0.01, 0.05, 0.3])
def test_coverage_is_exact_for_equal_means(name, delta):
    limits = np.array([LIMITS[name](k, N, delta) for k in range(N + 1)])
    # just above each limit the coverage is at its worst
    means = np.concatenate([np.linspace(0, 1, 501), np.minimum(limits * (1 + 1e-9), 1)])
    worst = max(missed(limits, p, stats.binom.pmf(np.arange(N + 1), N, p)) for p in means)
    assert worst <= delta * (1 + 1e-6)
    # and the limit is not vacuous: somewhere it is missed, nearly as often as allowed where it is exact
    assert worst >= (0.9 * delta if name == "clopper-pearson" else 0.1 * delta)


def test_coverage_breaks_for_a_limit_that_is_a_little_too_low():
    """The enumeration above sees a limit that is 2 % too low."""
    limits = np.array([clopper_pearson_upper(k, N, 0.05) * 0.98 for k in range(N + 1)])
    means = np.minimum(limits * (1 + 1e-9), 1)
    assert max(missed(limits, p, stats.binom.pmf(np.arange(N + 1), N, p)) for p in means) > 0.05


def sum_of_unequal(means: np.ndarray) -> np.ndarray:
    """The law of a sum of independent 0-1 variables, by convolution."""
    pmf = np.ones(1)
    for p in means:
        pmf = np.convolve(pmf, [1 - p, p])
    return pmf


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("delta", [0.01, 0.05, 0.3, 0.7])
def test_coverage_for_unequal_means(name, delta):
    rng = np.random.default_rng(5)
    limits = np.array([LIMITS[name](k, N, delta) for k in range(N + 1)])
    profiles = [rng.beta(a, b, N) for a, b in ((0.1, 0.3), (0.1, 5), (1, 1), (0.3, 0.1)) for _ in range(10)]
    # all or nothing, with one or two in between: as far from equal as can be
    for ones in range(0, N - 1, 4):
        profiles += [np.r_[np.ones(ones), [p], np.zeros(N - ones - 1)] for p in (0.02, 0.3, 0.5, 0.99)]
        profiles += [np.r_[np.ones(ones), [p, p], np.zeros(N - ones - 2)] for p in (0.1, 0.6)]
    # means that put the average just above a limit
    for k in range(0, N, 3):
        target = min(limits[k] * (1 + 1e-9), 1.0)
        tilt = min(target, 1 - target)
        profiles.append(target + tilt * np.where(np.arange(N) % 2, 1, -1))
        profiles.append(target + 0.5 * tilt * np.linspace(-1, 1, N))
    for means in profiles:
        assert missed(limits, means.mean(), sum_of_unequal(means)) <= delta * (1 + 1e-6)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan])
def test_limits_refuse_a_delta_that_is_no_probability(delta):
    with pytest.raises(InvalidInput, match="delta"):
        chernoff_upper(0.1, 10, delta)
    with pytest.raises(InvalidInput, match="delta"):
        clopper_pearson_upper(1, 10, delta)


@pytest.mark.parametrize(("mean", "n"), [(-0.1, 10), (1.1, 10), (math.nan, 10), (0.1, 0)])
def test_chernoff_refuses_what_is_no_mean(mean, n):
    with pytest.raises(InvalidInput):
        chernoff_upper(mean, n, 0.05)


@pytest.mark.parametrize(("errors", "n"), [(-1, 10), (11, 10), (0, 0)])
def test_clopper_pearson_refuses_counts_that_cannot_be(errors, n):
    with pytest.raises(InvalidInput):
        clopper_pearson_upper(errors, n, 0.05)


@pytest.mark.parametrize(
    ("errors", "n", "delta"),
    [
        (0, 412_015_278, 1.633e-8), (1, 118_751_234, 0.01), (1, 18_169_412, 4.87e-10), (0, 10**10, 0.5),
        (100, 20_000, 3e-16), (1, 453_844, 2e-15), (5, 10**12, 0.01), (0, 8, 1e-300),
    ],
)  # fmt: skip
def test_clopper_pearson_is_not_below_where_digits_are_few(errors, n, delta):
    """Many visits and small probabilities: one minus either has lost what matters."""
    p = clopper_pearson_upper(errors, n, delta)

    def tail(p: float) -> mpmath.mpf:
        with mpmath.workdps(60):
            q = mpmath.mpf(p)
            return mpmath.fsum(mpmath.binomial(n, j) * q**j * (1 - q) ** (n - j) for j in range(errors + 1))

    assert tail(p) <= delta
    assert p in (1, (errors + 1) / n) or tail(p * (1 - 1e-6)) > delta
