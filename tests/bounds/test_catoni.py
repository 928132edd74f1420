"""Catoni's bound: its formula in 40 digits, its optimum, and the parameter that reaches it."""

from __future__ import annotations

import math

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mpf

from pacbayes.bounds import catoni, catoni_parameter, kl_inverse
from pacbayes.errors import InvalidInput

RISKS = [0.0, 1e-9, 0.003, 0.03, 0.5, 1.0]
PENALTIES = [0.0, 1e-12, 3e-4, 0.01, 1.0, 50.0]


@pytest.mark.parametrize("risk", RISKS)
@pytest.mark.parametrize("pen", PENALTIES)
@pytest.mark.parametrize("c", [1e-4, 0.2, 1.6, 20.0])
def test_the_formula_is_never_below(risk, pen, c):
    with mpmath.workdps(40):
        true = min(mpf(1), mpmath.expm1(-mpf(c) * mpf(risk) - mpf(pen)) / mpmath.expm1(-mpf(c)))
        found = catoni(risk, pen, c)
        assert found >= true or found == 1.0
        assert found <= true * (1 + mpf(10) ** -14)


@given(st.floats(0, 1), st.floats(1e-9, 5), st.floats(1e-4, 20))
def test_no_c_beats_the_inverse_kl(risk, pen, c):
    assert catoni(risk, pen, c) >= kl_inverse(risk, pen) * (1 - 1e-12)


@given(st.floats(1e-4, 0.5), st.floats(0, 100), st.integers(50, 10**6))
def test_the_best_c_reaches_it(risk, kl, m):
    pen = (kl + math.log(40)) / m
    c = catoni_parameter(risk, kl, m, 0.025)
    best = kl_inverse(risk, pen)
    if c < 20:
        assert catoni(risk, pen, c) == pytest.approx(best, rel=1e-9)
    assert catoni(risk, pen, c) <= catoni(risk, pen, min(20.0, c * 1.3)) * (1 + 1e-12)


def test_with_no_errors_the_largest_c_is_best():
    assert catoni_parameter(0.0, 3.0, 1000, 0.025) == 20.0
    assert catoni(0.0, 0.01, 20.0) == pytest.approx(kl_inverse(0.0, 0.01), rel=1e-8)


@pytest.mark.parametrize("c", [0.0, -1.0, 21.0, math.nan, math.inf])
def test_no_c(c):
    with pytest.raises(InvalidInput, match="Catoni's C"):
        catoni(0.1, 0.1, c)


@pytest.mark.parametrize(("risk", "pen"), [(-0.1, 0.1), (1.1, 0.1), (0.1, -0.1), (math.nan, 0.1)])
def test_no_risk_or_penalty(risk, pen):
    with pytest.raises(InvalidInput):
        catoni(risk, pen, 1.0)


@pytest.mark.parametrize("wrong", [{"risk": 2.0}, {"kl": math.inf}, {"m": 0}, {"delta": 0.0}])
def test_no_expectation(wrong):
    with pytest.raises(InvalidInput):
        catoni_parameter(**({"risk": 0.1, "kl": 1.0, "m": 100, "delta": 0.1} | wrong))
