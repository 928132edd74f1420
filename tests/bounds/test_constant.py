"""The exact constant xi(m): against the sum it is defined by, in 40 digits, and never below it."""

from __future__ import annotations

import math
import time

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mpf

from pacbayes.bounds import penalty, xi
from pacbayes.errors import InvalidInput


def by_definition(m: int) -> mpf:
    total = mpf(2)  # k = 0 and k = m
    for k in range(1, m):
        q = mpf(k) / m
        total += mpmath.binomial(m, k) * q**k * (1 - q) ** (m - k)
    return total


def by_gamma(m: int) -> mpf:
    """Abel's identity in closed form: m! e^m m^-m P(Poisson(m) <= m)."""
    poisson = mpmath.gammainc(m + 1, m, regularized=True)
    return mpmath.exp(mpmath.loggamma(m + 1) + m - m * mpmath.log(m)) * poisson


@pytest.mark.parametrize("m", [1, 2, 3, 7, 8, 30, 81, 82, 100, 719, 1500])
def test_the_definition(m):
    with mpmath.workdps(40):
        error = mpf(xi(m)) / by_definition(m) - 1
        assert 0 <= error < 1e-12


@pytest.mark.parametrize("m", [719, 30_000, 60_000, 10**6])
def test_large_m_by_the_incomplete_gamma_function(m):
    with mpmath.workdps(40):
        error = mpf(xi(m)) / by_gamma(m) - 1
        assert 0 <= error < 1e-10


@pytest.mark.parametrize("m", [10**7, 10**8, 10**10])
def test_huge_m_by_the_asymptotic_series(m):
    """Ramanujan's: xi = sqrt(pi m/2) + 2/3 + sqrt(2 pi/m)/24 - 4/(135 m) + O(m^-1.5)."""
    with mpmath.workdps(40):
        series = mpmath.sqrt(mpmath.pi * m / 2) + mpf(2) / 3 + mpmath.sqrt(2 * mpmath.pi / m) / 24 - mpf(4) / (135 * m)
        error = mpf(xi(m)) / series - 1
        assert -(mpf(m) ** -2) <= error < 1e-9


@given(st.integers(8, 10**8))
def test_the_bracket(m):
    assert math.sqrt(m) <= xi(m) <= 2 * math.sqrt(m)


def test_it_is_quick():
    start = time.perf_counter()
    xi(99_999_989)
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize("m", [0, -3, 2.0, 10**13])
def test_no_number_of_examples(m):
    with pytest.raises(InvalidInput, match="m = "):
        xi(m)


@pytest.mark.parametrize("m", [1, 8, 719, 60_000])
def test_the_exact_penalty(m):
    with mpmath.workdps(40):
        true = (mpf(2.5) + mpmath.log(by_gamma(m) / mpf(0.025))) / m
        assert abs(penalty(2.5, m, 0.025, exact=True) / true - 1) < 1e-10
    if m >= 8:
        assert penalty(2.5, m, 0.025, exact=True) < penalty(2.5, m, 0.025)


@pytest.mark.parametrize("m", [1, 4, 9])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_it_is_the_expectation_it_stands_for(m, p):
    """E exp(m kl(K/m‖p)) for a binomial K is xi(m), whatever p is."""
    with mpmath.workdps(30):
        total = mpf(0)
        for k in range(m + 1):
            q = mpf(k) / m
            likelihood_ratio = (q / p) ** k * ((1 - q) / (1 - mpf(p))) ** (m - k)
            total += mpmath.binomial(m, k) * mpf(p) ** k * (1 - mpf(p)) ** (m - k) * likelihood_ratio
        assert abs(total / mpf(xi(m)) - 1) < 1e-12
