"""Majority votes: the rules against all that voters can answer, in fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import pytest

from pacbayes.bounds import vote_rules
from pacbayes.bounds.majority import MOST_VOTERS, Rule
from pacbayes.errors import InvalidInput

RISKS = [Fraction(0), Fraction(1, 1000), Fraction(1, 7), Fraction(1, 2), Fraction(9, 10), Fraction(1)]
VOTERS = range(1, 8)


def erring(voters: int, p: Fraction) -> list[tuple[Fraction, tuple[int, ...]]]:
    """(probability, who errs) of every outcome, where each errs with probability p."""
    outcomes = product((0, 1), repeat=voters)
    return [(p ** sum(who) * (1 - p) ** (voters - sum(who)), who) for who in outcomes]


def half_errs(voters: int, p: Fraction) -> Fraction:
    """The probability that half of the voters or more err."""
    return sum(chance for chance, who in erring(voters, p) if 2 * sum(who) >= voters)


def both_err(voters: int, p: Fraction) -> Fraction:
    """The probability that two voters, picked at random with replacement, both err."""
    pairs = list(product(range(voters), repeat=2))
    return sum(chance * sum(who[i] * who[j] for i, j in pairs) for chance, who in erring(voters, p)) / len(pairs)


@pytest.mark.parametrize("voters", range(1, 7))
@pytest.mark.parametrize("classes", [2, 3, 4])
def test_where_the_vote_errs_half_of_the_voters_do(voters, classes):
    """All answers there are; the label is 0, and a tie is an error. With two classes the converse holds too."""
    for answers in product(range(classes), repeat=voters):
        votes = [answers.count(label) for label in range(classes)]
        errs, half = votes[0] <= max(votes[1:]), 2 * (voters - votes[0]) >= voters
        assert half if errs else classes > 2 or not half


@pytest.mark.parametrize("voters", VOTERS)
@pytest.mark.parametrize("p", RISKS)
def test_the_rules_hold(voters, p):
    rules, vote = vote_rules(voters), half_errs(voters, p)
    assert both_err(voters, p) == p / voters + (1 - Fraction(1, voters)) * p**2
    assert vote <= rules["twice"].factor * p
    assert vote <= rules["pairs"].factor * both_err(voters, p)
    assert vote <= rules["vote"].factor * vote


def test_the_rules_hold_on_average_over_the_examples():
    """Each example with a risk of its own; the mean of the pairs is not that of the mean risk."""
    for voters in VOTERS:
        vote, single, pairs = (
            sum(f(voters, p) for p in RISKS) / len(RISKS) for f in (half_errs, lambda _, p: p, both_err)
        )
        rules = vote_rules(voters)
        assert vote <= rules["twice"].factor * single and vote <= rules["pairs"].factor * pairs
        assert voters == 1 or pairs > both_err(voters, sum(RISKS) / len(RISKS))


def test_no_smaller_factor_would_do():
    """Two voters that rarely err: the vote errs where either does."""
    p, rules = Fraction(1, 1000), vote_rules(2)
    assert half_errs(2, p) > (rules["twice"].factor - Fraction(1, 100)) * p
    assert half_errs(2, p) > (rules["pairs"].factor - Fraction(1, 100)) * both_err(2, p)


@pytest.mark.parametrize("voters", [1, 2, 5])
def test_the_divergence_of_what_is_drawn(voters):
    """KL(Q^n‖P^n) over all outcomes is n times KL(Q‖P): one network, a pair, or all voters."""
    q, p = (0.7, 0.2, 0.1), (0.3, 0.3, 0.4)

    def divergence(draws: int) -> float:
        total = 0.0
        for outcome in product(range(3), repeat=draws):
            ratio = math.prod(q[i] / p[i] for i in outcome)
            total += math.prod(q[i] for i in outcome) * math.log(ratio)
        return total

    rules = vote_rules(voters)
    for name, draws in {"twice": 1, "pairs": 2, "vote": voters}.items():
        assert divergence(draws) == pytest.approx(rules[name].copies * divergence(1), rel=1e-12)


def test_the_rules_of_the_largest_vote():
    assert vote_rules(MOST_VOTERS) == {"twice": Rule(2, 1), "pairs": Rule(4, 2), "vote": Rule(1, MOST_VOTERS)}


@pytest.mark.parametrize("voters", [0, -1, True, 2.0, "3", None, MOST_VOTERS + 1, 10**12])
def test_what_is_no_number_of_voters(voters):
    with pytest.raises(InvalidInput, match=f"from 1 to 1000, and is {voters!r}"):
        vote_rules(voters)
