"""Some layers stochastic and the rest fixed; and a fixed body computed once."""

from __future__ import annotations

import time

import pytest
import torch
from any_nets import ResNet18, Way, group_norm
from small_nets import seeded, shaken
from torch import nn

import pacbayes as pb
from pacbayes.errors import InvalidInput, UnsupportedModel


def backbone(norm=nn.BatchNorm2d) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = ResNet18(norm, 4, classes=10, channels=1)
        model(torch.randn(16, 1, 8, 8))  # BatchNorm has statistics
    return model


# layers=


def test_only_the_named_layers_are_drawn():
    model = backbone()
    net = pb.stochastic(model, layers=["stages.3.1.conv2", "fc"])
    assert list(net.slots) == ["stages.3.1.conv2.weight", "fc.weight", "fc.bias"]
    assert {row.name for row in net.audit().rows if row.drawn == "fixed"} >= {"stem.0.weight", "stem.1.running_var"}
    assert model.training and all(p.requires_grad for p in model.parameters())
    x = torch.randn(3, 1, 8, 8, generator=seeded(0))
    assert not any(m.training for m in net.model.modules())
    torch.testing.assert_close(net(x, "mean"), model.eval()(x))


def test_a_name_may_be_that_of_a_container_or_of_a_parameter():
    model = backbone(group_norm)
    net = pb.stochastic(model, layers=["stages.3", "stem.1.bias", "fc"])
    expected = {n for n, _ in model.named_parameters() if n.startswith(("stages.3.", "fc.")) or n == "stem.1.bias"}
    assert set(net.slots) == expected
    assert list(pb.stochastic(model, layers="fc").slots) == ["fc.weight", "fc.bias"]


@pytest.mark.parametrize(
    ("layers", "error", "message"),
    [
        (["fc", "stage"], InvalidInput, r"under 'stage'.*stages.0.0.conv1"),
        (["fc", "stages.3."], InvalidInput, r"'stages\.3\.'"),
        (["stages.3"], UnsupportedModel, "output layer, fc, must be stochastic"),
        (["fc.weight"], UnsupportedModel, "output layer, fc, must be stochastic"),
        ([], UnsupportedModel, "output layer, fc, must be stochastic"),
    ],
)
def test_layers_that_cannot_be_are_refused(layers, error, message):
    with pytest.raises(error, match=message):
        pb.stochastic(backbone(), layers=layers)


def test_what_was_frozen_stays_frozen():
    model = backbone(group_norm)
    model.stages[3].requires_grad_(False)
    with pytest.raises(InvalidInput, match="nothing to train under 'stages.3'"):
        pb.stochastic(model, layers=["stages.3", "fc"])


# Features


def test_features_are_what_the_head_gets_and_the_head_is_the_rest():
    model, data = backbone(), pb.load("digits").take(range(50))
    before = {n: t.clone() for n, t in model.state_dict().items()}
    found, head = pb.features(model, data, batch_size=16)
    assert found.shape == (32,) and len(found) == 50 and found.classes == 10
    assert torch.equal(found.y, data.y)
    assert isinstance(head, nn.Linear) and not head._forward_hooks
    assert model.training and all(torch.equal(t, before[n]) for n, t in model.state_dict().items())
    torch.testing.assert_close(head(found.x), model.eval()(data.x))


def test_a_head_may_be_more_than_a_layer():
    head = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    model = Way(lambda net, x: net.head(torch.tanh(net.body(x))), body=nn.Linear(4, 6), head=head)
    x = torch.randn(20, 4, generator=seeded(0))
    found, part = pb.features(model, (x, torch.arange(20) % 2), head="head")
    assert found.shape == (6,)
    torch.testing.assert_close(part(found.x), model(x))


