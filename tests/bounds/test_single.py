"""One network drawn from Q: its bounds fail with probability delta at most, whatever Q makes of the data.

By enumeration, in a world of six cells: a network is the set of cells in which it errs, P is uniform over all 64, and Q
is the worst that there is for each data set.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, pairwise

import mpmath
import pytest

from pacbayes.bounds import (
    binomial_level,
    catoni,
    clopper_pearson_upper,
    draw_share,
    kl_inverse,
    xi,
)
from pacbayes.bounds.pac_bayes import penalty_of_ratio
from pacbayes.bounds.single import LEVELS
from pacbayes.errors import InvalidInput

CELLS = 6
NETWORKS = [cells for size in range(CELLS + 1) for cells in combinations(range(CELLS), size)]
M = 12

Bound = Callable[[int, int, float, float], float]
"""(errors, m, log ratio, delta) -> bound."""


def binomial(errors: int, m: int, log_ratio: float, delta: float) -> float:
    level = binomial_level(log_ratio, delta)
    return clopper_pearson_upper(errors, m, level) if level else 1.0


def exact(errors: int, m: int, log_ratio: float, delta: float) -> float:
    return kl_inverse(errors / m, max(0.0, penalty_of_ratio(log_ratio, m, delta, exact=True)))


def catonis(errors: int, m: int, log_ratio: float, delta: float) -> float:
    return catoni(errors / m, max(0.0, log_ratio - math.log(delta)) / m, 1.6)


def data_sets() -> list[tuple[float, tuple[int, ...]]]:
    """(probability, examples in each cell) of every data set, up to the order of its examples."""
    found = []
    for bars in combinations(range(M + CELLS - 1), CELLS - 1):
        counts = tuple(high - low - 1 for low, high in pairwise((-1, *bars, M + CELLS - 1)))
        ways = math.factorial(M) // math.prod(map(math.factorial, counts))
        found.append((ways / CELLS**M, counts))
    return found


def largest_failing_ratio(bound: Bound, errors: int, risk: Fraction, delta: float) -> float:
    """The largest dQ/dP there can be at which the bound is below the risk; 0 if there is none."""
    low, high = -10.0, math.log(len(NETWORKS))
    if bound(errors, M, high, delta) < risk:
        return float(len(NETWORKS))
    if bound(errors, M, low, delta) >= risk:
        return 0.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if bound(errors, M, middle, delta) < risk else (low, middle)
    return math.exp(low)


def worst_failure(bound: Bound, delta: float) -> float:
    """The probability, over data and draw, that the bound of the drawn network is below its risk.

    The bounds grow with the ratio. So the worst Q gives to each network as much as it fails with, and if that is more
    than all, to none more.
    """
    ratios = [
        [largest_failing_ratio(bound, errors, Fraction(size, CELLS), delta) for errors in range(M + 1)]
        for size in range(CELLS + 1)
    ]
    total = 0.0
    for probability, counts in data_sets():
        failing = sum(ratios[len(network)][sum(counts[cell] for cell in network)] for network in NETWORKS)
        total += probability * min(1.0, failing / len(NETWORKS))
    return total


@pytest.mark.parametrize("bound", [binomial, exact, catonis])
@pytest.mark.parametrize("delta", [0.05, 0.6])
def test_no_posterior_makes_a_bound_fail_more_often_than_delta(bound, delta):
    assert 0.2 * delta < worst_failure(bound, delta) <= delta * (1 + 1e-9)


FAULTS = {
    "the ratio for nothing": lambda errors, m, log_ratio, delta: binomial(errors, m, 0.0, delta),
    "the ratio for nothing in the exact one": lambda errors, m, log_ratio, delta: exact(errors, m, 0.0, delta),
    "the ratio for nothing in Catoni's": lambda errors, m, log_ratio, delta: catonis(errors, m, 0.0, delta),
    "twice delta": lambda errors, m, log_ratio, delta: binomial(errors, m, log_ratio, 2 * delta),
    "twice delta in Catoni's": lambda errors, m, log_ratio, delta: catonis(errors, m, log_ratio, 2 * delta),
    "the constant for nothing": lambda errors, m, log_ratio, delta: exact(
        errors, m, log_ratio - math.log(xi(m)), delta
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_caught(fault):
    """The enumeration above has power."""
    assert worst_failure(FAULTS[fault], 0.05) > 0.05


def ends() -> list[float]:
    """The log ratios up to which each level holds."""
    return [math.log(sum(math.exp(nats) for nats in list(LEVELS)[: k + 1])) for k in range(len(LEVELS))]


RISKS = [Fraction(1, 50), Fraction(3, 10), Fraction(1, 2), Fraction(9, 10)]


def chances(m: int, risk: Fraction) -> list[Fraction]:
    """The probability of 0, 1, ... m errors."""
    return [math.comb(m, k) * risk**k * (1 - risk) ** (m - k) for k in range(m + 1)]


@pytest.mark.parametrize("m", [1, 5, 40])
@pytest.mark.parametrize("risk", RISKS)
def test_the_mean_of_e_is_one_at_most(m, risk):
    """For each of the e of the proof; that of the kl reaches it."""
    chance = chances(m, risk)
    of_kl = [
        Fraction(k, m) ** k * (1 - Fraction(k, m)) ** (m - k) / (risk**k * (1 - risk) ** (m - k)) for k in range(m + 1)
    ]
    assert float(sum(p * e for p, e in zip(chance, of_kl, strict=True))) / xi(m) == pytest.approx(1, rel=1e-12)
    for delta in (Fraction(1, 100), Fraction(1, 2)):
        mean, tail = Fraction(0), Fraction(0)
        for p in chance:
            tail += p
            for nats, end in zip(LEVELS, ends(), strict=True):
                if tail <= binomial_level(end - 1e-9, float(delta)):
                    mean += p * Fraction(math.exp(nats)) / delta
        assert mean <= 1


def test_the_levels_share_all_of_delta_and_fall():
    assert math.fsum(LEVELS.values()) == pytest.approx(1, abs=1e-15)
    assert list(LEVELS) == sorted(LEVELS)
    reached = [share * math.exp(-nats) for nats, share in LEVELS.items()]
    assert reached == sorted(reached, reverse=True) and reached[0] == pytest.approx(0.761, abs=1e-3)


def test_each_level_holds_to_its_end_where_it_jumps():
    below, above = ([binomial_level(end + by, 0.1) for end in ends()] for by in (-1e-9, 1e-9))
    assert below[1:] == above[:-1] and above[-1] == 0 and sorted(below, reverse=True) == below
    assert binomial_level(-40.0, 0.1) == binomial_level(0.0, 0.1) == below[0]


@pytest.mark.parametrize("delta", [1e-12, 0.025, 0.9])
def test_no_level_is_above_its_definition(delta):
    """In 50 digits, at the ends and some floats around them."""
    with mpmath.workdps(50):
        for end in ends():
            for ulps in range(-200, 201):
                ratio, most, true = end + ulps * math.ulp(end), mpmath.mpf(0), mpmath.mpf(0)
                for nats, share in LEVELS.items():
                    most += mpmath.exp(nats)
                    if mpmath.exp(ratio) <= most:
                        true = mpmath.mpf(share) * mpmath.mpf(delta) * mpmath.exp(-mpmath.mpf(nats))
                        break
                assert binomial_level(ratio, delta) <= true


def test_all_draws_together_share_all_of_delta():
    shares = [draw_share(draw) for draw in range(1, 2001)]
    assert shares == sorted(shares, reverse=True)
    # The rest after n draws is .1/n.
    assert math.fsum(shares) == pytest.approx(1 - 0.1 / 2000, abs=1e-12)


@pytest.mark.parametrize("draw", [0, -1, True, 1.0, "1", None])
def test_what_is_no_number_of_a_draw(draw):
    with pytest.raises(InvalidInput, match="draws are counted"):
        draw_share(draw)
