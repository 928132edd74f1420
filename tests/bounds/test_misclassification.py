"""P(argmax F != y): every estimator against integration, and Proposition 2 by statistics."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from high_precision import integrated_error, slope
from scipy import special

from pacbayes.bounds import misclassification_probability
from pacbayes.errors import InvalidInput


def probability(mean, variance, label: int, method: str | None = "quadrature", dtype=torch.float64, **options) -> float:
    mean, variance = (torch.tensor(np.asarray(v)[None], dtype=dtype) for v in (mean, variance))
    return misclassification_probability(mean, variance, torch.tensor([label]), method, **options).item()


def random_cases(seed: int, count: int, classes: int, ratio: float):
    """Means spread from nearly equal to far apart, deviations within a ratio of each other, at any common scale."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        deviation = 10 ** rng.uniform(0, math.log10(ratio), classes)
        scale = 10 ** rng.uniform(-3, 3)
        mean = rng.normal(size=classes) * deviation.max() * 10 ** rng.uniform(-2, 0.5)
        yield mean * scale, (deviation * scale) ** 2, int(rng.integers(classes))


# The reference itself


def test_the_reference_is_right_for_two_classes_at_any_ratio():
    rng = np.random.default_rng(0)
    for _ in range(50):
        mean, deviation = rng.normal(size=2), 10 ** rng.uniform(-8, 0, 2)
        mean = mean * np.hypot(*deviation)
        true = special.ndtr((mean[1] - mean[0]) / np.hypot(*deviation))
        assert integrated_error(mean, deviation**2, 0) == pytest.approx(true, rel=1e-9, abs=1e-15)


def test_the_reference_is_right_for_three_classes():
    mean, variance = [0.3, -0.2, 0.5], [1.0, 0.25, 4.0]

    def won(z):
        own = mean[0] + z
        return mpmath.npdf(z) * mpmath.ncdf((own - mean[1]) / 0.5) * mpmath.ncdf((own - mean[2]) / 2)

    with mpmath.workdps(25):
        true = 1 - mpmath.quad(won, [-15, -4, -1, 1, 4, 15])
    assert integrated_error(np.array(mean), np.array(variance), 0) == pytest.approx(float(true), abs=1e-13)


# Quadrature


@pytest.mark.parametrize(("classes", "count"), [(2, 40), (3, 40), (10, 40), (100, 10), (1000, 3)])
def test_quadrature_where_deviations_are_within_a_factor_10(classes, count):
    for mean, variance, label in random_cases(classes, count, classes, 10):
        true = integrated_error(mean, variance, label)
        assert probability(mean, variance, label) == pytest.approx(true, abs=1e-6)
        single = probability(mean, variance, label, dtype=torch.float32)
        assert single == pytest.approx(true, abs=5e-6)


@pytest.mark.parametrize("ratio", [1e2, 1e4, 1e8])
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_quadrature_at_any_ratio_of_deviations(ratio, classes):
    rng = np.random.default_rng(7)
    for mean, variance, label in random_cases(int(ratio) + classes, 40, classes, ratio):
        # half of the time the means differ at the smallest scale, not the largest
        if rng.random() < 0.5:
            mean = mean / ratio
        true = integrated_error(mean, variance, label)
        assert probability(mean, variance, label) == pytest.approx(true, abs=1e-3)
        assert probability(mean, variance, label, dtype=torch.float32) == pytest.approx(true, abs=1e-3)


