"""The rigorous misclassification probability: never below the true one, and close to it."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from mpmath import mpf

from pacbayes.bounds import misclassification_probability, misclassification_upper
from pacbayes.errors import InvalidInput

CASES = [
    ([0.0, 0.0], [1.0, 1.0]),
    ([3.0, 0.0, -1.0], [1.0, 0.2, 4.0]),
    ([5.0, 0.0, 1.0, 2.0], [0.5, 0.5, 0.1, 1.0]),
    ([-4.0, 0.0, 1.0], [1.0, 1.0, 1.0]),
    ([1.0, 0.0], [1e-6, 1.0]),
    ([1.0, 0.0], [1.0, 1e-6]),
]


def true_probability(mean: list[float], variance: list[float]) -> mpf:
    """1 - P(the first is the largest), to 20 digits."""
    with mpmath.workdps(30):

        def integrand(z: mpf) -> mpf:
            own = mpf(mean[0]) + mpmath.sqrt(mpf(variance[0])) * z
            rivals = zip(mean[1:], variance[1:], strict=True)
            return mpmath.npdf(z) * math.prod(mpmath.ncdf((own - mpf(m)) / mpmath.sqrt(mpf(v))) for m, v in rivals)

        # A rival of tiny variance makes a step where its mean is: cut the range there.
        steps = sorted({-12.0, -4.0, 0.0, 4.0, 12.0, *((m - mean[0]) / math.sqrt(variance[0]) for m in mean[1:])})
        return 1 - mpmath.quad(integrand, [s for s in steps if abs(s) <= 12])


@pytest.mark.parametrize(("mean", "variance"), CASES)
def test_never_below_and_close(mean, variance):
    true = true_probability(mean, variance)
    # A rival of next to no variance makes a step, which lies within one cell.
    steps = min(variance[1:]) < 1e-3 * variance[0]
    for cells, tolerance in (
        (64, 0.05 if steps else 6e-4),
        (256, 0.015 if steps else 4e-5),
        (2048, 0.002 if steps else 1e-6),
    ):
        found = misclassification_upper(torch.tensor(mean), torch.tensor(variance), torch.tensor(0), cells=cells)
        assert mpf(found.item()) >= true - mpf(10) ** -15
        assert found.item() <= float(true) + tolerance


def test_random_outputs_against_the_quadrature():
    generator = torch.Generator().manual_seed(0)
    mean = 2 * torch.randn(200, 10, generator=generator, dtype=torch.float64)
    variance = torch.rand(200, 10, generator=generator, dtype=torch.float64)
    y = torch.randint(10, (200,), generator=generator)
    excess = misclassification_upper(mean, variance, y) - misclassification_probability(mean, variance, y, nodes=400)
    assert excess.min() > -1e-12 and excess.mean() < 3e-5


def test_outputs_without_variance():
    y = torch.tensor([0, 1, 0])
    mean = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    found = misclassification_upper(mean, torch.zeros(3, 2), y)
    assert found[0] < 1e-10 and found[1] == found[2] == 1.0


def test_shapes_that_do_not_fit():
    with pytest.raises(InvalidInput):
        misclassification_upper(torch.zeros(3, 2), torch.zeros(3, 3), torch.zeros(3))


def test_steep_and_flat_rivals_at_every_number_of_cells():
    """Ratios of the deviations from 1e-8 to 1e8, gaps to both sides: never below, and a number."""
    generator = torch.Generator().manual_seed(1)
    mean = 3 * torch.randn(2000, 4, generator=generator, dtype=torch.float64)
    deviation = 10 ** (4 * torch.randn(2000, 4, generator=generator, dtype=torch.float64)).clamp(-8, 8)
    y = torch.randint(4, (2000,), generator=generator)
    fine = misclassification_upper(mean * deviation.amax(1, keepdim=True), deviation**2, y, cells=4096)
    for cells in (1, 16, 100, 1024):
        found = misclassification_upper(mean * deviation.amax(1, keepdim=True), deviation**2, y, cells=cells)
        # More cells can only tell more, but for what does not line up.
        assert bool(found.isfinite().all()) and bool((found >= fine - 2e-3).all())


def test_a_variance_that_is_none_is_no_right_answer():
    risk = misclassification_upper(torch.tensor([[5.0, 0.0]]), torch.tensor([[1.0, -1.0]]), torch.tensor([0]))
    assert risk.tolist() == [1.0]
