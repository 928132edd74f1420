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
VOTERS = range(1, 7)


def answers(voters: int, classes: int, p: Fraction) -> list[tuple[Fraction, tuple[int, ...]]]:
    """(probability, labels) of all that the voters may answer, where each errs with probability p; 0 is right."""
    chance = [1 - p, *[p / (classes - 1)] * (classes - 1)]
    return [(math.prod(chance[label] for label in labels), labels) for labels in product(range(classes), repeat=voters)]


def vote_errs(voters: int, p: Fraction, classes: int = 2) -> Fraction:
    """The probability that the vote errs; a tie is an error."""
    return sum(
        chance
        for chance, labels in answers(voters, classes, p)
        if labels.count(0) <= max(labels.count(label) for label in range(1, classes))
    )


def both_err(voters: int, p: Fraction) -> Fraction:
    """The probability that two voters, picked at random with replacement, both err."""
    pairs = list(product(range(voters), repeat=2))
    return sum(chance * sum(who[i] * who[j] for i, j in pairs) for chance, who in answers(voters, 2, p)) / len(pairs)


@pytest.mark.parametrize("voters", VOTERS)
@pytest.mark.parametrize("p", RISKS)
def test_the_rules_hold(voters, p):
    rules, pairs = vote_rules(voters), both_err(voters, p)
    for classes in (2, 3, 4):
        vote = vote_errs(voters, p, classes)
        assert vote <= rules["twice"].factor * p and vote <= rules["pairs"].factor * pairs


def test_the_rules_hold_on_average_over_the_examples():
    """Each example with a risk of its own; the mean of the pairs is not that of the mean risk."""
    for voters in VOTERS:
        vote, single, pairs = (
            sum(f(voters, p) for p in RISKS) / len(RISKS) for f in (vote_errs, lambda _, p: p, both_err)
        )
        rules = vote_rules(voters)
        assert vote <= rules["twice"].factor * single and vote <= rules["pairs"].factor * pairs
        assert voters == 1 or pairs > both_err(voters, sum(RISKS) / len(RISKS))


def test_no_smaller_factor_would_do():
    """Two voters that rarely err: the vote errs where either does."""
    p, rules = Fraction(1, 1000), vote_rules(2)
    assert vote_errs(2, p) > (rules["twice"].factor - Fraction(1, 100)) * p
    assert vote_errs(2, p) > (rules["pairs"].factor - Fraction(1, 100)) * both_err(2, p)


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
