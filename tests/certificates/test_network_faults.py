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
