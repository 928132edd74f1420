"""A certificate against its network and data: right ones hold, and each number that was changed is found."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from pacbayes.certificates import certify, certify_classes
from pacbayes.certificates.audit import class_faults, contradicted, contradicted_classes, network_faults, recount
from pacbayes.certificates.single import recomputed, single_weights
from pacbayes.data import as_data
from pacbayes.errors import InvalidInput
from pacbayes.networks import stochastic
from pacbayes.training import fit

KINDS = {
    "randomised": {"draws": 2000},
    "shared": {"draws": 30, "sampling": "shared"},
    "single": {"predictor": "single"},
    "majority": {"predictor": "majority", "draws": 1000, "voters": 3},
    "exact": {"sampling": "exact"},
}


def made(kind: str):
    torch.manual_seed(0)
    y = torch.arange(60) % 2
    data = as_data((torch.eye(4)[y] + torch.randn(60, 4), y), classes=2)
    model = nn.Sequential(nn.Linear(4, 6).requires_grad_(kind != "exact"), nn.ReLU(), nn.Linear(6, 2))
    net = stochastic(model, 0.05)
    fit(net, data, epochs=2, rate=0.05)
    issued = certify(net, data, bound="best", seed=3, **KINDS[kind])
    single = net.module_state(single_weights(net, 3)) if kind == "single" else None
    return net, data, issued, single


@pytest.mark.parametrize("kind", KINDS)
def test_a_right_certificate_holds(kind):
    net, data, issued, single = made(kind)
    assert network_faults(issued, net, single) == []
    assert all(abs(a - b) <= allowed for a, b, allowed in recount(issued, net, data, 77, single).values())


@pytest.mark.parametrize("kind", KINDS)
def test_changed_numbers_are_found(kind):
    net, data, issued, single = made(kind)
    for change in ({"kl": issued.kl - 1e-6}, {"profile_kl": issued.profile_kl - 1e-6}, {"catoni": [0.5]}):
        assert len(network_faults(replace(issued, **change), net, single)) == 1
    counts = recount(replace(issued, errors=0, pair_errors=0, vote_errors=0), net, data, 77, single)
    assert not any(abs(a - b) <= allowed for a, b, allowed in counts.values())


def test_a_single_network_needs_its_weights():
    net, data, issued, single = made("single")
    assert network_faults(replace(issued, log_ratio=issued.log_ratio - 1e-6), net, single)
    assert network_faults(issued, net)
    with pytest.raises(InvalidInput, match="missing"):
        recount(issued, net, data, 1)
    other = net.module_state(single_weights(net, 4))
    assert network_faults(issued, net, other)


def test_a_single_network_is_the_draw_of_its_seed():
    """Weights fitted to the data, and a posterior far from them: log dQ/dP is far below 0, and the bound would be 0."""
    net, _, issued, _ = made("single")
    fitted = net.prior_mean.detach().clone()
    with torch.no_grad():
        net.mean.copy_(net.prior_mean - 5)
    state = net.module_state(fitted)
    faults = network_faults(replace(issued, **recomputed(net, state)), net, state)
    assert faults == ["the single network is not the draw from the posterior that seed 3 gives"]


def test_weights_that_are_all_rounded_the_same_way_are_no_draw():
    """Each within a unit or two in its last place: together they would have a density that no draw has."""
    model = nn.Sequential(nn.Linear(200, 400), nn.ReLU(), nn.Linear(400, 2))
    net = stochastic(model, 1e6)
    with torch.no_grad():
        net.mean.copy_(1000 * torch.randn(len(net.mean)))
        net.rho.fill_(1e-4 ** (2 / 3))
    data = as_data((torch.randn(30, 200), torch.arange(30) % 2), classes=2)
    issued = certify(net, data, predictor="single", bound="best", seed=3)
    drawn = single_weights(net, 3)
    single = net.module_state(drawn)
    assert network_faults(issued, net, single) == []
    for room, words in ((1.5 * torch.finfo(drawn.dtype).eps, "that of the draw itself"), (1e-5, "not the draw")):
        moved = drawn + torch.where(drawn >= net.mean, 1.0, -1.0) * room * drawn.abs()
        forged = net.module_state(moved.detach())
        low = replace(issued, **recomputed(net, forged))
        assert low.log_ratio < issued.log_ratio - 1e4
        assert words in network_faults(low, net, forged)[0]


def test_rounding_by_chance_is_allowed():
    net, _, issued, single = made("single")
    torch.manual_seed(0)
    rounded = {k: v * (1 + torch.randint(-1, 2, v.shape) * torch.finfo(v.dtype).eps) for k, v in single.items()}
    assert network_faults(replace(issued, **recomputed(net, rounded)), net, rounded) == []


@pytest.mark.parametrize("hidden", [8, 64, 512])
def test_rounding_by_chance_is_allowed_where_the_posterior_is_the_prior(hidden):
    torch.manual_seed(0)
    net = stochastic(nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 2)), 0.05)
    data = as_data((torch.randn(30, 4), torch.arange(30) % 2), classes=2)
    issued = certify(net, data, predictor="single", bound="binomial", seed=3)
    single = net.module_state(single_weights(net, 3))
    for _ in range(20):
        rounded = {k: v * (1 + torch.randint(-1, 2, v.shape) * torch.finfo(v.dtype).eps) for k, v in single.items()}
        assert network_faults(replace(issued, **recomputed(net, rounded)), net, rounded) == []


def test_the_vote_of_many_is_tested_by_the_draws_of_one():
    net, data, issued, _ = made("majority")
    for part, errors in (("twice catoni", "errors"), ("pairs catoni", "pair_errors"), ("vote catoni", "vote_errors")):
        # The vote itself is counted with all its voters: fewer will do.
        right = replace(issued, voters=100 if errors == "vote_errors" else 1000, part=part)
        rate = getattr(issued, errors) / issued.visits
        assert contradicted(replace(right, empirical_risk_bound=1.1 * rate + 0.05), net, data, 5) is None, part
    for part in ("twice catoni", "pairs catoni"):
        low = replace(issued, voters=1000, part=part, empirical_risk_bound=0.8 * rate**2)
        assert "fresh visits" in contradicted(low, net, data, 5)


def test_a_rare_class_is_visited_more_often_than_its_share():
    net, _, _, _ = made("randomised")
    many = as_data((torch.randn(12_000, 4), torch.arange(12_000) >= 40), classes=2)
    issued = certify_classes(net, many, draws=24_000, seed=1)
    assert contradicted_classes(issued, net, many, 5) is None
    wrong = issued.counts[0][0]
    assert 20 < wrong <= issued.visits[0] == 80
    low = [[wrong // 4, wrong // 4], issued.counts[1]]
    assert "class 0" in contradicted_classes(replace(issued, counts=low), net, many, 5)


def test_visits_of_classes_are_shares_of_one_number():
    net, data, _, _ = made("randomised")
    for draws in (1, 60, 61, 900, 12_345):
        assert certify_classes(net, data, draws=draws, seed=1).check() == []
    issued = certify_classes(net, data, draws=600, seed=1)
    for visits in ([300, 100_000], [300, 29], [10, 10]):
        assert "shares of one number" in replace(issued, visits=visits).check()[0]


def test_an_unknown_loss_cannot_be_counted_again():
    net, data, issued, _ = made("randomised")
    with pytest.raises(InvalidInput, match="'brier'"):
        recount(replace(issued, loss="brier"), net, data, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_right_limit_is_not_contradicted_and_a_small_one_is(kind):
    """Also where so few draws were counted that a count of 0 could be right."""
    net, data, issued, _ = made(kind)
    assert contradicted(issued, net, data, 5) is None
    low = replace(issued, draws=20, visits=20, errors=0, empirical_risk=0.0, empirical_risk_bound=0.01)
    words = contradicted(low, net, data, 5)
    assert words is None if issued.sampling in ("once", "exact") else "above its recorded limit 0.0100" in words


def test_classes_of_other_sizes_or_with_bounds_too_small_are_found():
    net, data, _, _ = made("randomised")
    issued = certify_classes(net, data, draws=600, seed=1)
    assert contradicted_classes(issued, net, data, 5) is None
    assert "sizes" in contradicted_classes(replace(issued, m=[31, 29]), net, data, 5)
    few = [[0, issued.counts[0][1]], issued.counts[1]]
    assert "class 0 are answered wrongly" in contradicted_classes(replace(issued, counts=few), net, data, 5)


def test_the_c_of_classes_is_the_priors():
    net, data, _, _ = made("randomised")
    issued = certify_classes(net, data, draws=500, seed=1)
    assert class_faults(issued, net) == []
    assert "C is [1.5]" in class_faults(replace(issued, catoni=[1.5]), net)[0]
