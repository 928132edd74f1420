"""Training lowers what it says it lowers, reproducibly, and keeps the epoch it says it keeps."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from pacbayes.bounds import kl_inverse, penalty
from pacbayes.certificates.certify import certify
from pacbayes.data import as_data
from pacbayes.errors import InvalidInput, PacBayesError
from pacbayes.networks import layers, stochastic
from pacbayes.networks.distributions import SCALE_FLOOR
from pacbayes.training import Checkpoint, Epoch, Settings, fit
from pacbayes.training.fit import check_fit
from pacbayes.training.loss import bounded_cross_entropy

OBJECTIVES = ("invKL", "McAll", "quad", "lbd", "ERM")


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("method", ["G", "S"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_lowers_the_bound_or_the_risk(
    objective, method, classes, blobs, small_net, average_bound, average_risk
):
    problem, net = blobs(192, classes), small_net(classes)
    risk, bound = average_risk(net, problem), average_bound(net, problem)
    # The cross-entropy's slope, scaled into [0, 1], is small beside the penalty's on so few data.
    options = {"G": {"rate": 0.05}, "S": {"rate": 0.3, "p_min": 0.01, "kappa": 0.2}}[method]
    fit(net, problem, objective=objective, method=method, epochs=15, batch_size=64, **options)
    assert average_risk(net, problem) < risk - 0.1
    if objective != "ERM":
        assert average_bound(net, problem) < bound - 0.05
        assert net.kl().item() < 60


@pytest.mark.parametrize("distribution", ["gaussian", "laplace"])
@pytest.mark.parametrize("sampling", ["shared", "independent", "mixed"])
def test_every_law_and_every_sampling(sampling, distribution, blobs, small_net, average_bound):
    problem, net = blobs(192, 3), small_net(3, distribution=distribution)
    before = average_bound(net, problem)
    fit(net, problem, sampling=sampling, epochs=15, rate=0.05, batch_size=64)
    assert average_bound(net, problem) < before - 0.05


@pytest.mark.parametrize(
    ("estimator", "classes"), [("L1", 3), ("L2", 3), ("quadrature", 3), ("closed-form", 2), ("L1", 2), ("L2", 2)]
)
def test_every_estimator(estimator, classes, blobs, small_net, average_bound):
    problem, net = blobs(192, classes), small_net(classes)
    before = average_bound(net, problem)
    fit(net, problem, estimator=estimator, samples=20, epochs=15, rate=0.05, batch_size=64)
    assert average_bound(net, problem) < before - 0.05


def test_the_closed_form_is_refused_for_more_than_two_classes_before_any_work(blobs, small_net):
    with pytest.raises(InvalidInput, match="two classes, not 3"):
        check_fit(small_net(3), as_data(blobs(192, 3)), Settings(estimator="closed-form"))


def test_a_convolutional_network_trains(average_bound):
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(128) % 2
    x = torch.randn(128, 1, 4, 4, generator=generator) + 2 * (y.view(-1, 1, 1, 1) * 2 - 1)
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(1, 3, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(48, 2)
        )
    net = stochastic(model, 0.01)
    history = fit(net, (x, y), epochs=10, rate=0.02, batch_size=32)
    assert history.epochs[history.kept].bound < 0.3


def test_cross_entropy_lowers_the_error_and_leaves_rho_alone(blobs, small_net, average_risk):
    problem, net = blobs(192, 3), small_net(3, variance=0.001)
    rho, before = net.rho.detach().clone(), average_risk(net, problem)
    fit(net, problem, method="CE", epochs=15, rate=0.1, keep="last")
    assert torch.equal(net.rho, rho)
    assert average_risk(net, problem) < before - 0.2


def test_same_seed_same_bytes_and_another_seed_others(blobs, small_net):
    def trained(seed: int) -> tuple[bytes, tuple[Epoch, ...]]:
        net = small_net(3)
        history = fit(net, blobs(60, 3), epochs=4, rate=0.05, batch_size=16, seed=seed)
        return net.mean.detach().numpy().tobytes() + net.rho.detach().numpy().tobytes(), history.epochs

    assert trained(5) == trained(5)
    assert trained(5)[0] != trained(6)[0]


@pytest.mark.parametrize("options", [{}, {"method": "S"}, {"method": "CE", "dropout": 0.5}, {"estimator": "L1"}])
def test_the_global_random_states_are_left_alone(options, blobs, small_net):
    net, problem = small_net(3, distribution="laplace"), blobs(40, 3)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    fit(net, problem, epochs=2, rate=0.01, **options)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]
    assert random.getstate() == before[2]


def test_the_global_seed_has_no_say(blobs, small_net):
    def trained(seed: int) -> torch.Tensor:
        net = small_net(3)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            fit(net, blobs(40, 3), epochs=2, rate=0.05, dropout=0.3)
        return net.mean.detach()

    assert torch.equal(trained(1), trained(2))


def test_a_posterior_that_gets_worse_and_worse_is_the_prior(blobs, small_net, tmp_path):
    net, data = small_net(), blobs(200)
    fit(net, data, epochs=20, rate=0.05)
    net.freeze_prior()
    start = net.mean.detach().clone()
    bound_data, options = blobs(200, seed=1), {"epochs": 4, "rate": 50.0, "schedule": "constant"}
    with pytest.warns(UserWarning, match="no epoch has a bound below"):
        history = fit(net, bound_data, **options)
    assert history.kept == -1 and torch.equal(net.mean, start) and net.kl().item() == 0
    assert min(epoch.bound for epoch in history.epochs) > 0.5

    class Stopped(Exception):
        pass

    def stop(epoch):
        if epoch.epoch == 1:
            raise Stopped

    with pytest.raises(Stopped):
        fit(net, bound_data, checkpoint=Checkpoint(tmp_path / "c"), callback=stop, **options)
    with pytest.warns(UserWarning, match="no epoch has a bound below"):
        again = fit(net, bound_data, checkpoint=Checkpoint(tmp_path / "c"), **options)
    assert again == history and torch.equal(net.mean, start)


def test_a_rate_that_is_far_too_large_is_said_where_the_bound_began_near_chance(blobs, small_net):
    net = small_net()
    with pytest.warns(UserWarning, match=r"try a smaller rate, \de.*or less"):
        history = fit(net, blobs(40), epochs=2, rate=1e6)
    assert history.kept == -1 and min(epoch.kl for epoch in history.epochs) > 1e6


@pytest.mark.parametrize("keep", ["best", "last"])
def test_the_epoch_that_is_kept(keep, blobs, small_net):
    # A rate so large that the bound goes up and down.
    net, weights = small_net(), []
    history = fit(
        net, blobs(48), epochs=12, rate=0.3, schedule="constant", batch_size=16, keep=keep, evaluate="running",
        callback=lambda epoch: weights.append((net.mean.detach().clone(), net.rho.detach().clone())),
    )  # fmt: skip
    bounds = [epoch.bound for epoch in history.epochs]
    best = bounds.index(min(bounds))
    assert best != len(bounds) - 1, "the problem is too easy for this test"
    assert history.kept == (best if keep == "best" else len(bounds) - 1)
    assert torch.equal(net.mean, weights[history.kept][0])
    assert torch.equal(net.rho, weights[history.kept][1])


@pytest.mark.parametrize("averaged", [1, 4, 6])
def test_the_mean_of_the_last_epochs(averaged, blobs, small_net):
    net, weights = small_net(), []
    history = fit(
        net, blobs(48), objective="ERM", epochs=6, rate=0.3, schedule="constant", averaged=averaged,
        callback=lambda epoch: weights.append((net.mean.detach().clone(), net.rho.detach().clone())),
    )  # fmt: skip
    assert history.kept == 5
    for found, all_of in zip((net.mean, net.rho), zip(*weights, strict=True), strict=True):
        torch.testing.assert_close(found.detach(), torch.stack(all_of[-averaged:]).mean(0))
    assert not torch.equal(weights[0][0], weights[5][0])


@pytest.mark.parametrize("method", ["G", "S"])
def test_the_recorded_numbers_are_those_of_the_weights(method, blobs, small_net, average_risk):
    problem, net = blobs(64, 3), small_net(3, hidden=0)
    history = fit(net, problem, method=method, epochs=3, rate=0.05, kappa=0.3, delta=0.1, keep="last")
    last = history.epochs[-1]
    # Without hidden layers the risk has no noise; kappa is for training only.
    assert last.risk == pytest.approx(average_risk(net, problem), abs=1e-4)
    assert last.kl == pytest.approx(net.kl().item(), rel=1e-12)
    assert last.penalty == pytest.approx(penalty(last.kl, 64, 0.1), rel=1e-12)
    assert last.bound == pytest.approx(kl_inverse(last.risk, last.penalty), rel=1e-12)


@pytest.mark.parametrize("method", ["G", "S"])
def test_the_running_risk_weighs_the_short_last_batch_by_its_size(method, small_net):
    """20 examples in batches of 8, 8 and 4. The mean over examples is not the mean of the batches' means."""
    x, y = torch.randn(20, 4, generator=torch.Generator().manual_seed(3)), torch.arange(20) % 2
    net = small_net(hidden=0, variance=1e-10 if method == "S" else 0.1)
    mean, variance = (t.detach() for t in net.conditional(x))
    if method == "S":
        errors = (mean.argmax(1) != y).double()
        risk = float(bounded_cross_entropy(mean, y, 1e-5))
    else:
        gap = mean.gather(1, y[:, None])[:, 0] * 2 - mean.sum(1)
        errors = torch.special.ndtr(-gap.double() / variance.sum(1).double().sqrt())
        risk = float(errors.mean())
    for seed in range(3):
        order = torch.randperm(20, generator=torch.Generator().manual_seed(seed))
        assert np.mean([float(errors[b].mean()) for b in order.split(8)]) != pytest.approx(float(errors.mean()), 1e-3)
        history = fit(
            net, (x, y), objective="McAll", method=method, evaluate="running", batch_size=8, epochs=1, rate=1e-12,
            seed=seed,
        )  # fmt: skip
        assert history.epochs[0].risk == pytest.approx(float(errors.mean()), rel=1e-5)
        # The penalty is for the 20 examples of the data, not for the 8 of a batch.
        expected = risk + (penalty(0.0, 20, 0.025) / 2) ** 0.5
        assert history.epochs[0].objective == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("method", ["CE", "G", "S"])
