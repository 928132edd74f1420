"""Coverage of trained networks: over fresh data sets, the bound is below the true risk no more often than it may be.

In the known world, with more cells than most data sets have examples, so that training can overfit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from known_world import allowed, answers_of, as_examples, ignorant_network, sample, true_risk

from pacbayes.certificates import Certificate, certify, holdout_bound
from pacbayes.certificates.monte_carlo import independent_errors
from pacbayes.data import Data, as_data, split
from pacbayes.networks import StochasticNetwork
from pacbayes.training import fit

CELLS = 40
DELTA, MC_DELTA = 0.2, 0.1
OVERFIT = {"objective": "ERM", "rate": 30.0, "momentum": 0.0, "evaluate": "running"}

Trial = Callable[[int], tuple[float, float]]
"""From a seed to a bound and the true risk that it is for."""


def fresh(m: int, seed: int) -> Data:
    return as_examples(sample(m, np.random.default_rng(seed), CELLS))


def issued(net: StochasticNetwork, data: Data, seed: int, **options: object) -> Certificate:
    options = {"limit": "clopper-pearson", "draws": 500, **options}
    return certify(net, data, delta=DELTA, mc_delta=MC_DELTA, seed=seed, **options)


def certified(net: StochasticNetwork, data: Data, seed: int, **options: object) -> tuple[float, float]:
    return issued(net, data, seed, **options).risk_bound, true_risk(answers_of(net))


def below(trial: Trial, runs: int) -> int:
    """How often the trial's bound is below the true risk."""
    outcomes = [trial(seed) for seed in range(runs)]
    return sum(bound < truth for bound, truth in outcomes)


def test_the_true_risk_of_a_trained_network_is_that_of_the_world():
    """200,000 fresh examples and draws: a standard error of .0011, so 7 of them are exceeded with probability 3e-12."""
    net = ignorant_network(CELLS)
    fit(net, fresh(200, 1), epochs=5, rate=0.1)
    errors = independent_errors(net, fresh(200_000, 2), 200_000, 3)
    assert abs(errors / 200_000 - true_risk(answers_of(net))) < 7 * 0.0012


def overfitted(seed: int) -> tuple[StochasticNetwork, Data]:
    net, data = ignorant_network(CELLS), fresh(30, seed)
    fit(net, data, epochs=10, delta=DELTA, seed=seed, **OVERFIT)
    return net, data


def data_free(seed: int) -> tuple[float, float]:
    """A posterior that overfits its data: only the KL keeps its bound valid."""
    return certified(*overfitted(seed), seed, draws=200)


def learnt_prior(seed: int) -> tuple[float, float]:
    net = ignorant_network(CELLS)
    prior_data, bound_data = split(fresh(60, seed), 0.5, seed)
    fit(net, prior_data, epochs=5, seed=seed, **OVERFIT)
    net.freeze_prior()
    fit(net, bound_data, epochs=3, rate=1.0, momentum=0.5, delta=DELTA, evaluate="running", seed=seed)
    return certified(net, bound_data, seed, limit="one-sided", draws=200)


@pytest.mark.parametrize("trial", [data_free, learnt_prior])
def test_a_certificate_fails_no_more_often_than_it_says(trial):
    """Confidence 0.7. A valid method is found invalid with probability below 1e-8."""
    assert below(trial, 150) <= allowed(DELTA + MC_DELTA, 150)


def without_kl(seed: int) -> tuple[float, float]:
    """The KL left out of the penalty."""
    net, data = overfitted(seed)
    evidence = replace(issued(net, data, seed, draws=200).evidence(), kl=0.0)
    return evidence.derived()["risk_bound"], true_risk(answers_of(net))


def prior_from_the_bound_data(seed: int) -> tuple[float, float]:
    """The prior overfits the very data of the bound, and its record of them is wiped."""
    net, data = ignorant_network(CELLS), fresh(30, seed)
    fit(net, data, epochs=25, keep="last", seed=seed, **OVERFIT)
    net.trained_on.clear()
    net.freeze_prior()
    return certified(net, data, seed)


def copies_as_data(seed: int) -> tuple[float, float]:
    """An m that is too large: each example counted a thousand times."""
    net, data = ignorant_network(CELLS), fresh(20, seed)
    fit(net, data, epochs=25, keep="last", seed=seed, **OVERFIT)
    return certified(net, as_data((data.x.repeat(1000, 1), data.y.repeat(1000)), classes=2), seed)


@pytest.mark.parametrize("fault", [without_kl, prior_from_the_bound_data, copies_as_data])
def test_faults_are_caught(fault):
    """The test above has power: these make most of the bounds fail."""
    assert below(fault, 60) > allowed(DELTA + MC_DELTA, 60)


def test_the_holdout_bound_of_a_learnt_prior():
    """Nearly exact, so that it is tested from both sides: at least a tenth of what is allowed must fail."""

    def trial(seed: int) -> tuple[float, float]:
        net = ignorant_network(CELLS)
        prior_data, bound_data = split(fresh(90, seed), 0.3, seed)
        fit(net, prior_data, objective="ERM", epochs=5, rate=1.0, momentum=0.5, evaluate="running", seed=seed)
        net.freeze_prior()
        return holdout_bound(net, bound_data, delta=0.3, seed=seed), true_risk(answers_of(net))

    assert 0.03 * 150 <= below(trial, 150) <= allowed(0.3, 150)


def test_true_risks_are_neither_trivial_nor_all_alike():
    risks = [learnt_prior(seed)[1] for seed in range(10)]
    assert 0.2 < np.mean(risks) < 0.48 and np.std(risks) > 0.005
