"""Errors of published PAC-Bayes code, planted one by one: each must be caught by a guard that passes without it.

A guard is a small form of a test of this suite; a bug is a change of one function of the library.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace

import mpmath
import numpy as np
import pytest
import torch
from known_world import (
    Sample,
    allowed,
    as_examples,
    as_network,
    failures,
    gaps,
    ignorant_network,
    picked_failures,
    sample,
)
from mpmath import mpf
from torch import nn

from pacbayes.bounds import binomial_level, chernoff_upper, kl_inverse, penalty
from pacbayes.certificates import certify, evidence, monte_carlo
from pacbayes.certificates.evidence import Evidence
from pacbayes.certificates.monte_carlo import independent_errors, shared_errors
from pacbayes.data import Data
from pacbayes.errors import PacBayesError, UnsupportedModel
from pacbayes.networks import divergence, memory, stochastic
from pacbayes.networks.stochastic import StochasticNetwork
from pacbayes.seeds import derived_seed
from pacbayes.training import fit

CONVERSION, SPLITS = sys.modules["pacbayes.networks.conversion"], sys.modules["pacbayes.data.splits"]
CERTIFY = sys.modules["pacbayes.certificates.certify"]
COUNTS = Evidence(
    errors=6, visits=300, draws=300, kl=3.0, m=100, delta=0.1, mc_delta=0.05, limit="one-sided",
    sampling="independent", catoni=[0.4, 1.6], profile_kl=9.0,
)  # fmt: skip


# Guards


def numbers() -> None:
    """The paper's bound, to twelve digits and never below."""
    with mpmath.workdps(30):
        for e in (COUNTS, replace(COUNTS, errors=0), replace(COUNTS, errors=300), replace(COUNTS, errors=77, kl=0.5)):
            limit = _inverse(mpf(e.errors) / e.visits, mpmath.log(1 / mpf(e.mc_delta)) / e.draws)
            true = _inverse(limit, (mpf(e.kl) + mpmath.log(2 * mpmath.sqrt(e.m) / mpf(e.delta))) / e.m)
            found = mpf(e.derived()["risk_bound"])
            assert true <= found <= true * (1 + mpf(10) ** -11)


def _inverse(q: mpf, c: mpf) -> mpf:
    low, high = q, mpf(1)
    for _ in range(90):
        p = (low + high) / 2
        value = (q * mpmath.log(q / p) if q else 0) + ((1 - q) * mpmath.log((1 - q) / (1 - p)) if q < 1 else 0)
        low, high = (p, high) if value <= c else (low, p)
    return low


def catonis_number() -> None:
    """Catoni's bound at the better of two C, each at half of delta."""
    pen = (3.0 + math.log(2 / 0.1)) / 100
    risk = chernoff_upper(0.02, 300, 0.05)
    true = min(math.expm1(-c * risk - pen) / math.expm1(-c) for c in (0.4, 1.6))
    assert replace(COUNTS, bound="catoni").derived()["risk_bound"] == pytest.approx(true, rel=1e-9)


def examples_counted() -> None:
    data = sample(40, np.random.default_rng(0))
    assert certify(as_network(gaps(data, 0.0)), as_examples(data), draws=10).m == 40


def kl_of_the_weights() -> None:
    """Against the sum over all weights, by hand."""
    net = as_network(np.full(6, 0.7))
    assert certify(net, as_examples(sample(40, np.random.default_rng(0))), draws=10).kl == pytest.approx(
        6 * 0.49, rel=1e-5
    )


def profile_of_the_weights() -> None:
    """The choice of a scale is paid for: the best scale's KL alone would be lower by log 2J."""
    net = as_network(np.full(6, 5.0))
    excess = 1 + ((net.mean.detach() - net.prior_mean) / 0.5).square().mean().item()
    assert net.profile_kl().item() > 6 * math.log(excess) + math.log(2 * 4000)


def disjoint_parts() -> None:
    """No example may be in both parts, and a prior that has seen the bound data gets no certificate."""
    data = as_examples(sample(60, np.random.default_rng(1)))
    prior_data, bound_data = SPLITS.split(data, 0.5, 0)
    assert len(prior_data) + len(bound_data) == 60 and not bound_data.overlaps(prior_data)