def test_dropout_changes_training_but_not_the_evaluation(method, blobs, small_net, average_risk):
    problem = blobs(64, 3, spread=0.2)

    def trained(dropout: float):
        net = small_net(3, hidden=4, variance=0.001)
        fit(net, problem, method="CE", epochs=30, rate=0.1, keep="last", seed=1)
        net.freeze_prior()
        return net, fit(net, problem, method=method, dropout=dropout, epochs=2, rate=1e-3, keep="last", seed=2)

    (plain, _), (dropped, history) = trained(0.0), trained(0.5)
    assert not torch.equal(plain.mean, dropped.mean)
    with torch.no_grad():
        outputs = dropped(problem[0].repeat(50, 1), "mean", torch.Generator().manual_seed(3), 0.5)
    with_dropout = float((outputs.argmax(1) != problem[1].repeat(50)).double().mean())
    assert history.epochs[-1].risk == pytest.approx(average_risk(dropped, problem), abs=0.02)
    assert with_dropout > history.epochs[-1].risk + 0.05, "dropout does too little here to be noticed"


def test_no_dropout_unless_asked(blobs, small_net, monkeypatch):
    seen = []
    original = layers.Draw.__post_init__
    monkeypatch.setattr(layers.Draw, "__post_init__", lambda self: (seen.append(self.dropout), original(self))[1])
    fit(small_net(), blobs(32), epochs=2)
    assert set(seen) == {0.0}
    seen.clear()
    fit(small_net(), blobs(32), epochs=2, dropout=0.25)
    assert set(seen) == {0.0, 0.25}