@pytest.mark.parametrize("small", [1e-2, 1e-4, 1e-8])
@pytest.mark.parametrize("place", [-2.0, -0.5, 0.0, 1.0])
def test_quadrature_with_one_steep_rival_or_a_steep_label(small, place):
    """One class of tiny deviation among wide ones: a step in the integrand, or an integrand that is all step."""
    for mean, deviation in (
        ([0.0, place, -1.0, 0.5], [1.0, small, 1.0, 1.0]),
        ([0.0, place, -1.0, 0.5], [small, 1.0, 1.0, 1.0]),
        ([0.0, place, place, place + small], [1.0, small, small, small]),
        ([0.0, place * small, small, -small], [small, small, small, 1.0]),
    ):
        variance = np.array(deviation) ** 2
        true = integrated_error(np.array(mean), variance, 0)
        assert probability(mean, variance, 0) == pytest.approx(true, abs=1e-3)


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
def test_quadrature_keeps_the_relative_precision_of_small_errors(classes):
    for gap in (5.0, 6.5, 7.5, 8.0, 8.3):
        mean = np.r_[gap, np.zeros(classes - 1)]
        variance = np.ones(classes)
        true = integrated_error(mean, variance, 0)
        assert 1e-9 < true < 0.03
        assert probability(mean, variance, 0) == pytest.approx(true, rel=0.01)
        assert probability(mean, variance, 0, dtype=torch.float32) == pytest.approx(true, rel=0.01)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_quadrature_near_certain_error(classes):
    mean = np.r_[-7.9, np.zeros(classes - 1)]
    true = integrated_error(mean, np.ones(classes), 0)
    assert true >= 1 - 2e-8
    assert probability(mean, np.ones(classes), 0) == pytest.approx(true, abs=1e-10)