def prior_that_saw_the_bound_data() -> None:
    data = as_examples(sample(60, np.random.default_rng(1)))
    net = as_network(np.zeros(6))
    fit(net, data, epochs=1)
    net.freeze_prior()
    with pytest.raises(PacBayesError, match="prior was trained on"):
        certify(net, data, draws=10)


def one_cell() -> tuple[StochasticNetwork, Data]:
    """A coin for a network, and 40 examples that differ in length alone: what shares a draw gets one answer."""
    return ignorant_network(), as_examples(Sample(np.zeros(40, int), np.zeros(40, int)))


def independent_visits() -> None:
    """400 visits spread as 400 coins do, not as 10 draws of 40 equal ones."""
    net, data = one_cell()
    counts = [independent_errors(net, data, 400, seed) for seed in range(60)]
    # The variance of 400 coins is 100; of 60 such counts it exceeds 300 with probability below 1e-12.
    assert np.var(counts) < 300


def shared_draws() -> None:
    """Failures of the limit from 10 draws on 40 examples each, against mc_delta."""
    net, data = one_cell()
    e = replace(COUNTS, visits=400, draws=10, m=40, mc_delta=0.1, sampling="shared")
    counts = [sum(shared_errors(net, data, 10, seed)) for seed in range(300)]
    limits = [replace(e, errors=count).derived()["empirical_risk_bound"] for count in counts]
    assert sum(limit < 0.5 for limit in limits) <= allowed(0.1, 300)


def weighted_batches() -> None:
    """The count does not depend on how the visits are cut into chunks, a short last one among them."""
    data = sample(50, np.random.default_rng(3))
    net, examples = as_network(gaps(data, 20.0)), as_examples(data)
    # So far from the boundary every draw gives the same answers.
    wrong = int((net(examples.x, "mean").argmax(-1) != examples.y).sum())
    before, memory.LARGEST_CHUNK = memory.LARGEST_CHUNK, 48
    try:
        assert independent_errors(net, examples, 50, 0) == wrong > 0
    finally:
        memory.LARGEST_CHUNK = before


def batch_normalisation() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 2))
    with pytest.raises(UnsupportedModel):
        certify(stochastic(model, 0.1), (torch.randn(30, 4), torch.arange(30) % 2), draws=10)


def coverage() -> None:
    """Failures of the theorem at small m, against delta; false alarms below 1e-8."""
    assert failures("the theorem alone", 30, 0.1, "exact", 60) <= allowed(0.1, 60)


def coverage_of_an_overfit() -> None:
    """The same for a posterior that knows its data by heart: only the KL keeps its bound valid."""
    found = failures("the theorem alone", 60, 0.1, "exact", 60, cells=200, strengths=(10.0,))
    assert found <= allowed(0.1, 60)


def the_best_of_three() -> None:
    """Failures of the binomial bound for the network with the fewest errors, against delta."""
    assert picked_failures(3, "binomial") <= allowed(0.2, 2000)


def several_draws() -> None:
    """The bound of the third network drawn is above that of the first, all else equal."""
    e = replace(COUNTS, visits=100, draws=1, mc_delta=0.0, limit="none", sampling="once", predictor="single")
    first, third = (replace(e, log_ratio=2.0, draw=draw).derived()["risk_bound"] for draw in (1, 3))
    assert third > first


# Bugs


def midpoint_inverse(q: float, c: float) -> float:
    low, high = q, 1.0
    for _ in range(30):
        p = (low + high) / 2
        value = (q * math.log(q / p) if q else 0) + ((1 - q) * math.log((1 - q) / (1 - p)) if q < 1 else 0)
        low, high = (p, high) if value <= c else (low, p)
    return (low + high) / 2


def overlapping_split(data, fraction=0.5, seed=0):
    """The prior's indices unshuffled, the bound's the shuffled tail."""
    size = round(fraction * len(data))
    return data.take(np.arange(size)), data.take(np.random.default_rng(seed).permutation(len(data))[size:])


def shared_forward(self, x, sampling="shared", generator=None, dropout=0.0):
    sampling = "shared" if sampling == "independent" else sampling
    return forward(self, x, sampling, generator, dropout)