def test_the_callback_sees_each_epoch_as_it_ends(blobs, small_net):
    seen: list[Epoch] = []
    history = fit(small_net(), blobs(32), epochs=3, callback=seen.append)
    assert tuple(seen) == history.epochs
    assert [epoch.epoch for epoch in seen] == [0, 1, 2]


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_training_has_its_gradients_wherever_it_is_called(without, blobs, small_net):
    net, problem = small_net(), blobs(32)
    expected = fit(small_net(), problem, epochs=1)
    with without():
        assert (net.mean.requires_grad, fit(net, problem, epochs=1)) == (True, expected)


def test_a_stage_on_the_bound_data_does_not_touch_the_prior(blobs, small_net):
    net = small_net()
    prior = net.fingerprint("prior")
    fit(net, blobs(32), epochs=2, rate=0.1)
    assert net.fingerprint("prior") == prior
    assert net.kl().item() > 0
    assert net.objective == "invKL"
    assert certify(net, blobs(32), draws=100, seed=0).prior_fingerprint == prior


@pytest.mark.filterwarnings("ignore:no epoch has a bound below")
@pytest.mark.parametrize("zeroed", ["some", "all"])
def test_a_prior_whose_deviations_have_gone_to_zero(zeroed, blobs, small_net):
    """ERM shrinks rho towards 0; the divergence and its gradient must stay finite from there."""
    net = small_net(variance=0.01)
    with torch.no_grad():
        net.rho[: 5 if zeroed == "some" else None] = 0
    net.freeze_prior()
    history = fit(net, blobs(64), epochs=5, rate=1e-12, schedule="constant")
    assert all(np.isfinite([e.objective, e.risk, e.kl, e.bound]).all() for e in history.epochs)
    assert bool(net.mean.isfinite().all()) and bool(net.rho.isfinite().all())


