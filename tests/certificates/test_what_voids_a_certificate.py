"""Models and calls for which no certificate is valid: each is refused, in words that name the cause."""

import copy
import pickle
from argparse import Namespace
from collections import UserDict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Subset, TensorDataset

import pacbayes as pb
from pacbayes import certify, fit, holdout_bound, split, stochastic
from pacbayes.certificates.bound_data import copies_among, copies_of
from pacbayes.data import as_data
from pacbayes.errors import InvalidInput, RunError, UnsupportedModel
from pacbayes.networks.held_aside import held_aside
from pacbayes.networks.layers import Draw
from pacbayes.networks.normals import normals_like
from pacbayes.runs import RunFolder, verify_run
from pacbayes.runs.certify import certify_run
from pacbayes.runs.config import Config
from pacbayes.runs.train import train_run
from pacbayes.training import Checkpoint


def noise(m=60, features=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return as_data(
        (torch.randn(m, features, generator=generator), torch.randint(2, (m,), generator=generator)), classes=2
    )


class Applied(nn.Module):
    """A function around and between two Linear layers."""

    def __init__(self, forward, hidden=4):
        super().__init__()
        self.first, self.last, self.way = nn.Linear(hidden, hidden), nn.Linear(hidden, 2), forward

    def forward(self, x):
        return self.way(self, x)


def folded(net, x):
    positions = x.view(-1, 2, 2).repeat(1, 1, 2)
    return net.last(net.first(positions.flatten(0, 1)).view(len(x), 2, -1).mean(1))


def again(net, x):
    return net.last(net.first(net.first(x)) if len(x) > 1 else net.first(x))


def batch_statistics(net, x):
    hidden = net.first(x)
    return net.last(nn.functional.batch_norm(hidden, None, None, training=True) if len(x) > 1 else hidden)


MIXING = {
    "the mean of the batch": lambda net, x: net.last(net.first(x) + x.mean(0)),
    "a softmax over the batch": lambda net, x: net.last(net.first(x).softmax(0)),
    "a layer used again in larger batches": again,
    "batch statistics": batch_statistics,
}
ISSUES = [lambda net, data: certify(net, data, draws=20), holdout_bound, lambda net, data: fit(net, data, epochs=1)]


@pytest.mark.parametrize("issue", ISSUES)
@pytest.mark.parametrize("name", MIXING)
def test_examples_must_not_mix(name, issue):
    with pytest.raises(UnsupportedModel):
        issue(stochastic(Applied(MIXING[name]), 0.01), noise())


POSITIONS = {
    "behind the examples": lambda net, x: net.last(net.first(x[:, None].expand(-1, 3, -1)).mean(1)),
    "in front of them": lambda net, x: net.last(net.first(x.expand(5, *x.shape)).mean(0)),
    "folded into the batch": folded,
}


@pytest.mark.parametrize("where", POSITIONS)
def test_a_model_may_keep_positions_anywhere(where):
    assert certify(stochastic(Applied(POSITIONS[where]), 0.01), noise(), draws=20).m == 60


def test_a_buffer_that_is_not_saved_counts_too():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model.register_buffer("memory", torch.zeros(3), persistent=False)
    net = stochastic(model, 0.01)
    net.model.memory += 1
    for issue in (lambda: certify(net, noise(), draws=10), lambda: holdout_bound(net, noise())):
        with pytest.raises(UnsupportedModel, match="buffer"):
            issue()


def test_a_normalisation_put_back_into_training_mode_stays_fixed():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4).requires_grad_(False), nn.Linear(4, 2)).eval()
    net = stochastic(model, 0.01)
    net.model.train()
    certify(net, noise(), draws=10)
    assert not net.model.training and not net.fixed_part_changed()


def test_examples_taken_twice_do_not_count_twice():
    data = noise().take(np.repeat(np.arange(60), 3))
    with pytest.raises(InvalidInput, match="taken twice"):
        certify(stochastic(nn.Linear(4, 2), 0.01), data, draws=10)


