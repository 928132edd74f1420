"""The lambda of ``lbd``: trained in epochs of its own, or the best in closed form."""

from __future__ import annotations

import pytest
import torch

from pacbayes.bounds import best_lambda
from pacbayes.training import fit


def watched(net, problem, **options):
    """The history, and the weights after each epoch with those before the first."""
    weights = [net.mean.detach().clone()]
    history = fit(
        net, problem, objective="lbd", callback=lambda e: weights.append(net.mean.detach().clone()), **options
    )
    return history, weights


def test_lambda_and_weights_train_in_turn_over_twice_the_epochs(blobs, small_net):
    history, weights = watched(small_net(3), blobs(60, 3), epochs=4, rate=0.02, batch_size=20)
    assert len(history.epochs) == 8
    lams = [0.5, *(epoch.lam for epoch in history.epochs)]
    for number in range(8):
        lam_moved = lams[number + 1] != lams[number]
        weights_moved = not torch.equal(weights[number + 1], weights[number])
        assert (weights_moved, lam_moved) == ((True, False) if number % 2 == 0 else (False, True))


def test_each_rate_of_the_schedule_serves_one_epoch_of_each(blobs, small_net):
    history = fit(small_net(), blobs(32), objective="lbd", schedule="2@0.01, 1@0.002")
    assert [epoch.rate for epoch in history.epochs] == [0.01] * 4 + [0.002] * 2


@pytest.mark.parametrize("kappa", [1.0, 0.2])
def test_trained_lambda_moves_to_the_best(kappa, blobs, small_net):
    # No hidden layer, one batch: neither the risk nor the gradient has noise.
    history = fit(
        small_net(hidden=0), blobs(60), objective="lbd", kappa=kappa, epochs=150, rate=0.05, schedule="constant",
        batch_size=60, momentum=0.5, keep="last",
    )  # fmt: skip
    last = history.epochs[-1]
    best = best_lambda(last.risk, kappa * last.penalty)
    assert abs(best - 0.5) > 0.05, "too near the start to tell"
    assert last.lam == pytest.approx(best, abs=0.02)


@pytest.mark.parametrize(("kappa", "end"), [(1e-3, 0.0), (30.0, 1.0)])
def test_lambda_stays_strictly_between_0_and_1(kappa, end, blobs, small_net):
    """The best lambda is near an end here, and the steps are long enough to pass it."""
    history = fit(
        small_net(hidden=0), blobs(60, spread=2.0), objective="lbd", kappa=kappa, epochs=15,
        rate=0.3 if end == 0 else 0.02, schedule="constant",
    )  # fmt: skip
    assert all(0 < epoch.lam < 1 for epoch in history.epochs)
    assert any(abs(epoch.lam - end) < 0.01 for epoch in history.epochs)


def test_the_best_lambda_needs_no_epochs_of_its_own(blobs, small_net):
    problem, net = blobs(96, 3), small_net(3)
    history, weights = watched(net, problem, lam="best", epochs=6, rate=0.05, batch_size=32)
    assert len(history.epochs) == 6
    assert {epoch.lam for epoch in history.epochs} == {None}
    assert all(not torch.equal(a, b) for a, b in zip(weights, weights[1:], strict=False))


def test_other_objectives_have_no_lambda(blobs, small_net):
    history = fit(small_net(), blobs(32), objective="McAll", epochs=2)
    assert {epoch.lam for epoch in history.epochs} == {None}
    assert "lam" not in history.epochs[0].record()