def test_a_prior_trained_by_erm_then_a_posterior(blobs, small_net):
    net = small_net(variance=0.01)
    fit(net, blobs(64, seed=1), objective="ERM", epochs=60, rate=0.5, schedule="constant", keep="last")
    net.freeze_prior()
    history = fit(net, blobs(64, seed=2), epochs=10, rate=1e-4)
    assert np.isfinite([e.bound for e in history.epochs]).all()
    assert history.epochs[history.kept].bound < 0.3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, y: (x, y + 1), "label"),
        (lambda x, y: (x, y - 1), "label"),
        (lambda x, y: (x, y + 0.5), "label"),
        (lambda x, y: (x.masked_fill(torch.eye(16, 4).bool(), float("nan")), y), r"x\[0\] holds nan"),
        (lambda x, y: (x.index_fill(0, torch.tensor([3]), float("inf")), y), r"x\[3\] holds inf"),
        (lambda x, y: (x[:7], y[:7]), "at least 8 examples, and m = 7"),
        (lambda x, y: (x[:, :3], y), "does not take examples of shape"),
        (lambda x, y: (x, y[:-1]), "16 examples but y has 15"),
        (lambda x, y: x, "pair"),
    ],
)
def test_data_that_cannot_be_used_are_refused_in_one_line(change, words, blobs, small_net):
    net = small_net()
    before = net.mean.detach().clone()
    with pytest.raises(InvalidInput, match=words) as raised:
        fit(net, change(*blobs(16)), epochs=1)
    assert "\n" not in str(raised.value)
    assert torch.equal(net.mean, before)


def test_examples_with_an_axis_too_many_are_refused(blobs, small_net):
    x, y = blobs(16)
    with pytest.raises(PacBayesError, match="flatten"):
        fit(small_net(), (x[:, None], y), epochs=1)


def test_settings_and_options_are_not_mixed(blobs, small_net):
    with pytest.raises(InvalidInput, match="not both"):
        fit(small_net(), blobs(16), settings=Settings(), epochs=3)
    with pytest.raises(InvalidInput, match="epoch_count"):
        fit(small_net(), blobs(16), epoch_count=3)


@pytest.mark.filterwarnings("ignore:no epoch has a bound below")
@pytest.mark.parametrize(("floor", "holds"), [(1e-5, False), (SCALE_FLOOR, True)])
def test_a_posterior_can_be_trained_from_a_prior_whose_deviations_are_gone(floor, holds, blobs, small_net, monkeypatch):
    """ERM leaves such hidden layers; at the paper's rate a lower floor lets the divergence explode."""
    monkeypatch.setattr("pacbayes.networks.distributions.SCALE_FLOOR", floor)
    net = small_net()
    fit(net, blobs(300), epochs=20, rate=0.05, batch_size=50)
    with torch.no_grad():
        net.rho[: net.hidden_size] = 0
    net.freeze_prior()
    history = fit(net, blobs(3000, seed=1), epochs=2, rate=1e-5, schedule="constant", batch_size=50)
    assert (max(epoch.kl for epoch in history.epochs) < 1) is holds


def test_the_profile_divergence_is_what_is_penalised_and_recorded(blobs, small_net):
    for divergence in ("kl", "profile"):
        net = small_net(variance=1.0)
        history = fit(net, blobs(400), divergence=divergence, epochs=30, rate=0.02, keep="last")
        first, last = history.epochs[0], history.epochs[-1]
        expected = net.kl() if divergence == "kl" else net.profile_kl()
        assert last.kl == pytest.approx(expected.item(), rel=1e-9)
        assert last.bound < first.bound


class Divided(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x / 255)


def test_inputs_that_are_far_too_large_are_pointed_out(blobs, small_net):
    """As the first drawn layer gets them: a model may see to it."""
    x, y = blobs()
    pixels = (255 * x / x.abs().max(), y)
    with pytest.warns(UserWarning, match="inputs are as large as 255, and networks learn best"):
        fit(small_net(), pixels, epochs=1, rate=1e-4)
    own = torch.nn.Sequential(Divided(4, 4).requires_grad_(False), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    fit(stochastic(own, 0.01), pixels, epochs=1)


def test_an_epoch_reads_as_a_line(blobs, small_net):
    lines: list[str] = []
    history = fit(small_net(), blobs(), epochs=2, callback=lambda epoch: lines.append(str(epoch)))
    assert lines[0].startswith("epoch 1: risk ") and f"bound {history.epochs[1].bound:.4f}" in lines[1]
