"""Models for which no certificate is valid: each is refused, in words that name the cause."""

import pytest
import torch
from small_nets import Applied, noise
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint

import pacbayes as pb
from pacbayes import certify, fit, holdout_bound, stochastic
from pacbayes.errors import InvalidInput, UnsupportedModel


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


def test_a_normalisation_put_back_into_training_mode_stays_fixed():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4).requires_grad_(False), nn.Linear(4, 2)).eval()
    net = stochastic(model, 0.01)
    net.model.train()
    certify(net, noise(), draws=10)
    assert not net.model.training and not net.fixed_part_changed()


def test_what_mixes_examples_up_in_large_batches_alone_is_refused():
    net = stochastic(Applied(lambda model, x: model.last(model.first(x) + (x.mean(0) if len(x) > 64 else 0))), 0.01)
    certify(net, noise(60), draws=10)
    with pytest.raises(UnsupportedModel, match="the other examples of the batch"):
        certify(net, noise(200), draws=10)


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


def neighbours(net, x):
    hidden = net.first(x)
    return net.last(hidden + hidden.sign().roll(1, 0))


@pytest.mark.parametrize("size", [1e3, 1e5, 1e7])
def test_one_large_example_hides_nothing(size):
    """What is rounding for it is none for the others."""
    x, y = noise(200).x.clone(), noise(200).y
    x[100] *= size
    with pytest.raises(UnsupportedModel, match="depends on the other examples"):
        certify(stochastic(Applied(neighbours), 0.01), (x, y), draws=10)
    with pytest.raises(UnsupportedModel, match="depends on the other examples"):
        pb.features(nn.Sequential(Middle(), nn.Linear(4, 2)), (x, y))


class BesideALargeColumn(nn.Module):
    def forward(self, x):
        return torch.cat([x[:, :1], x[:, 1:] - x[:, 1:].mean(0)], 1)


def test_one_large_column_hides_nothing():
    x, y = noise(200).x.clone(), noise(200).y
    x[:, 0] = 1e5 + 1e4 * x[:, 0]
    with pytest.raises(UnsupportedModel, match="depends on the other examples"):
        pb.features(nn.Sequential(BesideALargeColumn(), nn.Linear(4, 2)), (x, y))
    model = Applied(lambda net, x: net.last(net.first(x) - net.first(x).mean(0)))
    with torch.no_grad():
        model.last.bias[1] = -1e5
    with pytest.raises(UnsupportedModel, match="depends on the other examples"):
        certify(stochastic(model, 0.01), noise(200), draws=10)


def test_rounding_where_numbers_cancel_is_no_mixing():
    """Outputs that are differences of far larger numbers."""
    x = 1e6 + torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Linear(4, 64), nn.Linear(64, 2))
    with torch.no_grad():
        model[0].weight -= model[0].weight.mean(1, keepdim=True)  # what all columns have in common is lost
        model[0].bias.zero_()
    certify(stochastic(model, 1e-14), (x, torch.arange(100) % 2), draws=10)


class Middle(nn.Module):
    def forward(self, x):
        return x - x.median(0).values


class Gated(nn.Module):
    """What mixes the examples is behind a gate that a draw opens or shuts."""

    def __init__(self, gate):
        super().__init__()
        self.body, self.head, self.gate = nn.Linear(4, 8), nn.Linear(8, 2), nn.Parameter(torch.full((1,), gate))

    def forward(self, x):
        hidden = self.body(x).relu()
        return self.head(hidden + self.gate.relu() * hidden.mean(0, keepdim=True))


@pytest.mark.parametrize("gate", [-0.05, 0.0, 0.1, 0.3])
def test_what_mixes_in_some_draws_only_is_refused(gate):
    with pytest.raises(UnsupportedModel, match="depends on the other examples"):
        certify(stochastic(Gated(gate), 0.05), noise(), draws=10)


class Noisy(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5)


def test_a_model_that_is_random_itself_is_told_so():
    model = nn.Sequential(nn.Linear(4, 8), Noisy(), nn.Linear(8, 2))
    with pytest.raises(UnsupportedModel, match=r"differs from pass to pass: it is random \(F.dropout without"):
        certify(stochastic(model, 0.01), noise(), draws=10)


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


def test_what_trains_in_a_closure_is_found():
    factor = torch.ones(4, requires_grad=True)

    class Closed(nn.Linear):
        def forward(self, x):
            return super().forward(x * factor)

    model = nn.Sequential(Closed(4, 8), nn.ReLU(), nn.Linear(8, 2))
    with pytest.raises(UnsupportedModel, match=r"shape \[4\] trains outside the KL"):
        certify(stochastic(model, 0.01), noise(), draws=10)


def test_a_model_that_computes_its_pass_again_is_told_so():
    model = Applied(lambda net, x: net.last(checkpoint(lambda z: net.first(z).relu(), x, use_reentrant=False)))
    with pytest.raises(UnsupportedModel, match=r"leave out torch\.utils\.checkpoint"):
        fit(stochastic(model, 0.01), noise(), epochs=1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_few_digits_are_refused(dtype):
    with pytest.raises(UnsupportedModel, match=r"0.weight is not float32 or float64: take model.float\(\)"):
        stochastic(nn.Sequential(nn.Linear(50, 2)).to(dtype), 1e-4)


def test_weights_are_as_precise_as_examples():
    with pytest.raises(InvalidInput, match=r"take model\.float\(\)"):
        fit(stochastic(pb.build("mlp", (4,), 2).double(), 0.01), noise(), epochs=1)
    # Who turns examples into float64 by themselves may.
    own = Applied(lambda net, x: net.last(net.first(x.double()).relu())).double()
    assert certify(stochastic(own, 0.01), noise(), draws=20).check() == []


def test_weights_may_be_float64_by_default(doubles):
    fit(stochastic(pb.build("mlp", (4,), 2), 0.01), noise(), epochs=1)


def test_frozen_networks_are_certified():
    certify(stochastic(nn.Linear(4, 2), 0.01).requires_grad_(False), noise(), draws=10)