@pytest.mark.parametrize("spoil", ["every row twice", "other labels", "a tenth"])
def test_prior_data_by_another_way_are_found(spoil):
    data, net = noise(), stochastic(nn.Linear(4, 2), 0.01)
    seen = {
        "every row twice": (torch.cat([data.x, data.x]), torch.cat([data.y, data.y])),
        "other labels": (data.x, 1 - data.y),
        "a tenth": (torch.cat([data.x[:6], noise(seed=1).x]), torch.cat([data.y[:6], data.y])),
    }[spoil]
    fit(net, seen, epochs=1)
    net.freeze_prior()
    with pytest.raises(InvalidInput, match="prior was trained on"):
        certify(net, data, draws=10)


@pytest.mark.parametrize("change", ["data", "settings", "prior"])
def test_a_checkpoint_goes_on_only_where_it_was_made(change, tmp_path):
    """A file used for the prior and then for the posterior would make a prior that has seen the bound data."""
    data, checkpoint = noise(), Checkpoint(tmp_path / "c.safetensors")
    fit(stochastic(nn.Linear(4, 2), 0.01), data, epochs=2, checkpoint=checkpoint)
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    fit(stochastic(model, 0.01), data, epochs=2, checkpoint=Checkpoint(tmp_path / "d.safetensors"))
    other = noise(seed=1) if change == "data" else data
    net = stochastic(model, 0.02 if change == "prior" else 0.01)
    with pytest.raises(RunError, match="not a checkpoint of this training"):
        fit(net, other, epochs=3 if change == "settings" else 2, checkpoint=Checkpoint(tmp_path / "d.safetensors"))


def test_a_prior_exchanged_after_training_is_found(tmp_path):
    data = noise(100)
    np.savez(tmp_path / "data.npz", x=data.x, y=data.y)
    config = Config(data=str(tmp_path / "data.npz")).with_options(
        {"pretraining": {"epochs": 1}, "prior_training": {"epochs": 1}, "posterior": {"epochs": 1}}
    )
    run = train_run(config, tmp_path / "run")
    certify_run(run, draws=50, test_draws=2)
    assert {check.status for check in verify_run(run, recompute=True)} == {"passed"}
    run.weights_file("prior").write_bytes(run.weights_file("posterior").read_bytes())
    with pytest.raises(RunError, match=r"prior\.safetensors is not the file that this run wrote"):
        certify_run(RunFolder.open(run.path), draws=50, test_draws=2)
    with pytest.raises(RunError, match="not the prior that the posterior was trained from"):
        run.network()


def test_a_folder_that_a_killed_run_left_half_made_can_be_used(tmp_path):
    data = noise(100)
    np.savez(tmp_path / "data.npz", x=data.x, y=data.y)
    config = Config(data=str(tmp_path / "data.npz"), prior="data-free").with_options({"posterior": {"epochs": 1}})
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "data.json").write_text('{"shape": [4], "classes": 2, "bound": {}}')
    (tmp_path / "run" / ".config.toml.partial").write_text("da")
    run = train_run(config, tmp_path / "run")
    (run.path / "checkpoint-posterior.safetensors").write_bytes(b"left by a kill")
    train_run(None, run.path, resume=True)
    assert not run.checkpoint_file("posterior").exists()


def test_overlap_is_exact_for_parts_of_the_same_data():
    data = noise(100)
    prior_data, bound_data = split(data, 0.5)
    assert not bound_data.overlaps(prior_data)
    assert bound_data.overlaps(data.take(bound_data.source[1][:1])), "one example is enough"


class InAList(nn.Module):
    """Layers in a plain list are no parameters of the model."""

    def __init__(self):
        super().__init__()
        self.hidden, self.out = [nn.Linear(4, 8)], nn.Linear(8, 2)

    def forward(self, x):
        return self.out(torch.relu(self.hidden[0](x)))


def test_layers_that_the_model_does_not_hold_are_found():
    data = noise()
    with pytest.raises(UnsupportedModel, match=r"trains outside the KL.*ModuleList"):
        certify(stochastic(InAList(), 0.01), data, draws=10)
    net = stochastic(InAList(), 0.01)
    layer = net.model.hidden[0].requires_grad_(False)
    certify(net, data, draws=10)
    with torch.no_grad():
        layer.weight += 1
    with pytest.raises(UnsupportedModel, match="has changed since the prior"):
        certify(net, data, draws=10)


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


