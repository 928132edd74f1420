"""A world where every risk is known exactly, small enough for thousands of certificates.

One of ``cells`` cells is drawn, x is its unit vector times a length, and the label, 0 or 1, is the cell's own, flipped
with a known probability. The network is one Linear without bias, so it answers 1 in a cell with probability Φ of a
ratio, whatever the length. The prior gives the cell's own label nearly always, so that its empirical risk varies from
data to data. A posterior is "trained" in closed form: in each cell its means lean towards the labels seen, by a
strength that may be chosen after the data are seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import stats
from torch import nn

from pacbayes.certificates.classes import ClassCertificate
from pacbayes.certificates.evidence import Evidence
from pacbayes.data import Data, as_data
from pacbayes.networks import StochasticNetwork, stochastic

CELLS = 6
PRIOR_DEVIATION = 0.5
STRENGTHS = (0.0, 0.1, 0.3, 1.0, 3.0)
CATONI = [0.4, 1.6]
UNIT, VISITS, VOTERS = 2**40, 300, 3
FALSE_ALARM = 1e-8


def allowed(probability: float, runs: int) -> int:
    """The failures that a method of this failure probability exceeds with probability below FALSE_ALARM."""
    return int(stats.binom.isf(FALSE_ALARM, runs, probability))


def flips(cells: int) -> np.ndarray:
    return np.linspace(0.05, 0.35, cells)


def labels(cells: int) -> np.ndarray:
    return np.arange(cells) % 2


def prior_gap(cells: int) -> np.ndarray:
    """The prior's mean of (output 1 - output 0) in each cell."""
    return 4 * PRIOR_DEVIATION * (2 * labels(cells) - 1)


@dataclass(frozen=True)
class Sample:
    cell: np.ndarray
    label: np.ndarray
    cells: int = CELLS


def sample(m: int, rng: np.random.Generator, cells: int = CELLS) -> Sample:
    cell = rng.integers(cells, size=m)
    label = labels(cells)[cell]
    return Sample(cell, np.where(rng.random(m) < flips(cells)[cell], 1 - label, label), cells)


def gaps(data: Sample, strength: float) -> np.ndarray:
    """The posterior's mean of (output 1 - output 0) in each cell, less the prior's."""
    lean = np.bincount(data.cell, 2 * data.label - 1, data.cells)
    return strength * np.clip(lean, -3, 3) * PRIOR_DEVIATION


def wrong(answers_one: np.ndarray) -> np.ndarray:
    """[cells, labels]: the chance to be wrong, from the chance to answer 1."""
    return np.stack([answers_one, 1 - answers_one], 1)


def answer_one(gap: np.ndarray) -> np.ndarray:
    """The chance to answer 1 in each cell, where the posterior is this far from the prior."""
    return stats.norm.cdf((prior_gap(len(gap)) + gap) / (math.sqrt(2) * PRIOR_DEVIATION))


def true_risk(answers_one: np.ndarray) -> float:
    cells = len(answers_one)
    error, flip = wrong(answers_one)[np.arange(cells), labels(cells)], flips(cells)
    return float(((1 - flip) * error + flip * (1 - error)).mean())


def empirical(answers_one: np.ndarray, data: Sample) -> np.ndarray:
    """For each example the chance to be wrong on it."""
    return wrong(answers_one)[data.cell, data.label]


def divergence(gap: np.ndarray) -> float:
    """KL(Q‖P): the two means of a cell move by half the gap each, the deviations stay."""
    return float((gap**2).sum() / (4 * PRIOR_DEVIATION**2))


