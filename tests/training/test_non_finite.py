"""A NaN or an infinity ends training with its epoch and its name, and the network at the last good state."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from pacbayes.errors import NonFinite
from pacbayes.networks import StochasticNetwork, divergence
from pacbayes.training import fit
from pacbayes.training.stage import WATCHED, Stage

STEPS_PER_EPOCH = 3


def poison(monkeypatch: pytest.MonkeyPatch, part: str, at: int) -> None:
    """Put a NaN or an infinity into one part of one step: through the outputs, or through the KL of the penalty."""
    calls = itertools.count()
    moments, combine = StochasticNetwork.conditional_moments, Stage.combine

    def bad_moments(net, *args, **options):
        mean, variance = moments(net, *args, **options)
        return (mean * math.nan if next(calls) == at else mean), variance

    def bad_divergence(stage, loss, kl, lam):
        return combine(stage, loss, kl * math.inf + 1 if next(calls) == at else kl, lam)

    if part == "the risk":
        monkeypatch.setattr(StochasticNetwork, "conditional_moments", bad_moments)
    else:
        monkeypatch.setattr(Stage, "combine", bad_divergence)


@pytest.mark.parametrize("part", WATCHED)
@pytest.mark.parametrize("at", [0, 2, 3, 7])
def test_the_first_non_finite_part_is_named_with_its_place(part, at, blobs, small_net, monkeypatch):
    poison(monkeypatch, part, at)
    net = small_net()
    weights = [(net.mean.detach().clone(), net.rho.detach().clone())]
    with pytest.raises(NonFinite) as raised:
        fit(
            net, blobs(30), epochs=4, rate=0.01, batch_size=10, evaluate="running",
            callback=lambda epoch: weights.append((net.mean.detach().clone(), net.rho.detach().clone())),
        )  # fmt: skip
    message = str(raised.value)
    assert f"epoch {at // STEPS_PER_EPOCH}:" in message
    assert f"{part} was not finite at step {at % STEPS_PER_EPOCH}" in message
    assert "\n" not in message
    assert len(weights) == at // STEPS_PER_EPOCH + 1
    assert torch.equal(net.mean, weights[-1][0]) and torch.equal(net.rho, weights[-1][1])
    assert bool(net.mean.isfinite().all()) and bool(net.rho.isfinite().all())


@pytest.mark.parametrize("which", ["mean", "rho"])
def test_a_gradient_that_is_not_finite_is_noticed_and_undone(which, blobs, small_net, monkeypatch):
    kl = divergence.kl

    def bad_slope(net, mean, rho, exact=False):
        # The value is 0 and its slope 0 * inf.
        return kl(net, mean, rho, exact) + torch.sqrt((mean if which == "mean" else rho)[0] * 0)

    net = small_net()
    before = net.mean.detach().clone()
    monkeypatch.setattr(divergence, "kl", bad_slope)
    with pytest.raises(NonFinite, match="epoch 0: "):
        fit(net, blobs(30), epochs=2, batch_size=10)
    assert torch.equal(net.mean, before) and bool(net.rho.isfinite().all())


def test_before_the_first_epoch_there_is_no_other_to_go_back_to(blobs, small_net, monkeypatch):
    poison(monkeypatch, "the objective", 0)
    with pytest.raises(NonFinite) as raised:
        fit(small_net(), blobs(30), epochs=1)
    assert "epoch -1" not in str(raised.value)


def test_a_poisoned_lambda_epoch_leaves_lambda_and_weights(blobs, small_net, monkeypatch):
    poison(monkeypatch, "the objective", STEPS_PER_EPOCH)
    net, weights = small_net(), []
    with pytest.raises(NonFinite, match="epoch 1: the objective"):
        fit(
            net, blobs(30), objective="lbd", epochs=4, rate=0.01, batch_size=10,
            callback=lambda epoch: weights.append(net.mean.detach().clone()),
        )  # fmt: skip
    assert torch.equal(net.mean, weights[0])


@pytest.mark.filterwarnings("ignore:no epoch has a bound below")
@pytest.mark.parametrize("hidden", [0, 8])
@pytest.mark.parametrize("method", ["G", "S", "CE"])
@pytest.mark.parametrize("rate", [1e2, 1e8, 1e15, 1e20, 1e25, 1e30, 1e38])
def test_an_absurd_rate_ends_in_finite_weights(rate, method, hidden, blobs, small_net):
    """Either all went well or it is said that it did not: no NaN in the history, and none in the weights."""
    for epochs in (1, 4):
        net = small_net(hidden=hidden)
        try:
            history = fit(net, blobs(32), method=method, epochs=epochs, rate=rate, schedule="constant", batch_size=16)
        except NonFinite as error:
            assert "\n" not in str(error)
        else:
            numbers = [[e.objective, e.risk, e.kl, e.penalty, e.bound] for e in history.epochs]
            assert np.isfinite(numbers).all(), history.epochs[-1]
        assert bool(net.mean.isfinite().all()) and bool(net.rho.isfinite().all())


def test_training_goes_on_from_the_last_good_state(blobs, small_net):
    problem, net = blobs(64), small_net()
    with pytest.raises(NonFinite):
        fit(net, problem, epochs=5, schedule="1@0.01, 4@1e30")
    history = fit(net, problem, epochs=5, rate=0.05)
    assert np.isfinite([epoch.bound for epoch in history.epochs]).all()
