"""Weights stored and put back, and their fingerprints."""

from __future__ import annotations

import math

import pytest
import torch
from small_nets import seeded, shaken
from torch import nn

from pacbayes.errors import InvalidInput
from pacbayes.networks import StochasticNetwork, stochastic


def with_fixed_part() -> StochasticNetwork:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        norm = nn.BatchNorm1d(7).requires_grad_(False)
        return stochastic(nn.Sequential(nn.Linear(5, 7), norm, nn.Linear(7, 3)).eval())


@pytest.mark.parametrize("which", ["posterior", "prior"])
def test_state_goes_round(which):
    net = shaken(with_fixed_part())
    with torch.no_grad():
        net.model[1].running_mean += 1
    other = shaken(with_fixed_part(), 7)
    kept = other.state("prior" if which == "posterior" else "posterior")
    other.load_state(net.state(which), which)
    assert other.fingerprint(which) == net.fingerprint(which)
    for name, t in net.state(which).items():
        assert torch.equal(t, other.state(which)[name]), name
    for name, t in other.state("prior" if which == "posterior" else "posterior").items():
        if not name.startswith("fixed."):
            assert torch.equal(t, kept[name]), name
    x = torch.randn(3, 5, generator=seeded(0))
    if which == "posterior":
        assert torch.equal(net(x, "shared", seeded(1)), other(x, "shared", seeded(1)))


def test_prior_and_posterior_together_give_the_same_kl():
    net, other = shaken(with_fixed_part()), with_fixed_part()
    other.load_state(net.state("prior"), "prior")
    other.load_state(net.state("posterior"), "posterior")
    assert other.kl().item() == net.kl().item() > 0


def test_state_is_a_copy_with_the_models_names():
    net = with_fixed_part()
    state = net.state()
    assert {n for n in state if not n.startswith("fixed.")} == {
        f"{kind}.{layer}.{part}" for kind in ("mean", "rho") for layer in (0, 2) for part in ("weight", "bias")
    }
    assert {n for n in state if n.startswith("fixed.")} == {
        f"fixed.1.{n}" for n in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    }
    assert state["mean.0.weight"].shape == (7, 5)
    fingerprint = net.fingerprint()
    for t in state.values():
        t.zero_()
    assert net.fingerprint() == fingerprint


def test_a_state_must_be_of_the_prior_or_the_posterior():
    """A slip of the pen must not read, or write, the other of the two."""
    net = shaken(with_fixed_part())
    state = net.state()
    for call in (net.state, net.fingerprint, lambda which: net.load_state(state, which)):
        with pytest.raises(InvalidInput, match="'prior' or 'posterior'"):
            call("Posterior")


def flip(t: torch.Tensor) -> None:
    """The lowest bit of the first number."""
    with torch.no_grad():
        bits = t.view(-1)[:1].view(torch.int32 if t.dtype == torch.float32 else torch.int64)
        bits ^= 1


def test_a_fingerprint_sees_one_bit_anywhere():
    net = with_fixed_part()
    seen = {net.fingerprint()}
    assert net.fingerprint() == with_fixed_part().fingerprint()
    for tensor in (
        net.mean.data,
        net.rho.data,
        net.model[1].running_mean,
        net.model[1].weight.data,
        net.model[1].num_batches_tracked,
    ):
        flip(tensor)
        assert net.fingerprint() not in seen
        seen.add(net.fingerprint())


def test_the_prior_has_a_fingerprint_of_its_own():
    net = with_fixed_part()
    prior = net.fingerprint("prior")
    assert net.fingerprint("posterior") == prior
    flip(net.mean.data)
    assert net.fingerprint("prior") == prior
    assert net.fingerprint("posterior") != prior
    for tensor in (net.prior_mean, net.prior_rho, net.model[1].running_var):
        before = net.fingerprint("prior")
        flip(tensor)
        assert net.fingerprint("prior") != before


def test_passes_do_not_change_the_fingerprint():
    net = with_fixed_part()
    before = net.fingerprint(), net.fingerprint("prior")
    net.train()
    net(torch.zeros(4, 5)).sum().backward()
    net.conditional(torch.zeros(4, 5))
    assert (net.fingerprint(), net.fingerprint("prior")) == before


def test_a_changed_fixed_part_is_seen():
    for change in (
        lambda net: flip(net.model[1].running_mean),
        lambda net: flip(net.model[1].weight.data),
        lambda net: net.model[1].num_batches_tracked.add_(1),
    ):
        net = with_fixed_part()
        assert not net.fixed_part_changed()
        shaken(net)
        assert not net.fixed_part_changed()
        change(net)
        assert net.fixed_part_changed()
        net.freeze_prior()
        assert not net.fixed_part_changed()


def altered(state: dict[str, torch.Tensor], name: str, value: torch.Tensor) -> dict[str, torch.Tensor]:
    return state | {name: value}


BAD_STATES = {
    "missing": (lambda s: {n: t for n, t in s.items() if n != "rho.0.bias"}, r"rho\.0\.bias"),
    "missing fixed": (lambda s: {n: t for n, t in s.items() if n != "fixed.1.weight"}, r"fixed\.1\.weight"),
    "extra": (lambda s: altered(s, "mean.9.weight", torch.zeros(1)), r"mean\.9\.weight"),
    "shape": (lambda s: altered(s, "mean.0.weight", torch.zeros(5, 7)), r"mean\.0\.weight.*\(5, 7\).*\(7, 5\)"),
    "flat": (lambda s: altered(s, "mean.0.weight", torch.zeros(35)), r"mean\.0\.weight"),
    "dtype": (lambda s: altered(s, "rho.2.bias", torch.ones(3, dtype=torch.float64)), r"rho\.2\.bias.*float64"),
    "nan": (lambda s: altered(s, "mean.2.bias", torch.tensor([0, math.nan, 0])), r"mean\.2\.bias.*not finite"),
    "infinite": (lambda s: altered(s, "rho.2.bias", torch.tensor([0, math.inf, 0])), r"rho\.2\.bias.*not finite"),
    "nan fixed": (lambda s: altered(s, "fixed.1.running_mean", torch.full((7,), math.nan)), r"fixed\.1\.running_mean"),
}


@pytest.mark.parametrize("name", BAD_STATES)
@pytest.mark.parametrize("which", ["posterior", "prior"])
def test_states_that_do_not_fit_are_refused_and_change_nothing(name, which):
    spoil, message = BAD_STATES[name]
    net = with_fixed_part()
    before = net.fingerprint(), net.fingerprint("prior")
    bad = spoil(shaken(with_fixed_part()).state())
    with pytest.raises(InvalidInput, match=message):
        net.load_state(bad, which)
    assert (net.fingerprint(), net.fingerprint("prior")) == before


class Masked(nn.Module):
    """A buffer of zeros and infinities, as a mask of attention is."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1) > 0, -math.inf))
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        return self.last(x + self.mask.exp()[1])


def test_a_mask_may_hold_infinities_where_it_held_them():
    net = stochastic(Masked(), 0.01)
    state = net.state()
    net.load_state(state)
    with pytest.raises(InvalidInput, match=r"fixed\.mask.*not finite"):
        net.load_state(state | {"fixed.mask": torch.full((4, 4), math.inf)})
