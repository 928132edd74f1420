"""What a model holds besides its parameters: a change after the prior was frozen is found."""

import copy
from argparse import Namespace
from collections import UserDict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from small_nets import Applied, noise
from torch import nn

import pacbayes as pb
from pacbayes import certify, fit, holdout_bound, stochastic
from pacbayes.errors import UnsupportedModel
from pacbayes.networks.held_aside import held_aside


def test_a_buffer_that_is_not_saved_counts_too():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model.register_buffer("memory", torch.zeros(3), persistent=False)
    net = stochastic(model, 0.01)
    net.model.memory += 1
    for issue in (lambda: certify(net, noise(), draws=10), lambda: holdout_bound(net, noise())):
        with pytest.raises(UnsupportedModel, match="buffer"):
            issue()


def test_lists_in_lists_and_buffers_that_are_not_saved_count_too():
    model = nn.Sequential(nn.Linear(4, 2))
    aside = nn.Linear(4, 4).requires_grad_(False)
    aside.register_buffer("seen", torch.zeros(3), persistent=False)
    aside.get_extra_state = dict
    model.kept = {"a": [aside]}
    net = stochastic(model, 0.01)
    assert not net.fixed_part_changed()
    net.model.kept["a"][0].seen += 1
    assert net.fixed_part_changed()


@pytest.mark.parametrize("start", [torch.zeros(4), np.zeros(4), None])
def test_what_a_model_keeps_in_plain_attributes_counts(start):
    model = Applied(lambda model, x: model.last(model.first(x - torch.as_tensor(model.centre, dtype=x.dtype))))
    model.centre = start
    net = stochastic(model, 0.01)
    data = noise()
    net.model.centre = data.x.mean(0) if isinstance(start, torch.Tensor) else data.x.mean(0).numpy()
    with pytest.raises(UnsupportedModel, match="number that the model holds, has changed"):
        certify(net, data, draws=10)


def test_what_each_pass_leaves_behind_is_no_change():
    """A map of attention, say, that is there for somebody to look at."""

    class Watched(Applied):
        def forward(self, x):
            hidden = self.first(x)
            self.shown = hidden.detach()
            return self.last(hidden.relu())

    net = stochastic(Watched(None), 0.01)
    fit(net, noise(), epochs=2)
    certify(net, noise(), draws=10)


@pytest.mark.parametrize("weight", [0.5, 1e-3, 1e-6])
def test_what_gathers_from_pass_to_pass_is_a_change(weight):
    """However slowly: too slowly for its effect on the next pass to show."""

    class Gathers(Applied):
        def forward(self, x):
            self.mean = (1 - weight) * self.mean + weight * x.mean(0).detach()
            return self.last(self.first(x - self.mean))

    model = Gathers(None)
    model.mean = torch.zeros(4)
    found = "has changed since the prior|passes before it|the other examples|from pass to pass"
    with pytest.raises(UnsupportedModel, match=found):
        certify(stochastic(model, 0.01), noise(), draws=10)


def odd_things():
    later = torch.zeros(2)
    yield "in a closure", lambda: later, later

    def unset():
        return never

    yield "a cell without content", unset, None
    default = torch.zeros(2)
    yield "a default argument", lambda x=default: x, default
    sparse = torch.eye(3).to_sparse()
    yield "sparse", sparse, sparse
    yield "meta", torch.empty(2, device="meta"), None
    slots = Slots()
    slots.kept = torch.zeros(2)
    yield "slots", slots, slots.kept
    own = {torch.zeros(2)}
    yield "a set", own, next(iter(own))
    yield "many words", {str(number): number for number in range(150_000)}, None
    never = None


class Slots:
    __slots__ = ("kept",)


@pytest.mark.parametrize("name", [name for name, _, _ in odd_things()])
def test_whatever_a_model_holds_is_looked_into(name):
    model = Applied(lambda model, x: model.last(model.first(x)))
    _, model.thing, tensor = next(item for item in odd_things() if item[0] == name)
    net = stochastic(model, 0.01)
    certify(net, noise(), draws=10)
    if tensor is not None:
        held = [found for place, found in held_aside(net.model) if "thing" in place]
        assert len(held) == 1
        (held[0]._values() if held[0].is_sparse else held[0]).add_(1)
        with pytest.raises(UnsupportedModel, match="has changed since the prior"):
            certify(net, noise(), draws=10)


def test_tensors_of_classes_and_hooks_count():
    class Classed(Applied):
        kept = torch.zeros(2)

    seen = torch.zeros(2)
    net = stochastic(Classed(lambda model, x: model.last(model.first(x))), 0.01)
    Classed.kept += 1
    assert net.fixed_part_changed() == ".class.kept"
    net = stochastic(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), 0.01)
    net.model[0].register_forward_hook(lambda *_: seen)
    net.freeze_prior()
    assert net.fixed_part_changed() is None
    seen += 1
    assert "_forward_hooks" in net.fixed_part_changed()


class Holds(nn.Module):
    def __init__(self, held):
        super().__init__()
        self.fc, self.held = nn.Linear(4, 2), held

    def forward(self, x):
        return self.fc(x)


@pytest.mark.parametrize("kind", [SimpleNamespace, Namespace, UserDict, bytearray])
def test_tensors_in_objects_of_the_standard_library(kind):
    held = bytearray(3) if kind is bytearray else kind(t=torch.zeros(3))
    net = stochastic(Holds(held), 0.01)
    held = net.model.held
    if kind is bytearray:
        held[0] = 7
    else:
        (held["t"] if kind is UserDict else held.t).fill_(1)
    with pytest.raises(UnsupportedModel, match="has changed since the prior was frozen"):
        certify(net, noise(), draws=10)