@pytest.mark.parametrize("method", [None, "quadrature", "closed-form"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_two_classes_have_a_closed_form(method, dtype):
    for mean, variance, label in random_cases(3, 50, 2, 10):
        true = special.ndtr((mean[1 - label] - mean[label]) / math.sqrt(variance.sum()))
        tolerance = 1e-6 if dtype == torch.float64 else 5e-6
        assert probability(mean, variance, label, method, dtype) == pytest.approx(true, abs=tolerance)


@pytest.mark.parametrize("gap", [5.0, 6.5, 7.9, 10.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_closed_form_keeps_its_digits_in_the_tail(gap, dtype):
    """(1 + erf(x/√2))/2 cancels there."""
    got = probability([gap, 0.0], [1.0, 1.0], 0, "closed-form", dtype)
    assert got == pytest.approx(special.ndtr(-gap / math.sqrt(2)), rel=1e-4)


@pytest.mark.parametrize("gap", [3.5, 5.0, 5.6, 7.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_l1_keeps_its_digits_in_the_tail(gap, dtype):
    """Rivals that hardly vary make L1 a number: the label's own tail."""
    got = probability([gap, 0.0, -9.0], [1.0, 1e-20, 1e-20], 0, "L1", dtype, samples=3)
    assert got == pytest.approx(special.ndtr(-gap), rel=1e-4)


@pytest.mark.parametrize("classes", [2, 3, 10, 1000])
@pytest.mark.parametrize("variance", [1e-20, 1e-4, 1.0, 1e6])
def test_equal_outputs_are_right_once_in_as_many_as_there_are_classes(classes, variance):
    for label in (0, classes - 1):
        got = probability(np.zeros(classes), np.full(classes, variance), label)
        assert got == pytest.approx(1 - 1 / classes, abs=1e-6)


@pytest.mark.parametrize("method", ["L1", "L2", "quadrature"])
def test_a_common_shift_and_a_common_scale_change_nothing(method):
    for mean, variance, label in random_cases(11, 10, 5, 10):
        values = [
            probability(a * mean + b * a, a * a * variance, label, method, generator=torch.Generator().manual_seed(3))
            for a, b in ((1, 0), (1, 1000.0), (1, -3e4), (8.0, 0))
        ]
        assert values == pytest.approx([values[0]] * 4, rel=1e-5)


def test_the_probabilities_of_all_labels_to_be_right_add_up_to_one():
    for mean, variance, _ in random_cases(13, 20, 7, 10):
        assert sum(1 - probability(mean, variance, y) for y in range(7)) == pytest.approx(1, abs=5e-6)


def test_shapes_and_dtypes():
    mean, variance = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)), torch.ones(2, 3, 4)
    labels = torch.tensor([[0, 1, 2], [3, 0, 1]])
    for method in ("L1", "L2", "quadrature", None):
        out = misclassification_probability(mean, variance, labels, method)
        assert out.shape == (2, 3)
        assert out.dtype == torch.float32
        assert misclassification_probability(mean.double(), variance.double(), labels, method).dtype == torch.float64
    flat = misclassification_probability(mean.view(6, 4), variance.view(6, 4), labels.view(6))
    torch.testing.assert_close(flat.view(2, 3), misclassification_probability(mean, variance, labels))
    assert misclassification_probability(mean[0, 0], variance[0, 0], torch.tensor(1)).shape == ()


# Gradients


def gradients(mean, variance, label, method="quadrature", dtype=torch.float64, **options):
    mean, variance = (torch.tensor(np.asarray(v)[None], dtype=dtype, requires_grad=True) for v in (mean, variance))
    misclassification_probability(mean, variance, torch.tensor([label]), method, **options).sum().backward()
    return mean.grad[0].double().numpy(), variance.grad[0].double().numpy()


def true_gradients(mean, variance, label):
    def moved(vector, i, value):
        return np.r_[vector[:i], value, vector[i + 1 :]]

    step = 1e-3 * math.sqrt(variance.min())
    by_mean = [
        slope(lambda v, i=i: integrated_error(moved(mean, i, v), variance, label), mean[i], step)
        for i in range(len(mean))
    ]
    by_variance = [
        slope(lambda v, i=i: integrated_error(mean, moved(variance, i, v), label), variance[i], 1e-3 * variance[i])
        for i in range(len(mean))
    ]
    return np.array(by_mean), np.array(by_variance)


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_quadrature_gradients_against_differences_of_the_integral(classes):
    for mean, variance, label in random_cases(17 + classes, 6, classes, 10):
        truth = true_gradients(mean, variance, label)
        for dtype, tolerance in ((torch.float64, 1e-5), (torch.float32, 1e-4)):
            got = gradients(mean, variance, label, dtype=dtype)
            # in units of the smallest deviation, the scale on which the probability changes
            for g, t, unit in zip(got, truth, (math.sqrt(variance.min()), variance.min()), strict=True):
                assert g * unit == pytest.approx(t * unit, abs=tolerance)


@pytest.mark.parametrize("method", ["closed-form", "quadrature"])
def test_two_class_gradients_are_those_of_the_formula(method):
    for mean, variance, label in random_cases(23, 20, 2, 10):
        total = math.sqrt(variance.sum())
        x = (mean[1 - label] - mean[label]) / total
        density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        by_mean = np.full(2, density / total)
        by_mean[label] *= -1
        by_variance = np.full(2, -density * x / (2 * total * total))
        got = gradients(mean, variance, label, method)
        assert got[0] * total == pytest.approx(by_mean * total, abs=1e-5)
        assert got[1] * total**2 == pytest.approx(by_variance * total**2, abs=1e-4)


def test_quadrature_gradcheck():
    rng = torch.Generator().manual_seed(4)
    mean = torch.randn(3, 5, generator=rng, dtype=torch.float64, requires_grad=True)
    variance = (torch.rand(3, 5, generator=rng, dtype=torch.float64) + 0.1).requires_grad_()
    labels = torch.tensor([0, 4, 2])
    # the nodes move with the inputs, and the value hardly does: the tolerance is the rule's own error
    assert torch.autograd.gradcheck(
        lambda m, v: misclassification_probability(m, v, labels), (mean, variance), eps=1e-3, atol=1e-5
    )


EXTREME_MEANS = [
    [0.0, 1e6, -1e6],
    [1e6, 0.0, -1e6],
    [0.0, 0.0, 0.0],
    [0.0, 1e-3, 1e3],
    [0.0, 30.0, 30.0],
    [30.0, 0.0, 1.0],
    [-1e6, 1e6, 1e6],
]
EXTREME_VARIANCES = [
    [0.0, 0.0, 0.0],
    [1e-20, 1e-20, 1e-20],
    [1.0, 1.0, 1.0],
    [0.0, 1.0, 1e-20],
    [1.0, 0.0, 1e-20],
    [1e6, 1e-20, 1e-10],
    [1e-20, 1e6, 1.0],
]


@pytest.mark.parametrize("method", ["L1", "L2", "quadrature"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_are_finite_for_extreme_inputs(method, dtype):
    for m in EXTREME_MEANS:
        for v in EXTREME_VARIANCES:
            mean, variance = (torch.tensor([x], dtype=dtype, requires_grad=True) for x in (m, v))
            value = misclassification_probability(
                mean, variance, torch.tensor([0]), method, generator=torch.Generator().manual_seed(0)
            )
            value.sum().backward()
            assert -1e-6 <= value.item() <= 1 + 1e-6, (m, v)
            assert mean.grad.isfinite().all(), (m, v)
            assert variance.grad.isfinite().all(), (m, v)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_closed_form_is_finite_for_extreme_inputs(dtype):
    for m in ([0.0, 1e6], [1e6, 0.0], [0.0, 0.0]):
        for v in ([0.0, 0.0], [1e-20, 1e-20], [0.0, 1.0], [1e6, 1e-20]):
            mean, variance = (torch.tensor([x], dtype=dtype, requires_grad=True) for x in (m, v))
            misclassification_probability(mean, variance, torch.tensor([0])).sum().backward()
            assert mean.grad.isfinite().all(), (m, v)
            assert variance.grad.isfinite().all(), (m, v)


@pytest.mark.parametrize("method", ["L1", "L2", "quadrature"])
def test_without_variance_the_answer_is_the_argmax(method):
    for mean, wrong in (([2.0, 1.0, 0.0], 0.0), ([1.0, 2.0, 0.0], 1.0)):
        assert probability(mean, [0.0, 0.0, 0.0], 0, method) == pytest.approx(wrong, abs=1e-9)


# Proposition 2

DRAWS = 500_000
PROPOSITION_2 = [
    ([0.2, 0.0, -0.3, 0.5], [1.0, 0.5, 2.0, 0.8], 0),
    ([1.0, 0.0, 0.4], [0.3, 1.5, 0.2], 0),
    ([0.0, 0.1, -0.2, 0.3, 0.5], [1.0, 2.0, 3.0, 1.0, 0.5], 4),
]
# All comparisons of the next test: two estimators; each case's value, means and variances.
COMPARISONS = 2 * sum(1 + 2 * len(mean) for mean, _, _ in PROPOSITION_2)
# Two-sided normal tail: the whole test fails for a right implementation with probability below 1e-6.
THRESHOLD = -special.ndtri(1e-6 / COMPARISONS / 2)


@pytest.mark.parametrize("method", ["L1", "L2"])
@pytest.mark.parametrize("case", range(len(PROPOSITION_2)))
def test_estimators_and_their_gradients_are_unbiased(method, case):
    mean, variance, label = PROPOSITION_2[case]
    means, variances = (
        torch.tensor(v, dtype=torch.float64).repeat(DRAWS, 1).requires_grad_() for v in (mean, variance)
    )
    values = misclassification_probability(
        means,
        variances,
        torch.full((DRAWS,), label),
        method,
        samples=1,
        generator=torch.Generator().manual_seed(1000 + case),
    )
    values.sum().backward()
    truth = integrated_error(np.array(mean), np.array(variance), label)
    slopes = true_gradients(np.array(mean), np.array(variance), label)
    for draws, expected in ((values.detach()[:, None], [truth]), (means.grad, slopes[0]), (variances.grad, slopes[1])):
        error = draws.std(0).numpy() / math.sqrt(DRAWS)
        z = (draws.mean(0).numpy() - expected) / error
        assert np.abs(z).max() < THRESHOLD
        # The power: a bias of 1 % of the value, or of the largest slope, is found with probability 97 % at least.
        assert (error * (THRESHOLD + 2)).max() < (0.01 if draws.shape[1] == 1 else 0.03) * np.abs(expected).max()


@pytest.mark.parametrize("method", ["L1", "L2"])
def test_more_samples_are_averaged(method):
    """The variance of the estimate with 25 samples is a 25th of that with one (a ratio of variances; 1e-6 to fail)."""
    mean = torch.tensor([0.2, 0.0, -0.3], dtype=torch.float64).repeat(20_000, 1)
    labels = torch.zeros(20_000, dtype=torch.long)
    spread = [
        misclassification_probability(
            mean, torch.ones_like(mean), labels, method, samples=n, generator=torch.Generator().manual_seed(n)
        ).var()
        for n in (1, 25)
    ]
    # each variance has a relative standard error below 2/sqrt(20000) = 1.4 %
    assert (spread[0] / spread[1]).item() == pytest.approx(25, rel=0.1)


@pytest.mark.parametrize("method", ["L1", "L2"])
def test_examples_get_draws_of_their_own(method):
    mean = torch.zeros(50, 3)
    out = misclassification_probability(mean, torch.ones(50, 3), torch.zeros(50, dtype=torch.long), method, samples=1)
    assert len(out.unique()) > 40


@pytest.mark.parametrize("method", ["L1", "L2"])
def test_the_generator_decides_the_draws_and_leaves_the_global_one_alone(method):
    mean, variance, labels = torch.zeros(4, 3), torch.ones(4, 3), torch.tensor([0, 1, 2, 0])

    def once(seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return misclassification_probability(mean, variance, labels, method, samples=7, generator=generator)

    before = torch.get_rng_state()
    assert torch.equal(once(1), once(1))
    assert not torch.equal(once(1), once(2))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("method", ["L1", "L2"])
def test_draws_may_come_from_a_source_of_ones_own(method):
    mean, variance, labels = (
        torch.randn(4, 3, generator=torch.Generator().manual_seed(1)),
        torch.ones(4, 3),
        [0, 1, 2, 0],
    )
    labels = torch.tensor(labels)

    def source(shape):
        return torch.randn(shape, generator=generator)

    generator = torch.Generator().manual_seed(5)
    first = misclassification_probability(mean, variance, labels, method, samples=9, generator=generator)
    generator = torch.Generator().manual_seed(5)
    second = misclassification_probability(mean, variance, labels, method, samples=9, normals=source)
    assert torch.equal(first, second)


def test_a_rule_first_used_without_gradients_serves_with_them():
    """The nodes are kept between calls, and must not remember the mode they were made in."""
    mean = torch.zeros(1, 3, requires_grad=True)
    with torch.inference_mode():
        misclassification_probability(mean, torch.ones(1, 3), torch.tensor([0]), nodes=23)
    misclassification_probability(mean, torch.ones(1, 3), torch.tensor([0]), nodes=23).sum().backward()
    assert mean.grad.isfinite().all()


def test_the_deterministic_methods_do_not_draw():
    before = torch.get_rng_state()
    misclassification_probability(torch.zeros(4, 3), torch.ones(4, 3), torch.tensor([0, 1, 2, 0]))
    misclassification_probability(torch.zeros(4, 2), torch.ones(4, 2), torch.tensor([0, 1, 1, 0]))
    assert torch.equal(before, torch.get_rng_state())


def test_unknown_methods_are_refused_by_name():
    with pytest.raises(InvalidInput, match=r"'l1'.*L1.*L2.*quadrature"):
        misclassification_probability(torch.zeros(1, 3), torch.ones(1, 3), torch.tensor([0]), "l1")


def test_the_closed_form_is_refused_for_more_than_two_classes():
    with pytest.raises(InvalidInput, match="3"):
        misclassification_probability(torch.zeros(1, 3), torch.ones(1, 3), torch.tensor([0]), "closed-form")


@pytest.mark.parametrize(
    ("mean", "variance", "labels"),
    [
        ((2, 3), (2, 4), (2,)),
        ((2, 3), (2, 3), (3,)),
        ((2, 3), (2, 3), (2, 1)),
        ((2, 1), (2, 1), (2,)),
        ((2, 3), (3,), (2,)),
    ],
)
def test_shapes_that_do_not_fit_are_refused(mean, variance, labels):
    with pytest.raises(InvalidInput, match="classes"):
        misclassification_probability(torch.zeros(mean), torch.ones(variance), torch.zeros(labels, dtype=torch.long))