class Encoder:
    """No module, and yet it learns."""

    def __init__(self):
        self.body = nn.Linear(4, 4)

    def __call__(self, x):
        return self.body(x)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_modules_of_plain_objects_are_found_in_any_mode(mode):
    net = stochastic(Applied(lambda model, x: model.last(model.first(x))), 0.01)
    net.model.way = lambda model, x: model.last(model.first(encoder(x)))
    encoder = Encoder()
    with pytest.raises(UnsupportedModel, match="has changed|trains outside the KL"), mode():
        certify(net, noise(), draws=10)

    class Encoded(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.last = Encoder(), nn.Linear(4, 2)

        def forward(self, x):
            return self.last(self.encoder(x))

    net = stochastic(Encoded(), 0.01)
    with pytest.raises(UnsupportedModel, match="trains outside the KL"), mode():
        certify(net, noise(), draws=10)
    net.model.encoder.body.requires_grad_(False)
    with mode():
        certify(net, noise(), draws=10)
    net.model.encoder.body.weight.data += 1
    with pytest.raises(UnsupportedModel, match="has changed since the prior"), mode():
        certify(net, noise(), draws=10)


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


def test_frozen_networks_are_certified():
    certify(stochastic(nn.Linear(4, 2), 0.01).requires_grad_(False), noise(), draws=10)


class Cached(nn.Linear):
    """Normalises its weight only where a gradient is wanted."""

    cache = None

    def forward(self, x):
        if self.cache is None or torch.is_grad_enabled():
            self.cache = nn.functional.normalize(self.weight, dim=1)
        return nn.functional.linear(x, self.cache.detach(), self.bias)


def test_weights_kept_from_pass_to_pass_are_refused():
    model = nn.Sequential(Cached(4, 4), nn.ReLU(), nn.Linear(4, 2))
    with pytest.raises(UnsupportedModel, match=r"depends on passes before it|has changed since"):
        certify(stochastic(model, 0.01), noise(), draws=10)
    net = stochastic(nn.Sequential(weight_norm(nn.Linear(4, 4)), nn.Tanh(), nn.Linear(4, 2)), 0.01)
    certify(net, noise(), draws=10)
    with pytest.raises(UnsupportedModel, match="parametrize.cached"), parametrize.cached():
        certify(net, noise(), draws=10)


def test_what_mixes_examples_up_in_large_batches_alone_is_refused():
    net = stochastic(Applied(lambda model, x: model.last(model.first(x) + (x.mean(0) if len(x) > 64 else 0))), 0.01)
    certify(net, noise(60), draws=10)
    with pytest.raises(UnsupportedModel, match="the other examples of the batch"):
        certify(net, noise(200), draws=10)


class Calibrated(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, outputs, y):
        return 1 - self.layer(outputs).softmax(1).gather(1, y[:, None])[:, 0]


def test_a_loss_that_learns_is_refused():
    net, loss = stochastic(nn.Linear(4, 2), 0.01), Calibrated()
    for fixed in (False, True):
        with pytest.raises(InvalidInput, match="the loss has weights of its own"):
            certify(net, noise(), loss=loss.requires_grad_(not fixed), draws=10)
    free = torch.ones((), requires_grad=True)
    with pytest.raises(InvalidInput, match="the loss has weights of its own"):
        certify(net, noise(), loss=lambda outputs, y: free * (outputs.argmax(1) != y), draws=10)


def test_what_trains_in_a_closure_is_found():
    factor = torch.ones(4, requires_grad=True)

    class Closed(nn.Linear):
        def forward(self, x):
            return super().forward(x * factor)

    model = nn.Sequential(Closed(4, 8), nn.ReLU(), nn.Linear(8, 2))
    with pytest.raises(UnsupportedModel, match=r"shape \[4\] trains outside the KL"):
        certify(stochastic(model, 0.01), noise(), draws=10)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_few_digits_are_refused(dtype):
    with pytest.raises(UnsupportedModel, match=r"0.weight is not float32 or float64: take model.float\(\)"):
        stochastic(nn.Sequential(nn.Linear(50, 2)).to(dtype), 1e-4)


class Noisy(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5)


def test_a_model_that_computes_its_pass_again_is_told_so():
    model = Applied(lambda net, x: net.last(checkpoint(lambda z: net.first(z).relu(), x, use_reentrant=False)))
    with pytest.raises(UnsupportedModel, match=r"leave out torch\.utils\.checkpoint"):
        fit(stochastic(model, 0.01), noise(), epochs=1)


def test_weights_are_as_precise_as_examples():
    with pytest.raises(InvalidInput, match=r"take model\.float\(\)"):
        fit(stochastic(pb.build("mlp", (4,), 2).double(), 0.01), noise(), epochs=1)
    # Who turns examples into float64 by themselves may.
    own = Applied(lambda net, x: net.last(net.first(x.double()).relu())).double()
    assert certify(stochastic(own, 0.01), noise(), draws=20).check() == []


def test_weights_may_be_float64_by_default(doubles):
    fit(stochastic(pb.build("mlp", (4,), 2), 0.01), noise(), epochs=1)


def test_a_model_that_is_random_itself_is_told_so():
    model = nn.Sequential(nn.Linear(4, 8), Noisy(), nn.Linear(8, 2))
    with pytest.raises(UnsupportedModel, match=r"differs from pass to pass: it is random \(F.dropout without"):
        certify(stochastic(model, 0.01), noise(), draws=10)


def test_noise_does_not_vanish_with_small_inputs():
    """Whose squares are 0 in the weights' precision: without the noise, means that moved next to nothing decide."""
    x = torch.randn(400, 50, generator=torch.Generator().manual_seed(0)).sign() * 1e-25
    model = nn.Sequential(nn.Linear(50, 2, bias=False))
    with torch.no_grad():
        model[0].weight.zero_()
    net = stochastic(model, 1e-4)
    with torch.no_grad():
        net.mean[:50] = 1e-3  # a tenth of the deviation; the sign of the inputs' sum, if there were no noise
        generator = torch.Generator().manual_seed(1)
        labels = torch.stack([net(x, "independent", generator).argmax(-1) for _ in range(20)]).double()
    # Of 20 draws that are nearly coins, all are alike with probability below 1e-4.
    assert (labels.std(0) == 0).sum() <= 2


def test_features_know_what_shaped_the_body():
    """A head of one's own on features of a body that has seen the bound data."""
    data = pb.load("digits").take(np.arange(400))
    body = pb.train_ordinary(pb.build("mlp", data.shape, 10), data, epochs=1)
    made, _ = pb.features(body, data)
    prior_data, bound_data = pb.split(made, fraction=0.5)
    net = stochastic(nn.Linear(made.shape[0], 10), 0.001)
    pb.freeze_prior(net, prior_data)
    with pytest.raises(pb.PacBayesError, match="prior was trained on some of these data"):
        certify(net, bound_data, draws=10)


def test_many_small_parts_are_seen_together():
    x = torch.randn(2000, 4, generator=torch.Generator().manual_seed(0))
    x[:30] = x[30:60]
    y = torch.arange(2000) % 2
    net = stochastic(nn.Linear(4, 2), 0.01)
    for i in range(0, 2000, 40):
        pb.fit(net, (x[i : i + 40], y[i : i + 40]), method="CE", epochs=1, keep="last")
    net.freeze_prior()
    with pytest.raises(pb.PacBayesError, match="prior was trained on some of these data"):
        certify(net, (x, y), draws=10)


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


class Turned(nn.Module):
    """What follows the last layer depends on the example, and not on the first one."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        out = self.fc(x)
        bad = x[:, 0] > 1
        return torch.where(bad[:, None], -out, out) if bad.any() else out


def test_an_exact_risk_is_that_of_the_prediction():
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    x[0] = 0
    data = as_data((x, torch.arange(60) % 2), classes=2)
    with pytest.raises(UnsupportedModel, match="not that of its last layer"):
        certify(stochastic(Turned(), 0.01), data, sampling="exact")


def test_examples_that_recur_by_themselves_are_no_overlap():
    """Parts of the same data are told apart by their places, also where several parts have shaped the prior."""
    values = torch.randint(3000, (2000,), generator=torch.Generator().manual_seed(0))
    data = pb.Data(torch.stack([values // 100, values % 100], 1).float(), torch.arange(2000) % 2, 2)
    prior_data, bound_data = pb.split(data, fraction=0.8)
    net = stochastic(pb.standardise(nn.Sequential(nn.Linear(2, 2)), prior_data.take(np.arange(800))), 0.01)
    pb.freeze_prior(net, prior_data)
    prior = net.state("prior")
    pb.fit(net, bound_data, epochs=1)
    net.load_state(prior, "prior")  # as it was
    assert certify(net, bound_data, draws=10).m == 400


def test_a_posterior_loaded_as_a_prior_has_seen_the_bound_data():
    net = stochastic(nn.Linear(4, 2), 0.01)
    data = noise()
    pb.fit(net, data, epochs=1)
    net.load_state(net.state("posterior"), "prior")
    with pytest.raises(pb.PacBayesError, match="prior was trained on some of these data"):
        certify(net, data, draws=10)


class Times(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("factor", torch.ones(()))

    def forward(self, x):
        return self.factor * x


@pytest.mark.parametrize(
    "change",
    [lambda net: net.model[0].factor.fill_(2.0), lambda net: net.prior_mean.add_(1.0)],
    ids=["buffer", "prior"],
)
def test_a_prior_that_has_changed_does_not_mend_itself(change):
    net = stochastic(nn.Sequential(Times(), nn.Linear(4, 2)), 0.01)
    data = noise()
    pb.fit(net, data, epochs=1)
    change(net)
    net.load_state(net.state("prior"), "prior")
    with pytest.raises(pb.PacBayesError, match="prior was trained on some of these data"):
        certify(net, data, draws=10)


def test_a_posterior_of_another_network_has_learnt_from_data_that_nobody_has_named():
    net, data = stochastic(nn.Linear(4, 2), 0.01), noise()
    other = copy.deepcopy(net)
    pb.fit(net, data, epochs=1)
    other.load_state(net.state())
    assert certify(other, data, draws=10).check() == []  # any posterior may be certified
    with pytest.raises(pb.PacBayesError, match="learnt from data that nobody has named"):
        other.freeze_prior()
    # One's own may be put back.
    early = (again := stochastic(nn.Linear(4, 2), 0.01)).state()
    pb.fit(again, data, epochs=1)
    again.load_state(early)
    assert not again.trained_on.unnamed


@pytest.mark.parametrize("way", ["drawn", "conditional_moments"])
def test_gradients_through_every_kind_of_pass_are_noticed(way):
    net, data = stochastic(nn.Linear(4, 2), 0.01), noise()
    normals = normals_like(net.mean, torch.Generator().manual_seed(0))
    out = getattr(net, way)(data.x, Draw("shared", normals))
    (out if way == "drawn" else out[1]).sum().backward()
    with pytest.raises(pb.PacBayesError, match="learnt from data that nobody has named"):
        net.freeze_prior()


def learnt_by_heart(net, data):
    """By a loop of one's own."""
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(30):
        optimiser.zero_grad()
        pb.objective(net, (data.x, data.y), m=len(data), method="CE").backward()
        optimiser.step()


def test_a_prior_of_a_loop_of_ones_own_must_name_its_data():
    bound, other = noise(300, 50), noise(200, 50, seed=1)
    net = stochastic(pb.build("mlp", bound.shape, 2), 1e-4)
    learnt_by_heart(net, bound)
    with pytest.raises(pb.PacBayesError, match="learnt from data that nobody has named"):
        net.freeze_prior()
    with pytest.raises(pb.PacBayesError, match="learnt from data that nobody has named"):
        pb.learn_prior(net, other)
    # Nor is it a prior by way of its own state.
    loaded = copy.deepcopy(net)
    loaded.load_state(net.state(), "prior")
    with pytest.raises(pb.PacBayesError, match="learnt from data that nobody has named"):
        certify(loaded, bound, draws=100)
    # A name is a name: what is said is remembered.
    named = copy.deepcopy(net)
    pb.freeze_prior(named, bound)
    with pytest.raises(pb.PacBayesError, match="trained on some of these data"):
        certify(named, bound, draws=100)
    pb.freeze_prior(net, other)
    learnt_by_heart(net, bound)  # the posterior may learn from anything
    assert certify(copy.deepcopy(net), bound, draws=100).check() == []
    assert certify(pickle.loads(pickle.dumps(net)), bound, draws=100).check() == []


def test_a_single_network_of_a_run_is_no_prior_for_its_data(tmp_path):
    data = noise(80, 4)
    np.savez(tmp_path / "coins.npz", x=data.x.numpy(), y=data.y.numpy())
    stages = {"pretraining": {"epochs": 1}, "prior_training": {"epochs": 0}, "posterior": {"epochs": 1}}
    config = Config().with_options({"data": str(tmp_path / "coins.npz"), "model": "mlp", **stages})
    run = train_run(config, tmp_path / "run")
    certify_run(run, predictor="single", test_draws=1)
    model = pb.load_single(run.path)
    for copied in (model, pickle.loads(pickle.dumps(model))):
        with pytest.raises(pb.PacBayesError, match=r"nobody has named.*load_single"):
            certify(stochastic(copied, 1e-5), data, draws=10)
    with pytest.raises(pb.PacBayesError, match="nobody has named"):
        pb.CertifiedClassifier(model=model, preprocessing=None).fit(data.x.numpy(), data.y.numpy())
    made, _ = pb.features(model, data)
    with pytest.raises(pb.PacBayesError, match="nobody has named"):
        certify(stochastic(nn.Linear(made.shape[0], 2), 0.01), made, draws=10)
    # Data that it is trained on after that do not name them.
    for learn in (pb.learn_prior, pb.scale_prior):
        net = stochastic(model, 1e-5)
        learn(net, noise(30, 4, seed=6))
        with pytest.raises(pb.PacBayesError, match="nobody has named"):
            certify(net, data, draws=10)
    # For other data it may be.
    net = stochastic(model, 1e-5)
    pb.freeze_prior(net, data)
    assert certify(net, noise(20, 4, seed=5), draws=10).check() == []


def test_a_stored_prior_may_be_begun_with_and_its_best_epoch_gone_back_to():
    data, other = noise(60, 4), noise(60, 4, seed=1)
    net = stochastic(pb.build("mlp", (4,), 2), 0.01)
    fit(net, other, epochs=1)
    best = net.state()
    fit(net, other, epochs=1)
    net.load_state(best)
    net.freeze_prior()
    again = stochastic(pb.build("mlp", (4,), 2), 0.01)
    for which in ("prior", "posterior"):
        again.load_state(net.state(which), which)
    pb.objective(again, (data.x, data.y), m=60)  # a look
    again.fix_catoni(1.0)
    fit(again, data, epochs=1)
    assert certify(again, data, draws=20, bound="catoni").check() == []


COPIED = {
    "words, mostly none": lambda g: g.random((600, 300)) < 0.03,
    "pixels": lambda g: g.integers(0, 256, (600, 64)),
    "words or none": lambda g: g.integers(0, 2, (600, 200)),
    "measured": lambda g: g.normal(size=(600, 5)),
}
FEW = {
    "two columns": lambda g: np.stack([g.integers(0, 2, 600), g.integers(0, 3, 600)], 1),
    "two columns, scaled": lambda g: np.stack([g.integers(0, 2, 600) / 7, g.integers(0, 3, 600) / 3], 1),
    "ten answers": lambda g: g.integers(0, 2, (600, 10)),
}


@pytest.mark.parametrize("kind", COPIED)
def test_copies_made_before_the_split_are_pointed_out(kind):
    g = np.random.default_rng(0)
    x, y = COPIED[kind](g), g.integers(0, 2, 600)
    again = g.permutation(600)[:200]
    prior, bound = pb.split((np.concatenate([x, x[again]]), np.concatenate([y, y[again]])), 0.5)
    assert copies_of([prior], bound)


@pytest.mark.parametrize("kind", FEW)
def test_what_recurs_by_itself_is_not_pointed_out(kind):
    g = np.random.default_rng(0)
    prior, bound = pb.split((FEW[kind](g), g.integers(0, 2, 600)), 0.5)
    assert bound.copied_from(prior).sum() > 0.1 * len(bound) and copies_of([prior], bound) is None
    assert copies_among(bound) is None


def test_copies_of_a_rare_class_are_pointed_out():
    """They are few of all the examples, and may be most of the errors."""
    g = np.random.default_rng(0)
    x, y = g.normal(size=(2000, 5)), (np.arange(2000) % 50 == 0).astype(int)
    rows = np.concatenate([np.arange(2000), *[np.flatnonzero(y)] * 2])
    prior, bound = pb.split((x[rows], y[rows]), 0.5)
    assert bound.copied_from(prior).sum() < 0.05 * len(bound) and copies_of([prior], bound)
    assert bound.copied.sum() < 0.05 * len(bound) and copies_among(bound)
    # A few by chance are not.
    x[-5:], y[-5:] = x[:5], y[:5]
    for part in pb.split((x, y), 0.5):
        assert copies_among(part) is None
    prior, bound = pb.split((x, y), 0.5)
    assert copies_of([prior], bound) is None


def test_a_subset_with_the_same_example_twice_is_refused():
    data = TensorDataset(torch.randn(60, 4), torch.arange(60) % 2)
    rows = [*range(60), 3, 7]
    whole = as_data(Subset(data, rows))
    assert (
        len(whole) == 62 and torch.equal(whole.x, data.tensors[0][rows]) and torch.equal(whole.y, data.tensors[1][rows])
    )
    with pytest.raises(InvalidInput, match="taken twice"):
        certify(stochastic(nn.Linear(4, 2), 0.01), Subset(data, rows), draws=10)
    assert certify(stochastic(nn.Linear(4, 2), 0.01), Subset(data, rows[::2]), draws=10).m == 31


class Centred(nn.Module):
    def forward(self, x):
        return x - x.mean(0, keepdim=True)


class Beside(nn.Module):
    """What mixes the examples goes through a layer whose means are 0."""

    def __init__(self):
        super().__init__()
        self.own, self.others, self.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        nn.init.zeros_(self.others.weight)
        nn.init.zeros_(self.others.bias)

    def forward(self, x):
        return self.out(self.own(x) + self.others(x.mean(0, keepdim=True)))


@pytest.mark.parametrize("size", [1e-7, 1e-4, 1.0, 1e4])
def test_a_model_that_mixes_small_examples_is_refused(size):
    model = nn.Sequential(Centred(), nn.Linear(4, 2, bias=False))
    x, y = size * torch.randn(60, 4), torch.arange(60) % 2
    with pytest.raises(UnsupportedModel, match="depends on the other examples"):
        certify(stochastic(model, 0.01), (x, y), draws=10)
    with pytest.raises(UnsupportedModel, match="depends on the other examples"):
        pb.features(nn.Sequential(Centred(), nn.Linear(4, 2)), (x, y))
    certify(stochastic(model[1:], 0.01), (x, y), draws=10)
    pb.features(nn.Sequential(nn.Linear(4, 8), nn.Softmax(1), nn.Linear(8, 2)), (x, y))


def test_a_model_that_mixes_examples_where_its_means_are_silent_is_refused():
    with pytest.raises(UnsupportedModel, match="depends on the other examples"):
        certify(stochastic(Beside(), 0.01), noise(), draws=10)


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


def test_a_set_has_one_order():
    """Whatever the hashes of its words are: each process has its own."""
    model = nn.Linear(4, 2)
    model.options = {("drop", 0.1), ("eps", 1e-5), ("gain", 2.0)}
    names = [name for name, _ in held_aside(model)]
    assert [held for _, held in held_aside(model)] == [0.1, 1e-5, 2.0] and len(set(names)) == 3


def test_equal_data_of_another_origin_are_remembered_too():
    """Their source may overlap with what they themselves do not."""
    raw = noise()
    first, second = (pb.features(nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 2)), raw)[0] for _ in range(2))
    net = stochastic(nn.Linear(5, 2), 0.01)
    for data in ((second.x, second.y), second):
        pb.learn_prior(net, data, pretraining={"epochs": 1}, training=None)
    with pytest.raises(InvalidInput, match="the prior was trained on some of these data"):
        certify(net, first, draws=10)