class Quantised(nn.Module):
    """Its first parameter is whole numbers."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.arange(24, dtype=torch.int8).view(6, 4), requires_grad=False)
        self.last = nn.Linear(6, 3)

    def forward(self, x):
        return self.last(x @ self.table.to(x.dtype).t())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inputs_keep_their_digits_where_a_weight_is_whole_numbers(dtype):
    model, x = Quantised(), torch.randn(20, 4, generator=seeded(0))
    model.last.to(dtype)
    found, _ = pb.features(model, (x, torch.arange(20) % 3))
    torch.testing.assert_close(found.x, x @ model.table.float().t())


def test_models_that_cannot_be_copied_or_take_other_examples_are_refused():
    data = (torch.randn(10, 5, generator=seeded(0)), torch.arange(10) % 2)
    with pytest.raises(UnsupportedModel, match="no shape yet"):
        pb.features(nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2)), data)
    with pytest.raises(InvalidInput, match=r"does not take examples of shape \[5\]"):
        pb.features(nn.Linear(4, 2), data)


def test_features_of_a_network_with_a_stochastic_head():
    net = shaken(pb.stochastic(backbone(), 0.01, layers=["fc"]))
    data = pb.load("digits").take(range(40))
    found, head = pb.features(net, data)
    assert isinstance(head, pb.StochasticNetwork)
    for sampling in ("shared", "independent"):
        torch.testing.assert_close(head(found.x, sampling, seeded(1)), net(data.x, sampling, seeded(1)))
    assert head.kl().item() == net.kl().item() > 0
    ours, theirs = pb.certify(head, found, draws=400, seed=3), pb.certify(net, data, draws=400, seed=3)
    assert (ours.errors, ours.risk_bound) == (theirs.errors, theirs.risk_bound)


def test_features_are_still_the_same_examples():
    data = pb.load("digits").take(range(60))
    prior_data, bound_data = pb.split(data, 0.5)
    model = backbone()
    features = {
        name: pb.features(model, d)[0] for name, d in (("all", data), ("prior", prior_data), ("bound", bound_data))
    }
    assert features["all"].overlaps(data) and features["bound"].overlaps(bound_data)
    assert features["bound"].overlaps(features["all"]) and not features["bound"].overlaps(features["prior"])
    assert not features["bound"].overlaps(prior_data)
    again = pb.split(features["all"], 0.5)
    assert not again[1].overlaps(features["prior"]) and again[1].overlaps(bound_data)
    head = pb.stochastic(pb.features(model, data)[1])
    pb.fit(head, features["all"], epochs=1)
    head.freeze_prior()
    with pytest.raises(InvalidInput, match="prior was trained on"):
        pb.certify(head, features["bound"], draws=10)


def test_what_has_no_head_is_refused():
    data = (torch.randn(10, 4, generator=seeded(0)), torch.arange(10) % 2)
    first = Way(lambda net, x: net.second(net.first(x)), second=nn.Linear(3, 2), first=nn.Linear(4, 3))
    for model, options, error, message in (
        (nn.Sequential(nn.Linear(4, 2), nn.Softmax(-1)), {}, UnsupportedModel, "must be that of its head"),
        (first, {}, UnsupportedModel, "head="),
        (first, {"head": "third"}, InvalidInput, "no part 'third'"),
        (nn.Flatten(), {}, UnsupportedModel, "it has none"),
        (
            Way(lambda net, x: net.out(x - x.mean(0)), out=nn.Linear(4, 2)),
            {},
            UnsupportedModel,
            "depends on the other examples",
        ),
        (pb.stochastic(first, output="second"), {}, UnsupportedModel, "layers="),
        (first, {"head": "second", "batch_size": 0}, InvalidInput, "batch_size"),
    ):
        with pytest.raises(error, match=message):
            pb.features(model, data, **options)
    assert pb.features(first, data, head="second")[0].shape == (3,)


def test_training_and_certifying_a_head_takes_seconds():
    """Random features of digits by a ResNet-18; the time is the processor's, and the limit generous."""
    start = time.process_time()
    data, head = pb.features(backbone(group_norm), pb.load("digits"))
    prior_data, bound_data = pb.split(data, 0.5)
    net = pb.stochastic(head, 0.01)
    pb.learn_prior(net, prior_data, training=None)
    pb.fit(net, bound_data, epochs=5)
    certificate = pb.certify(net, bound_data, draws=20_000, seed=0)
    assert certificate.risk_bound < 0.75  # labels at random have .9
    assert time.process_time() - start < 30


def test_features_of_what_the_prior_has_seen_are_refused_also_when_cut_by_hand():
    """Random labels learnt by heart: their certificate would be a few per cent."""
    x, y = torch.randn(200, 5, generator=seeded(0)), torch.randint(2, (200,), generator=seeded(1))
    body = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 2))
    trained = pb.train_ordinary(body, (x.numpy(), y.numpy()), epochs=1)
    found, head = pb.features(trained, (x[100:].numpy(), y[100:].numpy()))
    with pytest.raises(InvalidInput, match="the prior was trained on some of these data"):
        pb.certify(pb.stochastic(head, 1e-6), found, draws=50)
    # And as they are, where nothing says what they were made of.
    with pytest.raises(InvalidInput, match="the prior was trained on some of these data"):
        pb.freeze_prior(net := pb.stochastic(head, 1e-6), found)
        pb.certify(net, (found.x.numpy(), found.y.numpy()), draws=50)


class LooksBack(nn.Module):
    """Each example is compared with the first of its batch: every beginning of a batch agrees with the whole."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(5, 2)

    def forward(self, x):
        return self.last(x - x[:1])


def test_a_model_that_looks_back_in_the_batch_is_refused():
    data = torch.randn(40, 5, generator=seeded(0)), torch.arange(40) % 2
    with pytest.raises(UnsupportedModel, match="depends on the other examples"):
        pb.certify(pb.stochastic(LooksBack(), 0.1), data, draws=50)
    with pytest.raises(UnsupportedModel, match="depends on the other examples"):
        pb.features(LooksBack(), data)