def mean_of_means(net, data, draws, seed, progress, count):
    generator = torch.Generator().manual_seed(derived_seed(seed, 1))
    chunks = list(monte_carlo._visits(len(data), draws, memory.LARGEST_CHUNK, generator))
    rates = [count(data.x[i], data.y[i], generator) / len(i) for i in chunks]
    return (torch.stack(rates).mean() * draws).round().long()


forward, kl_sum, derived = StochasticNetwork.forward, StochasticNetwork.kl, Evidence.derived

BUGS: dict[str, tuple[object, str, Callable, Callable[[], None]]] = {
    "m of the whole dataset": (Evidence, "derived", lambda e: derived(replace(e, m=2 * e.m)), numbers),
    "no penalty, by its failures": (evidence, "penalty_of_ratio", lambda *_, **__: 0.0, coverage),
    "no KL": (evidence, "penalty_of_ratio", lambda kl, *a, **k: penalty(0.0, *a, **k), coverage_of_an_overfit),
    "m from a loader": (CERTIFY, "Evidence", lambda **e: Evidence(**{**e, "m": 2 * e["m"]}), examples_counted),
    "parts that overlap": (SPLITS, "split", overlapping_split, disjoint_parts),
    "overlap not looked for": (Data, "overlaps", lambda *_: False, prior_that_saw_the_bound_data),
    "BatchNorm let through": (CONVERSION, "_refuse_batch_statistics", lambda *_: None, batch_normalisation),
    "midpoint of the inverse": (evidence, "kl_inverse", midpoint_inverse, numbers),
    "inverse of 1 is 0": (evidence, "kl_inverse", lambda q, c: kl_inverse(q, c) if q < 1 else 0.0, numbers),
    "the Monte-Carlo mean as if known": (evidence, "chernoff_upper", lambda mean, *_, **__: mean, numbers),
    "more draws than were made": (
        evidence,
        "chernoff_upper",
        lambda mean, n, d, **k: chernoff_upper(mean, 10 * n, d, **k),
        numbers,
    ),
    "visits of shared draws as draws": (
        evidence,
        "chernoff_upper",
        lambda mean, n, d, **k: chernoff_upper(mean, 40 * n, d, **k),
        shared_draws,
    ),
    "no log term": (evidence, "penalty_of_ratio", lambda kl, m, delta, **_: kl / m, numbers),
    "log(2 sqrt m)/delta": (
        evidence,
        "penalty_of_ratio",
        lambda kl, m, delta, **_: (kl + math.log(2 * math.sqrt(m)) / delta) / m,
        numbers,
    ),
    "mc_delta for delta": (Evidence, "derived", lambda e: derived(replace(e, delta=e.mc_delta)), numbers),
    "C chosen on the bound data": (evidence, "catoni", lambda risk, pen, c: kl_inverse(risk, pen), catonis_number),
    "a grid of C for nothing": (
        evidence,
        "check_catoni",
        lambda values: [min(values, key=lambda c: abs(c - 0.4))],
        catonis_number,
    ),
    "the mean of batch means": (monte_carlo, "_totals", mean_of_means, weighted_batches),
    "KL as a mean": (
        StochasticNetwork,
        "kl",
        lambda self, exact=True: kl_sum(self, exact) / len(self.mean),
        kl_of_the_weights,
    ),
    "scales for nothing": (divergence, "CHANGING", 0.0, profile_of_the_weights),
    "dependent visits as independent": (StochasticNetwork, "forward", shared_forward, independent_visits),
    "a log ratio for nothing": (
        evidence,
        "binomial_level",
        lambda ratio, delta: binomial_level(0.0, delta),
        the_best_of_three,
    ),
    "draws for nothing": (evidence, "draw_share", lambda draw: 1.0, several_draws),
}


@pytest.mark.parametrize("guard", sorted({bug[3] for bug in BUGS.values()}, key=lambda g: g.__name__))
def test_the_guards_pass_without_a_bug(guard):
    guard()


@pytest.mark.filterwarnings("ignore:.*one that the prior has seen")
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(name, monkeypatch):
    target, attribute, bug, guard = BUGS[name]
    monkeypatch.setattr(target, attribute, bug)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        guard()