def vote_of(p: np.ndarray, voters: int) -> np.ndarray:
    """The chance that at least half of the voters answer so, each with probability p."""
    return stats.binom.sf((voters - 1) // 2, voters, p)


def base(m: int, delta: float, mc_delta: float, bound: str, **changes: object) -> Evidence:
    start = Evidence(
        errors=0, visits=VISITS, draws=VISITS, kl=0.0, m=m, delta=delta, mc_delta=mc_delta, limit="clopper-pearson",
        sampling="independent", bound=bound, catoni=CATONI, profile_kl=0.0,
    )  # fmt: skip
    return replace(start, **changes)


def worst(trials: list[tuple[float, float]]) -> bool:
    """Whether any posterior's bound is below its true risk: the bounds hold for all posteriors at once."""
    return any(bound < truth for bound, truth in trials)


def exact_fails(
    m: int,
    delta: float,
    bound: str,
    rng: np.random.Generator,
    *,
    cells: int = CELLS,
    strengths: Sequence[float] = STRENGTHS,
) -> bool:
    """The randomised classifier, its empirical risk known: the PAC-Bayes theorem alone."""
    data, trials = sample(m, rng, cells), []
    for strength in strengths:
        gap = gaps(data, strength)
        risk = empirical(answer_one(gap), data)
        e = base(
            m, delta, 0.0, bound, errors=math.ceil(risk.sum() * UNIT), visits=m, draws=0, unit=UNIT, limit="none",
            sampling="exact", kl=divergence(gap), profile_kl=divergence(gap) + math.log(2),
        )  # fmt: skip
        trials.append((e.derived()["risk_bound"], true_risk(answer_one(gap))))
    return worst(trials)


def randomised_fails(m: int, delta: float, bound: str, rng: np.random.Generator) -> bool:
    """With Monte Carlo too, at half of delta each; the posterior is chosen before the draws."""
    data = sample(m, rng)
    gap = gaps(data, rng.choice(STRENGTHS))
    errors = int(rng.binomial(1, np.resize(empirical(answer_one(gap), data), VISITS - VISITS % m)).sum())
    visits = VISITS - VISITS % m
    e = base(m, delta / 2, delta / 2, bound, errors=errors, visits=visits, draws=visits, kl=divergence(gap),
             profile_kl=divergence(gap) + math.log(2))  # fmt: skip
    return bool(e.derived()["risk_bound"] < true_risk(answer_one(gap)))


def single_fails(m: int, delta: float, bound: str, rng: np.random.Generator, *, tries: int = 1) -> bool:
    """One network drawn once; with ``tries`` the most wrongly bounded of several, each charged for."""
    data = sample(m, rng)
    gap = gaps(data, rng.choice(STRENGTHS))
    mean = np.stack([-gap / 2, gap / 2])
    fails = False
    for draw in range(1, tries + 1):
        weights = mean + PRIOR_DEVIATION * rng.standard_normal(mean.shape)
        ratio = float((weights**2 - (weights - mean) ** 2).sum() / (2 * PRIOR_DEVIATION**2))
        answers = (weights[1] - weights[0] > -prior_gap(data.cells)).astype(float)
        e = base(
            m, delta, 0.0, bound, errors=int(empirical(answers, data).sum()), visits=m, draws=1, limit="none",
            sampling="once", predictor="single", kl=divergence(gap), log_ratio=ratio,
            profile_log_ratio=ratio + math.log(2), draw=draw,
        )  # fmt: skip
        fails |= bool(e.derived()["risk_bound"] < true_risk(answers))
    return fails


def picked_failures(networks: int, bound: str, *, m: int = 100, delta: float = 0.2, runs: int = 2000) -> int:
    """A prior of a few networks that err at the same rate and apart: Q is the one with the fewest errors."""
    errors = np.random.default_rng(networks).binomial(m, 0.3, (runs, networks)).min(1)
    e = base(m, delta, 0.0, bound, visits=m, draws=1, limit="none", sampling="once", predictor="single", draw=1,
             log_ratio=math.log(networks), profile_log_ratio=math.log(2 * networks))  # fmt: skip
    bounds = {k: replace(e, errors=k).derived()["risk_bound"] for k in set(errors.tolist())}
    return sum(bounds[k] < 0.3 for k in errors.tolist())


def majority_fails(m: int, delta: float, bound: str, rng: np.random.Generator) -> bool:
    data = sample(m, rng)
    gap = gaps(data, rng.choice(STRENGTHS))
    visits = VISITS - VISITS % m
    p = np.resize(empirical(answer_one(gap), data), visits)
    wrongs = rng.random((VOTERS, visits)) < p
    pair = rng.integers(VOTERS, size=(2, visits))
    both = np.take_along_axis(wrongs, pair, 0).all(0)
    e = base(
        m, delta / 2, delta / 2, bound, errors=int(wrongs[0].sum()), pair_errors=int(both.sum()), visits=visits,
        vote_errors=int((wrongs.sum(0) * 2 >= VOTERS).sum()), draws=visits, predictor="majority", voters=VOTERS,
        kl=divergence(gap), profile_kl=divergence(gap) + math.log(2),
    )  # fmt: skip
    return bool(e.derived()["risk_bound"] < true_risk(vote_of(answer_one(gap), VOTERS)))


def classes_fail(m: int, delta: float, bound: str, rng: np.random.Generator) -> bool:
    """Any cell of the confusion below its true rate; two classes, so each is its class's error."""
    data = sample(m, rng)
    gap = gaps(data, rng.choice(STRENGTHS))
    one = answer_one(gap)
    flip = flips(data.cells)
    weight = np.stack([np.where(y == labels(data.cells), 1 - flip, flip) for y in (0, 1)], 1)
    true = (weight * wrong(one)).sum(0) / weight.sum(0)
    counts, visits, sizes = [], [], []
    for y in (0, 1):
        mine = replace(data, cell=data.cell[data.label == y], label=data.label[data.label == y])
        n = len(mine.cell) * (VISITS // m)
        count = int(rng.binomial(1, np.resize(empirical(one, mine), n)).sum()) if n else 0
        counts.append([count, count])
        visits.append(n)
        sizes.append(len(mine.cell))
    issued = ClassCertificate(
        bounds=[], counts=counts, visits=visits, m=sizes, kl=divergence(gap), catoni=CATONI, bound=bound,
        profile_kl=divergence(gap) + math.log(2), delta=delta / 2, mc_delta=delta / 2, prior_fingerprint="",
        posterior_fingerprint="", bound_data_fingerprint="", seed=0,
    )  # fmt: skip
    bounds = issued._recomputed()
    return any(bounds[y][j] < true[y] for y in (0, 1) for j in (0, 1))


METHODS = {
    "the theorem alone": exact_fails,
    "randomised": randomised_fails,
    "single": single_fails,
    "majority": majority_fails,
    "classes": classes_fail,
}


def failures(method: str, m: int, delta: float, bound: str, runs: int, seed: int = 0, **options: object) -> int:
    rng = np.random.default_rng([seed, m, round(1000 * delta), len(method), len(bound)])
    return sum(METHODS[method](m, delta, bound, rng, **options) for _ in range(runs))


def as_network(gap: np.ndarray) -> StochasticNetwork:
    """The same posterior as a network."""
    prior = prior_gap(len(gap))
    net = stochastic(nn.Linear(len(gap), 2, bias=False), PRIOR_DEVIATION**2)
    with torch.no_grad():
        net.mean.copy_(torch.tensor(np.concatenate([-prior / 2, prior / 2])))
        net.freeze_prior()
        net.mean.add_(torch.tensor(np.concatenate([-gap / 2, gap / 2])))
    return net


def ignorant_network(cells: int = CELLS) -> StochasticNetwork:
    """Prior and posterior answer 0 and 1 with the same chance everywhere."""
    net = as_network(-prior_gap(cells))
    net.freeze_prior()
    return net


@torch.no_grad()
def answers_of(net: StochasticNetwork) -> np.ndarray:
    """The chance that a network answers 1 in each cell, whatever its means and deviations are."""
    mean, variance = (v.double().view(2, -1).numpy() for v in (net.mean, net.rho.abs() ** 3))
    return stats.norm.cdf((mean[1] - mean[0]) / np.sqrt(variance.sum(0)))


def as_examples(data: Sample) -> Data:
    """With a length of its own for each example, so that no two are equal; the answer does not depend on it."""
    length = 1 + np.arange(len(data.cell))[:, None] / len(data.cell)
    return as_data((np.eye(data.cells)[data.cell] * length, data.label), classes=2)
