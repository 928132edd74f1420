"""Coverage of every bound and predictor where the risk is known: failures against delta, with small m.

Each test counts the failures of a valid method in ``RUNS`` fresh data sets, and finds it invalid with probability below
1e-8. What the bounds need is computed here from formulas; that certify computes the same is tested too.
"""

from __future__ import annotations

import numpy as np
import pytest
from known_world import (
    CATONI,
    CELLS,
    METHODS,
    allowed,
    answer_one,
    answers_of,
    as_examples,
    as_network,
    divergence,
    empirical,
    failures,
    gaps,
    picked_failures,
    prior_gap,
    sample,
    true_risk,
    vote_of,
)

from pacbayes.bounds import chernoff_upper, clopper_pearson_upper
from pacbayes.certificates import certify
from pacbayes.certificates.evidence import BOUNDS, SINGLE_BOUNDS
from pacbayes.certificates.monte_carlo import independent_errors, vote_errors
from pacbayes.certificates.single import single_weights
from pacbayes.networks.divergence import log_ratios

RUNS = 120
PAIRS = [
    (method, bound)
    for method in METHODS
    for bound in (SINGLE_BOUNDS if method == "single" else BOUNDS)
    # 2 sqrt(m) needs 8 examples, which a class may not have.
    if not (method == "classes" and bound.startswith("invKL"))
]


@pytest.mark.parametrize(("method", "bound"), PAIRS)
@pytest.mark.parametrize(("m", "delta"), [(8, 0.5), (30, 0.1)])
def test_failures_stay_within_delta(method, bound, m, delta):
    assert failures(method, m, delta, bound, RUNS) <= allowed(delta, RUNS)


def test_several_networks_drawn_and_charged_for_hold_at_once():
    assert failures("single", 20, 0.4, "exact", RUNS, tries=4) <= allowed(0.4, RUNS)


@pytest.mark.parametrize("bound", ["exact", "catoni", "binomial", "best"])
@pytest.mark.parametrize("networks", [1, 3, 40])
def test_the_network_with_the_fewest_errors(networks, bound):
    assert picked_failures(networks, bound) <= allowed(0.2, 2000)


def test_the_binomial_bound_gives_nothing_away():
    """The prior's own network: it fails as often as its share of delta allows, but for the steps of whole counts."""
    assert 0.05 * 2000 < picked_failures(1, "binomial") <= allowed(0.9 * 0.8 * 0.2, 2000)


def test_the_counts_bite():
    """Not all is slack: with few examples and a large delta, some bounds do fail at times."""
    assert failures("the theorem alone", 30, 0.5, "catoni", 200) >= 4
    assert failures("single", 30, 0.5, "binomial", 200) >= 4


LIMITS = {
    "one-sided": lambda errors, n: chernoff_upper(errors / n, n, 0.3),
    "two-sided": lambda errors, n: chernoff_upper(errors / n, n, 0.3, two_sided=True),
    "clopper-pearson": lambda errors, n: clopper_pearson_upper(errors, n, 0.3),
}


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("draws", [40, 100])
def test_the_monte_carlo_limit_alone(limit, draws):
    """The data stay, the draws are fresh; Err_S(Q) is known. 800 limits at 0.3 each."""
    data, gap = sample(40, np.random.default_rng(5)), np.linspace(-1, 1, CELLS) - prior_gap(CELLS)
    net, examples, truth = as_network(gap), as_examples(data), empirical(answer_one(gap), data).mean()
    found = sum(LIMITS[limit](independent_errors(net, examples, draws, seed), draws) < truth for seed in range(800))
    assert found <= allowed(0.3, 800)
    # None is vacuous: the exact limit fails about as often as it may, the one-sided sometimes.
    assert found >= {"clopper-pearson": 80, "one-sided": 1, "two-sided": 0}[limit]


@pytest.mark.parametrize("strength", [0.0, 0.3, 1.0])
def test_the_formulas_are_those_of_the_network(strength):
    """20,000 visits; each rate within 6 standard errors with probability 1 - 2e-9."""
    rng = np.random.default_rng(5)
    data = sample(40, rng)
    gap = gaps(data, strength)
    net, examples = as_network(gap), as_examples(data)
    assert answers_of(net) == pytest.approx(answer_one(gap), abs=1e-6)
    issued = certify(net, examples, sampling="exact", bound="exact")
    assert issued.kl == pytest.approx(divergence(gap), rel=1e-6, abs=1e-12)
    risk = empirical(answer_one(gap), data).mean()
    assert risk <= issued.empirical_risk + 1e-9 and issued.empirical_risk < risk + 0.004
    assert abs(independent_errors(net, examples, 20_000, 1) / 20_000 - risk) < 6 * 0.0036
    vote = empirical(vote_of(answer_one(gap), 3), data).mean()
    assert abs(vote_errors(net, examples, 3, 20_000, 1)[2] / 20_000 - vote) < 6 * 0.0036
    fresh = sample(20_000, rng)
    found = independent_errors(net, as_examples(fresh), 20_000, 2) / 20_000
    assert abs(found - true_risk(answer_one(gap))) < 6 * 0.005
    weights = net.prior_mean + 0.3
    mean = (net.mean.detach() - net.prior_mean).double().numpy()
    ratio = (0.09 - (0.3 - mean) ** 2).sum() / (2 * 0.25)
    assert log_ratios(net, weights)[0] == pytest.approx(ratio, abs=1e-4)


@pytest.mark.parametrize(("predictor", "bound"), [("single", "best"), ("majority", "exact"), ("randomised", "best")])
def test_whole_certificates(predictor, bound):
    """The same through certify, from data to bound; 40 certificates at confidence 0.6."""
    failed = 0
    for seed in range(40):
        rng = np.random.default_rng([9, seed])
        data = sample(12, rng)
        gap = gaps(data, 1.0)
        net = as_network(gap)
        net.catoni = tuple(CATONI)
        shares = {"delta": 0.4} if predictor == "single" else {"delta": 0.2, "mc_delta": 0.2, "draws": 120}
        voters = 3 if predictor == "majority" else None
        issued = certify(net, as_examples(data), predictor=predictor, bound=bound, voters=voters, seed=seed, **shares)
        answers = answer_one(gap)
        if predictor == "single":
            low, high = single_weights(net, seed).double().numpy().reshape(2, -1)
            answers = (high > low).astype(float)
        if predictor == "majority":
            answers = vote_of(answers, 3)
        failed += issued.risk_bound < true_risk(answers)
    assert failed <= allowed(0.4, 40)
