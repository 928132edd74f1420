"""Certificates of single networks, majority votes and losses of one's own; other bounds; time budgets."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import replace

import pytest
import safetensors.torch
import torch
from small_data import frozen_net, gaussian_data
from torch import nn

from pacbayes.bounds import misclassification_probability
from pacbayes.certificates import (
    Certificate,
    certify,
    compare_bounds,
    comparison_table,
    export_single,
    monte_carlo,
)
from pacbayes.certificates.evidence import EXACT_UNIT
from pacbayes.certificates.exact import exact_errors, exact_moments
from pacbayes.certificates.monte_carlo import (
    confusion_counts,
    draws_within,
    vote_errors,
)
from pacbayes.certificates.single import recomputed
from pacbayes.data import as_data
from pacbayes.errors import InvalidInput, PacBayesError, RunError
from pacbayes.networks import stochastic


@pytest.mark.parametrize("bound", ["exact", "catoni", "catoni+profile", "best"])
def test_other_bounds_than_the_papers(bound, trained):
    net, data, _ = trained
    issued = certify(net, data, bound=bound, draws=500, seed=1)
    assert issued.check() == [] and issued.limit == "clopper-pearson" and issued.bound == bound
    assert list(issued.catoni) == list(net.catoni) and issued.part in issued.parts
    assert issued.profile_kl == pytest.approx(net.profile_kl().item(), rel=1e-9)
    assert issued.part in str(issued)


def test_the_default_is_the_papers(trained):
    net, data, _ = trained
    issued = certify(net, data, draws=500, seed=1)
    assert (issued.bound, issued.limit, issued.predictor, issued.draw) == ("invKL", "two-sided", "randomised", 0)
    assert certify(net, data, draws=500, seed=1, bound="best").errors == issued.errors


def test_a_single_network_is_the_exported_one(trained, tmp_path):
    net, data, model = trained
    net.single_draws = 0
    issued = certify(net, data, predictor="single", bound="best", seed=4)
    assert issued.check() == [] and (issued.mc_delta, issued.draw, issued.visits) == (0.0, 1, 90)
    export_single(net, issued, tmp_path / "single.safetensors")
    state = safetensors.torch.load_file(tmp_path / "single.safetensors")
    model.load_state_dict(state)
    assert issued.errors == int((model(data.x).argmax(-1) != data.y).sum())
    found = recomputed(net, state, data)
    assert found == {
        "log_ratio": issued.log_ratio,
        "profile_log_ratio": issued.profile_log_ratio,
        "errors": issued.errors,
    }
    assert "this network errs on at most" in issued.sentence() and "and of the network" in issued.sentence()
    issued.save(tmp_path / "c.json")
    assert Certificate.load(tmp_path / "c.json") == issued


def test_drawing_again_is_charged_for(trained):
    net, data, _ = trained
    net.single_draws = 0
    first, second, third = (certify(net, data, predictor="single", bound="exact", seed=4) for _ in range(3))
    assert [c.draw for c in (first, second, third)] == [1, 2, 3]
    assert first.log_ratio == second.log_ratio and first.risk_bound < second.risk_bound < third.risk_bound
    assert replace(third, draw=1).check()


def test_weights_that_are_not_the_certified_ones(trained, tmp_path):
    net, data, _ = trained
    issued = certify(net, data, predictor="single", seed=4)
    with pytest.raises(RunError, match="does not give the weights"):
        export_single(net, replace(issued, seed=5), tmp_path / "x")
    with pytest.raises(InvalidInput, match="not for a single network"):
        export_single(net, certify(net, data, draws=10), tmp_path / "x")
    assert replace(issued, single_fingerprint="").check()
    good = net.module_state(net.mean)
    for bad in ({}, good | {"0.weight": good["0.weight"].double()}, good | {"more": good["0.bias"]}):
        with pytest.raises(InvalidInput):
            recomputed(net, bad)


@pytest.mark.parametrize("voters", [1, 2, 5])
def test_the_vote_counts_what_it_says(voters):
    """20,000 visits against the exact rates: each within 6 standard errors, 2e-9 each."""
    frozen = frozen_net()
    data = gaussian_data(30, seed=2)
    visits = 20_000
    found = vote_errors(frozen, data, voters, visits, 7)
    mean, variance, _ = exact_moments(frozen, data.x)
    p = torch.stack([misclassification_probability(mean, variance, torch.full_like(data.y, c)) for c in range(3)], 1)
    answers = 1 - p  # [examples, classes]: the chance of each answer
    wrong = p.gather(1, data.y[:, None])[:, 0]
    pairs = (wrong / voters + (1 - 1 / voters) * wrong**2).mean()
    vote = torch.zeros(())
    for combination in torch.cartesian_prod(*[torch.arange(3)] * voters).view(-1, voters):
        chance = answers[:, combination].prod(1)
        count = torch.bincount(combination, minlength=3)
        rivals = count.expand(30, 3).scatter(1, data.y[:, None], -1).amax(1)
        vote = vote + (chance * (count[data.y] <= rivals)).mean()
    for counted, rate in zip(found, (wrong.mean(), pairs, vote), strict=True):
        assert abs(counted / visits - float(rate)) < 6 * (0.25 / visits) ** 0.5


def test_a_majority_certificate(trained):
    net, data, _ = trained
    issued = certify(net, data, predictor="majority", voters=3, bound="best", draws=900, seed=2)
    assert issued.check() == [] and issued.voters == 3 and len(issued.parts) == 9
    assert "majority vote of 3 networks" in issued.sentence()
    assert (issued.errors, issued.pair_errors, issued.vote_errors) == vote_errors(net, data, 3, 900, 2)
    assert replace(issued, vote_errors=issued.vote_errors - 1).check()


def tenth(outputs, y):
    return (outputs.argmax(-1) != y) * 0.1


def test_the_sentence_for_a_loss_is_true_whatever_its_largest_value(trained):
    net, data, _ = trained
    issued = certify(net, data, loss=tenth, draws=500, seed=1)
    assert f"a mean tenth, a loss from 0 to 1, of at most {math.ceil(issued.risk_bound * 1e4) / 1e4:.4f}" in str(issued)
    assert "errors" not in str(issued)


def absolute_loss(outputs, y):
    return 1 - torch.softmax(outputs, -1).gather(-1, y[:, None])[:, 0]


def test_a_loss_of_ones_own(trained):
    net, data, _ = trained
    issued = certify(net, data, loss=absolute_loss, draws=3000, seed=3)
    assert issued.check() == [] and issued.loss == "absolute_loss" and issued.unit == 2**20
    assert "mean absolute_loss" in issued.sentence()
    generator = torch.Generator().manual_seed(0)
    means = torch.stack([absolute_loss(net(data.x, "independent", generator), data.y).mean() for _ in range(200)])
    assert issued.empirical_risk == pytest.approx(means.mean().item(), abs=6 * 0.5 / 3000**0.5)
    assert certify(net, data, loss=absolute_loss, draws=50, bound="best").limit == "one-sided"


def test_the_error_as_a_loss_counts_the_same(trained):
    net, data, _ = trained

    def error(outputs, y):
        return (outputs.argmax(-1) != y).float()

    issued = certify(net, data, loss=error, draws=300, seed=3)
    assert issued.errors == 2**20 * certify(net, data, draws=300, seed=3).errors


@pytest.mark.parametrize(
    "loss",
    [lambda out, y: out[:, 0] * 9, lambda out, y: out[:, 0] * torch.nan, lambda out, y: out, lambda out, y: out.mean()],
)
def test_losses_that_are_none(loss, trained):
    with pytest.raises(InvalidInput, match="the loss must"):
        certify(*trained[:2], loss=loss, draws=50)


@pytest.mark.parametrize("options", [{"predictor": "majority"}, {"predictor": "single"}, {"sampling": "shared"}])
def test_a_loss_is_for_the_randomised_predictor(options, trained):
    with pytest.raises(PacBayesError, match="loss of one's own"):
        certify(*trained[:2], loss=absolute_loss, **options)


@pytest.mark.parametrize(
    ("options", "ignored"),
    [
        ({"predictor": "single", "draws": 20}, "draws"),
        ({"predictor": "single", "sampling": "shared"}, "sampling"),
        ({"predictor": "single", "limit": "one-sided", "mc_delta": 0.02}, "limit, mc_delta"),
        ({"predictor": "single", "budget": 1.0}, "budget"),
        ({"predictor": "single", "voters": 3}, "voters"),
        ({"sampling": "exact", "draws": 20}, "draws"),
        ({"sampling": "exact", "budget": 1.0}, "budget"),
        ({"draws": 20, "budget": 1.0}, "draws"),
        ({"voters": 3}, "voters"),
    ],
)
def test_what_would_be_ignored_is_refused_before_anything_is_drawn(options, ignored, trained):
    net, data, _ = trained
    before = net.single_draws
    with pytest.raises(InvalidInput, match=f"^{ignored} would be ignored"):
        certify(net, data, **options)
    assert net.single_draws == before


def test_another_prior_does_not_make_drawing_again_free():
    net, data = stochastic(nn.Linear(4, 3), 0.1), gaussian_data()
    assert certify(net, data, predictor="single", seed=1).draw == 1
    net.freeze_prior()
    assert certify(net, data, predictor="single", seed=2).draw == 2


def test_a_budget_fixes_the_draws_before_any_result(trained, monkeypatch):
    net, data, _ = trained
    asked = []
    original = monte_carlo.independent_errors

    def watched(*args):
        asked.append(args[2:4])
        return original(*args)

    monkeypatch.setattr(sys.modules["pacbayes.certificates.certify"], "independent_errors", watched)
    start = time.perf_counter()
    issued = certify(net, data, budget=0.5, seed=3)
    assert time.perf_counter() - start < 5
    assert issued.draws == issued.visits == asked[-1][0] > 100
    # The trials have another seed, so that they are no part of what is counted.
    assert asked[-1][1] == 3 and all(seed != 3 for _, seed in asked[:-1])
    assert issued.errors == original(net, data, issued.draws, 3) and issued.check() == []


@pytest.mark.parametrize("waits", [None, 1, 2, 3])
def test_the_number_of_draws_depends_on_time_alone(waits, monkeypatch):
    """Of three trials that are long enough the one in the middle: one that had to wait for other work says nothing."""
    now, asked = 0.0, []

    def count(draws):
        nonlocal now
        asked.append(draws)
        now += draws / 1024 + (10.0 if len(asked) - 1 == waits else 0.0)

    monkeypatch.setattr(monte_carlo.time, "perf_counter", lambda: now)
    found = draws_within(20.0, count)
    # 1/16 s, then 1/4, then 1: more than a fortieth of 20. Should one of the first two wait, it ends the search.
    assert asked == ([64, 256, 1024, 1024, 1024] if waits != 1 else [64, 256, 256, 256])
    assert found == int(0.95 * (20 - now) * 1024)


@pytest.mark.parametrize("budget", [0.0, -1.0, float("nan"), float("inf")])
def test_no_budget(budget, trained):
    with pytest.raises(InvalidInput, match="budget"):
        certify(*trained[:2], budget=budget)


def test_a_c_fixed_after_training_is_refused(trained):
    net = trained[0]
    with pytest.raises(InvalidInput, match="before the posterior"):
        net.fix_catoni(0.5)


def test_the_comparison(trained):
    net, data, _ = trained
    issued = certify(net, data, bound="best", draws=500, seed=1)
    bounds = compare_bounds(issued)
    assert bounds["best, all together"] == issued.risk_bound
    assert bounds["the paper's"] == certify(net, data, draws=500, seed=1).risk_bound
    assert bounds["exact constant"] < bounds["the paper's"] > bounds["binomial limit"]
    text = comparison_table(issued, 0.25)
    assert "+0.0 %" in text and "plain hold-out" in text and len(text.splitlines()) == 8
    with pytest.raises(InvalidInput):
        compare_bounds(certify(net, data, predictor="single"))


def test_the_comparison_has_no_limits_that_the_counts_do_not_allow(trained):
    net, data, _ = trained
    limits = {"one-sided limit", "binomial limit"}
    shared = certify(net, data, bound="best", sampling="shared", draws=50, seed=1)
    computed = certify(frozen_net(), data, bound="best", sampling="exact")
    for issued, there in ((shared, {"one-sided limit"}), (computed, set())):
        bounds = compare_bounds(issued)
        assert bounds.keys() & limits == there and bounds["best, all together"] == issued.risk_bound


def test_an_output_that_is_no_number_is_the_answer():
    class Exp(nn.Module):
        def forward(self, x):
            return x.exp()

    # In a few draws of the first weight, from N(68, 100), the exponential overflows, and differences of infinities are
    # no numbers: a prediction takes the first of these for the answer.
    net = stochastic(nn.Sequential(nn.Linear(1, 1, bias=False), Exp(), nn.Linear(1, 3, bias=False)), 100.0)
    with torch.no_grad():
        net.mean.copy_(torch.tensor([68, 1, 0.5, -5]))
        net.rho[1:] = 0.001
    data = as_data((torch.ones(20_000, 1), torch.zeros(20_000, dtype=torch.int64)), classes=3)
    with torch.no_grad():
        answers = net(data.x, "independent").argmax(-1)
    assert (answers == 2).sum() > 10  # .0024 are expected
    assert confusion_counts(net, data, 20_000, 0)[0, 2] > 10


def test_what_is_no_number_is_an_error():
    class Direction(nn.Module):
        def forward(self, x):
            return x / x.norm(dim=1, keepdim=True)

    net = stochastic(nn.Sequential(Direction(), nn.Linear(4, 2)), 0.1)
    x = gaussian_data(20).x
    x[:6] = 0
    data = as_data((x, torch.zeros(20, dtype=torch.int64)), classes=2)
    rest = as_data((x[6:], torch.zeros(14, dtype=torch.int64)), classes=2)
    assert exact_errors(net, data) == exact_errors(net, rest) + 6 * EXACT_UNIT


def test_tied_weights_are_exported_under_all_their_names(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.last(torch.relu(self.second(torch.relu(self.first(x)))))

    model, data = Tied(), gaussian_data()
    net = stochastic(model, 0.05)
    issued = certify(net, data, predictor="single", seed=4)
    export_single(net, issued, tmp_path / "single.safetensors")
    state = safetensors.torch.load_file(tmp_path / "single.safetensors")
    model.load_state_dict(state)
    assert issued.errors == int((model(data.x).argmax(-1) != data.y).sum()) == recomputed(net, state, data)["errors"]
    with pytest.raises(InvalidInput, match="by another name"):
        recomputed(net, state | {"second.weight": state["second.weight"] + 1})
