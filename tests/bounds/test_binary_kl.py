"""The binary kl and its inverse: the direction and size of every error, and the gradients."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from high_precision import exact_inverse, exact_kl
from hypothesis import given, settings
from hypothesis import strategies as st

from pacbayes.bounds import kl, kl_inverse
from pacbayes.bounds.binary_kl import x_minus_log1p

PRECISION = 1e-12
QS = [
    0.0,
    1e-300,
    1e-200,
    1e-100,
    1e-50,
    1e-30,
    1e-17,
    2**-53,
    1e-12,
    1e-9,
    1e-6,
    1e-4,
    1e-3,
    0.00999,
    0.0317,
    0.1,
    0.2,
    0.25,
    1 / 3,
    0.4999999,
    0.5,
    0.5 + 2**-53,
    0.6,
    0.75,
    0.9,
    0.99,
    0.9999,
    1 - 1e-6,
    1 - 1e-10,
    1 - 1e-14,
    1 - 2**-52,
    1 - 2**-53,
    1.0,
]
CS = [
    0.0,
    1e-300,
    1e-150,
    1e-60,
    1e-32,
    1e-17,
    1e-16,
    1e-15,
    1e-12,
    1e-9,
    1e-7,
    1e-5,
    1e-4,
    1e-3,
    0.01,
    0.05,
    0.1,
    0.3,
    math.log(2),
    1.0,
    2.0,
    5.0,
    10.0,
    30.0,
    36.04,
    36.7,
    37.5,
    50.0,
    100.0,
    745.0,
    1e3,
]

SMALLEST = [5e-324, 1e-320, 1e-310, 2.3e-308, 1e-307]

# Next to the smallest numbers of all a relative precision means nothing: they have a test of their own.
unit = st.just(0.0) | st.floats(1e-300, 1) | st.floats(1e-12, 0.999)
levels = st.just(0.0) | st.floats(1e-300, 1e3) | st.floats(1e-9, 10)


def grid(first: list[float], second: list[float]) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.meshgrid(first, second)
    return a.ravel(), b.ravel()


def assert_on_the_safe_side(q: np.ndarray, c: np.ndarray, p: np.ndarray) -> None:
    """p is not below the inverse, nor above it by more than the precision: read off kl(q‖p), which grows with p."""
    for q1, c1, p1 in zip(q.tolist(), c.tolist(), p.tolist(), strict=True):
        where = f"q = {q1!r}, c = {c1!r}, p = {p1!r}"
        assert q1 <= p1 <= 1, where
        if q1 == 1:
            continue
        assert exact_kl(q1, p1) >= c1, f"below the true inverse: {where}"
        with mpmath.workdps(750):
            lower = mpmath.mpf(p1) * (1 - mpmath.mpf(PRECISION))
        assert lower <= q1 or exact_kl(q1, lower) <= c1, f"too far above the true inverse: {where}"


@pytest.mark.parametrize("q", [torch.tensor(0), torch.tensor([0, 1]), torch.tensor(False)])
def test_whole_numbers_are_taken_for_floats(q):
    """As integers the bound would be cut down to one."""
    assert torch.equal(kl_inverse(q, 0.1), kl_inverse(q.double(), 0.1))
    assert torch.equal(kl_inverse(0.5, torch.tensor(1)), kl_inverse(0.5, torch.tensor(1.0).double()))
    assert torch.equal(kl(q, 0.5), kl(q.double(), 0.5))


def test_inverse_is_never_below_the_true_one_and_close_to_it_on_a_grid():
    q, c = grid(QS, CS)
    assert_on_the_safe_side(q, c, kl_inverse(q, c))


def test_inverse_is_never_below_the_true_one_and_close_to_it_at_random_points():
    rng = np.random.default_rng(1)
    n = 500
    exponent = 10 ** rng.uniform(-16, 0, n)
    q = np.concatenate([exponent, 1 - 10 ** rng.uniform(-16, 0, n), rng.uniform(0, 1, n)])
    c = np.concatenate([10 ** rng.uniform(-14, 3, n), 10 ** rng.uniform(-6, 1, 2 * n)])
    assert_on_the_safe_side(q, c, kl_inverse(q, c))


def test_inverse_is_never_below_the_true_one_where_certificates_live():
    rng = np.random.default_rng(2)
    n = 500
    m = 10 ** rng.uniform(1, 7, n)
    q = np.floor(m * 10 ** rng.uniform(-5, 0, n)) / m
    c = (10 ** rng.uniform(-3, 5, n) + np.log(2 * np.sqrt(m) / 0.025)) / m
    assert_on_the_safe_side(q, c, kl_inverse(q, c))


def test_inverse_is_never_below_the_true_one_next_to_the_smallest_numbers():
    q, c = (np.concatenate(v) for v in zip(grid([0.0, *SMALLEST], CS), grid(QS, SMALLEST), strict=True))
    for q1, c1, p1 in zip(q.tolist(), c.tolist(), kl_inverse(q, c).tolist(), strict=True):
        assert q1 <= p1 <= 1, (q1, c1, p1)
        assert q1 == 1 or exact_kl(q1, p1) >= c1, (q1, c1, p1)
        lower = p1 * (1 - PRECISION) - 1e-299
        assert lower <= q1 or exact_kl(q1, lower) <= c1, (q1, c1, p1)


def test_a_number_beside_a_tensor_keeps_all_its_digits():
    """A number that went through float32 on its way would move the inverse by 1e-8, down as well as up."""
    values = [0.05, 0.1, 0.3, 1 / 3, 0.7]
    for number in values:
        tensor = torch.tensor(values, dtype=torch.float64)
        expected = [kl_inverse(v, number) for v in values]
        assert kl_inverse(tensor, number).tolist() == expected
        assert kl_inverse(number, tensor).tolist() == [kl_inverse(number, v) for v in values]
        assert kl(tensor, number).tolist() == [kl(v, number) for v in values]
        # a scalar of a batch's loss is a tensor without dimensions
        assert kl_inverse(tensor[0], number).item() == expected[0]


def test_float_array_and_tensor_agree_to_the_bit():
    q, c = grid(QS, CS)
    q, c = q[::3], c[::3]
    arrays = kl_inverse(q, c)
    tensors = kl_inverse(torch.from_numpy(q), torch.from_numpy(c))
    floats = [kl_inverse(a, b) for a, b in zip(q.tolist(), c.tolist(), strict=True)]
    assert np.array_equal(arrays, tensors.numpy())
    assert np.array_equal(arrays, np.array(floats))


@pytest.mark.parametrize("c", CS)
def test_inverse_at_the_ends_of_q(c):
    with mpmath.workdps(400):
        true = -mpmath.expm1(-mpmath.mpf(c))
        got = mpmath.mpf(kl_inverse(0.0, c))
        assert true <= got <= true * (1 + mpmath.mpf(PRECISION))
    assert kl_inverse(1.0, c) == 1.0


@pytest.mark.parametrize("q", QS)
def test_inverse_at_level_zero_is_q_itself(q):
    assert kl_inverse(q, 0.0) == q


@given(unit, unit, levels)
def test_inverse_grows_with_q(a, b, c):
    low, high = sorted((a, b))
    assert kl_inverse(low, c) <= kl_inverse(high, c) * (1 + PRECISION)


@given(unit, levels, levels)
def test_inverse_grows_with_c(q, a, b):
    low, high = sorted((a, b))
    assert kl_inverse(q, low) <= kl_inverse(q, high) * (1 + PRECISION)


@settings(max_examples=300)
@given(st.floats(1e-9, 0.999), st.floats(1e-9, 20))
def test_kl_of_the_inverse_is_the_level(q, c):
    p = kl_inverse(q, c)
    if p < 1:
        slope_times_p = (p - q) / (1 - p)
        # twice the precision of p, and the rounding of 1 - p where p is next to 1
        allowed = 2 * PRECISION * slope_times_p + 1e-12 * c + 1e-15 / (1 - p)
        assert abs(kl(q, p) - c) <= allowed


@settings(max_examples=50)
@given(unit, levels)
def test_inverse_is_on_the_safe_side_anywhere(q, c):
    assert_on_the_safe_side(np.array([q]), np.array([c]), np.array([kl_inverse(q, c)]))


# Gradients

INTERIOR = [
    (1e-10, 1e-3),
    (1e-6, 1e-9),
    (0.001, 0.01),
    (0.01, 1e-4),
    (0.03, 0.5),
    (0.1, 0.1),
    (0.2, 3.0),
    (0.5, 1e-8),
    (0.5, 0.7),
    (0.7, 1e-4),
    (0.9, 0.02),
    (0.99, 2.0),
    (0.3, 20.0),
]


def true_gradients(q: float, c: float) -> tuple[float, float]:
    """Differences of the high-precision inverse: nothing here knows the closed form."""
    with mpmath.workdps(100):
        dq, dc = mpmath.mpf(q) * mpmath.mpf(10) ** -25, mpmath.mpf(c) * mpmath.mpf(10) ** -25
        by_q = (exact_inverse(q + dq, c, 90) - exact_inverse(q - dq, c, 90)) / (2 * dq)
        by_c = (exact_inverse(q, c + dc, 90) - exact_inverse(q, c - dc, 90)) / (2 * dc)
        return float(by_q), float(by_c)


def gradients(q: float, c: float, dtype: torch.dtype, upstream=lambda p: p) -> tuple[float, float]:
    q, c = (torch.tensor(v, dtype=dtype, requires_grad=True) for v in (q, c))
    upstream(kl_inverse(q, c)).backward()
    return q.grad.item(), c.grad.item()


@pytest.mark.parametrize(("q", "c"), INTERIOR)
def test_gradients_against_high_precision(q, c):
    true = true_gradients(q, c)
    assert gradients(q, c, torch.float64) == pytest.approx(true, rel=1e-9)
    # with float32 inputs, the gradients at those inputs
    q32, c32 = (torch.tensor(v, dtype=torch.float32).item() for v in (q, c))
    at_float32 = gradients(q32, c32, torch.float64)
    assert gradients(q, c, torch.float32) == pytest.approx(at_float32, rel=1e-6)
    assert at_float32 == pytest.approx(true, rel=1e-3)


@pytest.mark.parametrize(("q", "c"), INTERIOR)
@pytest.mark.parametrize(
    ("upstream", "factor"),
    [
        (lambda p: 5 * p, lambda p: 5),
        (lambda p: p**3, lambda p: 3 * p * p),
        (lambda p: -torch.log(p), lambda p: -1 / p),
        (lambda p: 0 * p, lambda p: 0),
    ],
)
def test_gradients_follow_the_chain_rule_once(q, c, upstream, factor):
    plain = gradients(q, c, torch.float64)
    scale = factor(kl_inverse(q, c))
    assert gradients(q, c, torch.float64, upstream) == pytest.approx([scale * g for g in plain], rel=1e-12)


def test_gradcheck():
    q = torch.tensor([0.02, 0.1, 0.3, 0.5, 0.8], dtype=torch.float64, requires_grad=True)
    c = torch.tensor([[0.01], [0.3], [1.5]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(kl_inverse, (q, c))


def test_gradients_reach_through_a_batch_of_upstream_values():
    q = torch.full((3,), 0.1, dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([1.0, -2.0, 7.0], dtype=torch.float64)
    (weights * kl_inverse(q, 0.05)).sum().backward()
    by_q, _ = true_gradients(0.1, 0.05)
    assert q.grad.tolist() == pytest.approx([by_q, -2 * by_q, 7 * by_q], rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_and_values_are_finite_everywhere(dtype):
    q, c = (torch.tensor(v, dtype=dtype, requires_grad=True) for v in grid(QS, CS))
    p = kl_inverse(q, c)
    p.sum().backward()
    for t in (p, q.grad, c.grad):
        assert t.isfinite().all()
        assert (t >= 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("c", [1e-4, 0.01, 1.0])
def test_gradient_in_c_at_risk_zero(dtype, c):
    """An empirical error of exactly 0, as a batch may have: p = 1 - e^-c."""
    by_q, by_c = gradients(0.0, c, dtype)
    assert by_c == pytest.approx(math.exp(-c), rel=1e-6)
    assert by_q > 1  # infinite in truth


def test_gradient_in_q_at_level_zero_is_close_to_one():
    by_q, by_c = gradients(0.3, 1e-14, torch.float64)
    assert by_q == pytest.approx(1, abs=1e-6)
    assert by_c == pytest.approx(math.sqrt(0.3 * 0.7 / 2e-14), rel=1e-4)


@pytest.mark.parametrize("q", [1e-9, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_in_q_at_level_zero_is_one(q, dtype):
    """The inverse is q itself there."""
    by_q, by_c = gradients(q, 0.0, dtype)
    assert by_q == pytest.approx(1, rel=1e-3)
    assert by_c > 100  # infinite in truth


def test_float32_is_close_to_float64():
    q, c = (torch.tensor(v, dtype=torch.float32) for v in grid(QS, CS))
    single, double = kl_inverse(q, c), kl_inverse(q.double(), c.double())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), double, rtol=1e-7, atol=1e-44)


# Types and shapes


@pytest.mark.parametrize("function", [kl, kl_inverse])
def test_types_and_shapes(function):
    assert type(function(0.1, 0.2)) is float
    assert type(function(np.float64(0.1), 0.2)) is float
    assert type(function(0, 1)) is float
    array = function(np.array([0.1, 0.2], dtype=np.float32), 0.3)
    assert isinstance(array, np.ndarray)
    assert array.dtype == np.float64
    assert array.shape == (2,)
    assert function(np.full((3, 1), 0.1), np.full(4, 0.2)).shape == (3, 4)
    for dtype in (torch.float32, torch.float64):
        tensor = torch.tensor([0.1, 0.2], dtype=dtype)
        for q, p in ((tensor, 0.3), (0.1, tensor), (tensor, tensor), (tensor, torch.tensor(0.5, dtype=dtype))):
            value = function(q, p)
            assert isinstance(value, torch.Tensor)
            assert value.dtype == dtype
            assert value.shape == (2,)
    assert function(torch.full((3, 1), 0.1), torch.full((4,), 0.2)).shape == (3, 4)


def test_broadcast_values_are_those_of_single_pairs():
    q, c = np.array([[0.1], [0.4]]), np.array([0.01, 0.2, 1.0])
    both = kl_inverse(q, c)
    assert both.tolist() == [[kl_inverse(a, b) for b in c.tolist()] for a in q.ravel().tolist()]


def test_inputs_are_left_alone():
    q, c = np.array([0.0, 0.5, 1.0]), np.array([0.0, 0.1, 0.2])
    before = q.copy(), c.copy()
    kl_inverse(q, c)
    kl(q, np.array([0.1, 0.2, 0.3]))
    assert np.array_equal(q, before[0])
    assert np.array_equal(c, before[1])


# kl


def test_kl_against_high_precision_on_a_grid():
    q, p = grid(QS, [v for v in QS if 0 < v < 1])
    for q1, p1, got in zip(q.tolist(), p.tolist(), kl(q, p).tolist(), strict=True):
        assert got == pytest.approx(float(exact_kl(q1, p1)), rel=1e-13, abs=1e-307), (q1, p1)


@pytest.mark.parametrize("p", SMALLEST)
def test_kl_is_finite_however_small_p_is(p):
    """It is infinite at p = 0 only: q/p must not overflow."""
    for q in (1e-12, 0.3, 1.0):
        assert kl(q, p) == pytest.approx(float(exact_kl(q, p)), rel=1e-12)


@pytest.mark.parametrize("q", [1e-9, 1e-3, 0.1, 0.5, 0.7, 0.999])
@pytest.mark.parametrize("step", [1e-15, 1e-12, 1e-8, 1e-4, 0.3])
@pytest.mark.parametrize("sign", [-1, 1])
def test_kl_for_p_near_q(q, step, sign):
    p = q * (1 + sign * step)
    if 0 < p < 1:
        assert kl(q, p) == pytest.approx(float(exact_kl(q, p)), rel=1e-12, abs=0)
        assert kl(q, p) >= 0


def test_kl_at_the_ends():
    assert kl(0.0, 0.0) == kl(1.0, 1.0) == 0
    assert kl(0.3, 0.0) == kl(1.0, 0.0) == kl(0.3, 1.0) == kl(0.0, 1.0) == math.inf
    assert kl(0.0, 0.25) == pytest.approx(-math.log(0.75), rel=1e-15)
    assert kl(1.0, 0.25) == pytest.approx(math.log(4), rel=1e-15)
    assert kl(1 - 2**-53, 1.0) == math.inf


@given(unit, unit)
def test_kl_is_never_negative_and_at_least_what_pinsker_says(q, p):
    assert kl(q, p) >= 2 * (p - q) ** 2 * (1 - 1e-12)


def test_kl_float32_is_close_to_float64():
    values = [1e-6, 0.01, 0.2, 0.5, 0.9, 1 - 1e-6]
    q, p = (torch.tensor(v, dtype=torch.float32) for v in grid(values, values))
    torch.testing.assert_close(kl(q, p).double(), kl(q.double(), p.double()), rtol=1e-5, atol=1e-12)


def test_kl_gradients():
    q = torch.tensor([0.1, 0.4, 0.5, 0.9], dtype=torch.float64, requires_grad=True)
    p = torch.tensor([[0.2], [0.41], [0.95]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(kl, (q, p))


@pytest.mark.parametrize("x", [-0.999, -0.5, -0.3, -0.29999, -1e-3, -1e-9, 1e-200, 1e-12, 1e-5, 0.1, 0.3, 2.0, 1e6])
def test_x_minus_log1p(x):
    with mpmath.workdps(500):
        true = float(mpmath.mpf(x) - mpmath.log(1 + mpmath.mpf(x)))
    got = x_minus_log1p(torch.tensor(x, dtype=torch.float64)).item()
    assert got == pytest.approx(true, rel=1e-14, abs=0)
