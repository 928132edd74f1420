"""Proposition 1: the four bounds, their order and their penalty."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch

from pacbayes.bounds import (
    ERM,
    OBJECTIVES,
    McAll,
    best_lambda,
    catoni_parameter,
    chernoff_upper,
    clopper_pearson_upper,
    invKL,
    kl_inverse,
    lbd,
    penalty,
    quad,
)
from pacbayes.errors import InvalidInput

RISKS = [0.0, 1e-6, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.95, 1.0]
PENALTIES = [1e-8, 1e-5, 3e-4, 1e-3, 0.01, 0.05, 0.2, 1.0, 5.0]
PAIRS = [(r, p) for r in RISKS for p in PENALTIES]


@pytest.mark.parametrize("kl", [0.0, 1e-9, 12.5, 4321.0, 1e7])
@pytest.mark.parametrize("m", [8, 30, 1797, 60_000, 10_000_000])
@pytest.mark.parametrize("delta", [1e-9, 0.025, 0.5, 0.999])
@pytest.mark.parametrize("kappa", [1.0, 0.1])
def test_penalty_is_the_formula(kl, m, delta, kappa):
    with mpmath.workdps(40):
        true = float(mpmath.mpf(kappa) * (mpmath.mpf(kl) + mpmath.log(2 * mpmath.sqrt(m) / mpmath.mpf(delta))) / m)
    assert penalty(kl, m, delta, kappa) == pytest.approx(true, rel=1e-14)
    tensor = penalty(torch.tensor(kl, dtype=torch.float64), m, delta, kappa)
    assert tensor.item() == pytest.approx(true, rel=1e-14)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_numbers_of_numpy_are_computed_with_in_full(kind):
    delta = kind(0.001)
    assert penalty(2.0, 60_000, delta) == penalty(2.0, 60_000, float(delta))
    assert penalty(2.0, 60_000, delta, exact=True) == penalty(2.0, 60_000, float(delta), exact=True)
    kl = kind(1234.5)
    assert penalty(kl, 60_000, 0.025) == penalty(float(kl), 60_000, 0.025)
    assert chernoff_upper(0.1, 1000, delta) == chernoff_upper(0.1, 1000, float(delta))
    assert clopper_pearson_upper(3, 1000, delta) == clopper_pearson_upper(3, 1000, float(delta))
    assert catoni_parameter(0.1, 1.0, 1000, delta) == catoni_parameter(0.1, 1.0, 1000, float(delta))


def test_kappa_multiplies_the_logarithm_too_and_is_one_by_default():
    assert penalty(0.0, 100, 0.05, kappa=0.5) == pytest.approx(0.5 * penalty(0.0, 100, 0.05))
    assert penalty(3.0, 100, 0.05) == penalty(3.0, 100, 0.05, kappa=1.0)


@pytest.mark.parametrize("m", [-1, 0, 1, 7])
def test_penalty_refuses_too_few_examples(m):
    with pytest.raises(InvalidInput, match=str(m)):
        penalty(1.0, m, 0.05)


@pytest.mark.parametrize("delta", [-0.1, 0.0, 1.0, 2.5, math.nan, math.inf])
def test_penalty_refuses_a_delta_that_is_no_probability(delta):
    with pytest.raises(InvalidInput, match="delta"):
        penalty(1.0, 100, delta)


@pytest.mark.parametrize(("risk", "pen"), PAIRS)
def test_the_formulas(risk, pen):
    assert McAll(risk, pen) == pytest.approx(risk + math.sqrt(pen / 2), rel=1e-14)
    assert quad(risk, pen) == pytest.approx((math.sqrt(risk + pen / 2) + math.sqrt(pen / 2)) ** 2, rel=1e-14)
    assert invKL(risk, pen) == kl_inverse(risk, pen)
    assert ERM(risk, pen) == risk
    for lam in (0.1, 0.5, 0.99):
        assert lbd(risk, pen, lam) == pytest.approx((risk + pen / lam) / (1 - lam / 2), rel=1e-14)


@pytest.mark.parametrize(("risk", "pen"), PAIRS)
def test_the_kl_bound_is_the_tightest(risk, pen):
    tightest = invKL(risk, pen) * (1 - 1e-12)
    assert tightest <= McAll(risk, pen)
    assert tightest <= quad(risk, pen)
    for lam in (None, 0.05, 0.3, 0.7, 0.95):
        assert tightest <= lbd(risk, pen, lam)


@pytest.mark.parametrize(("risk", "pen"), PAIRS)
def test_the_best_lambda_is_best(risk, pen):
    lam = best_lambda(risk, pen)
    assert 0 < lam <= 1
    best = lbd(risk, pen)
    assert best == pytest.approx(lbd(risk, pen, lam), rel=1e-15)
    grid = np.concatenate([np.geomspace(1e-5, 1, 20_001), np.linspace(max(lam - 1e-3, 1e-6), min(lam + 1e-3, 1), 2001)])
    values = (risk + pen / grid) / (1 - grid / 2)
    assert best <= values.min() * (1 + 1e-12)
    assert best == pytest.approx(values.min(), rel=1e-4)
    assert best == pytest.approx(quad(risk, pen), rel=1e-12)


@pytest.mark.parametrize("name", ["invKL", "McAll", "quad", "lbd", "ERM"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_give_what_floats_give_with_finite_gradients(name, dtype):
    objective = OBJECTIVES[name]
    pairs = [pair for pair in PAIRS if pair[1] >= 1e-5]
    risk, pen = (torch.tensor(v, dtype=dtype, requires_grad=True) for v in zip(*pairs, strict=True))
    value = objective(risk, pen)
    expected = [objective(r, p) for r, p in pairs]
    assert value.dtype == dtype
    assert value.tolist() == pytest.approx(expected, rel=1e-12 if dtype == torch.float64 else 1e-5, abs=1e-30)
    value.sum().backward()
    assert risk.grad.isfinite().all()
    assert pen.grad is None or pen.grad.isfinite().all()


@pytest.mark.parametrize("name", ["invKL", "McAll", "quad", "lbd"])
def test_gradients_are_those_of_the_floats(name):
    objective = OBJECTIVES[name]
    for r, p in ((0.02, 0.01), (0.3, 0.002), (0.1, 0.5)):
        risk, pen = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (r, p))
        objective(risk, pen).backward()
        h = 1e-6
        by_risk = (objective(r + h, p) - objective(r - h, p)) / (2 * h)
        by_pen = (objective(r, p + h) - objective(r, p - h)) / (2 * h)
        assert risk.grad.item() == pytest.approx(by_risk, rel=1e-5)
        assert pen.grad.item() == pytest.approx(by_pen, rel=1e-5)


@pytest.mark.parametrize("name", ["invKL", "McAll", "quad", "lbd", "ERM"])
@pytest.mark.parametrize("pen", [0.0, 1e-12, 1e-4, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite_at_risk_zero(name, dtype, pen):
    risk = torch.tensor(0.0, dtype=dtype, requires_grad=True)
    level = torch.tensor(pen, dtype=dtype, requires_grad=True)
    value = OBJECTIVES[name](risk, level)
    value.backward()
    assert value.isfinite()
    assert risk.grad.isfinite()
    assert level.grad is None or level.grad.isfinite()


def test_objectives_by_name():
    assert set(OBJECTIVES) == {"invKL", "McAll", "quad", "lbd", "ERM"}