class Sized(nn.Module):
    """Inputs divided by a number that is no tensor."""

    def __init__(self, weight):
        super().__init__()
        self.first, self.last, self.size, self.weight = nn.Linear(4, 4), nn.Linear(4, 2), 1.0, weight

    def forward(self, x):
        self.size = (1 - self.weight) * self.size + self.weight * float(x.detach().abs().mean())
        return self.last(torch.relu(self.first(x / self.size)))


@pytest.mark.parametrize("weight", [1e-2, 1e-6])
def test_a_number_that_learns_is_a_change(weight):
    with pytest.raises(
        UnsupportedModel, match="has changed since the prior|passes before it|other examples|from pass to pass"
    ):
        certify(stochastic(Sized(weight), 0.01), noise(), draws=10)


def test_a_number_that_was_fitted_afterwards_is_a_change():
    net = stochastic(Sized(0.0), 0.01)
    fit(net, noise(), epochs=1)
    certify(net, noise(), draws=10)
    net.model.size = 1.2
    with pytest.raises(UnsupportedModel, match="size.*has changed since the prior"):
        certify(net, noise(), draws=10)


def test_numbers_of_pytorchs_own_layers_count():
    net = stochastic(nn.Sequential(nn.Linear(4, 6), nn.LeakyReLU(), nn.Linear(6, 2)), 0.01)
    certify(net, noise(), draws=10)
    net.model[1].negative_slope = 5.0
    with pytest.raises(UnsupportedModel, match="negative_slope.*has changed since the prior"):
        certify(net, noise(), draws=10)


def test_numbers_may_be_millions():
    """As many as would be too many objects; and a change of one of them is seen."""
    model = nn.Sequential(nn.Linear(4, 2))
    model.table = [0.5] * 1_500_000
    net = stochastic(model, 0.01)
    assert net.fixed_part_changed() is None
    net.model.table[-1] = 0.6
    assert "table" in net.fixed_part_changed()


class Member:
    def __init__(self, number):
        self.tensor = torch.tensor([float(number)])


def test_a_set_has_no_order():
    """Neither by the hashes of words, which are others in each process, nor by where its members are in memory."""
    model = Holds({"words": {("drop", 0.1), ("eps", 1e-5)}, "members": {Member(i) for i in range(20)}})
    net = stochastic(model, 0.01)
    assert all(copy.deepcopy(net).fixed_part_changed() is None for _ in range(5))
    next(iter(net.model.held["members"])).tensor += 0.5
    assert "members" in net.fixed_part_changed()


@pytest.mark.parametrize("key", [1, "1"])
def test_keys_that_read_alike_are_two(key):
    net = stochastic(Holds({1: torch.zeros(2), "1": torch.zeros(2)}), 0.01)
    net.model.held[key] += 1
    assert "held" in net.fixed_part_changed()
    net.freeze_prior()
    held = net.model.held
    held[1], held["1"] = held["1"], held[1]
    assert "held" in net.fixed_part_changed()


class Permissive:
    """An object that has every attribute."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)


def test_objects_with_every_attribute_may_be_held():
    certify(stochastic(Holds(Permissive()), 0.01), noise(), draws=10)


def test_tensors_on_pytorchs_own_modules_count():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model.shift = torch.zeros(4)
    model.register_forward_pre_hook(lambda module, args: (args[0] + module.shift,))
    net = stochastic(model, 0.01)
    certify(net, noise(), draws=10)
    net.model.shift += 1
    with pytest.raises(UnsupportedModel, match="shift.*has changed since the prior"):
        certify(net, noise(), draws=10)


class Stores(nn.Module):
    """Hands a weight on by way of another module."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.box = nn.Linear(4, 8), nn.Linear(8, 2), nn.Module()

    def forward(self, x):
        self.box.weight = self.first.weight
        return self.last(torch.relu(x @ self.box.weight.T))


def test_weights_that_are_handed_on_leave_nothing_that_cannot_be_copied():
    net = stochastic(Stores(), 0.01)
    fit(net, noise(), epochs=1)
    certify(net, noise(), draws=10)
    assert copy.deepcopy(net).prior_network().kl() == 0


@pytest.mark.filterwarnings("ignore:.*_norm.*deprecated:FutureWarning")
@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.spectral_norm])
def test_weights_that_a_hook_computes_anew_are_no_change(norm):
    """As these did before there were parametrizations."""
    model = nn.Sequential(norm(nn.Linear(4, 4)).requires_grad_(False), nn.ReLU(), nn.Linear(4, 2)).eval()
    if norm is nn.utils.weight_norm:
        with torch.no_grad():
            model(torch.zeros(1, 4))  # without gradients, or it could not be copied
    net = stochastic(model, 0.01)
    fit(net, noise(), epochs=1)
    certify(net, noise(), draws=10)


def test_our_own_centring_is_a_part_of_the_prior():
    net = stochastic(pb.build("mnist-4-centred", (1, 12, 12), 2), 0.01)
    before = net.fingerprint("prior")
    net.model[0].offset.fill_(3.0)
    assert net.fixed_part_changed() == "0.offset" and net.fingerprint("prior") != before


@pytest.mark.parametrize("which", ["prior_mean", "prior_rho"])
def test_a_prior_that_was_written_over(which):
    """As who keeps averages of all buffers might do."""
    data = noise()
    net = stochastic(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), 0.01)
    certify(copy.deepcopy(net), data, draws=10)
    with torch.no_grad():
        dict(net.named_buffers())[which].add_(1e-6)
    with pytest.raises(UnsupportedModel, match=f"the prior's {which[6:]}, .* has changed since the prior was frozen"):
        certify(net, data, draws=10)
    net.freeze_prior()
    certify(net, data, draws=10)
