"""Ordinary training: it learns, BatchNorm leaves no trace but in the weights, and it goes on after any epoch."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import pacbayes as pb
from pacbayes.data import as_data
from pacbayes.errors import InvalidInput, NonFinite, RunError, UnsupportedModel
from pacbayes.networks.batchnorm import with_batchnorm, without_batchnorm
from pacbayes.networks.shaping import data_behind
from pacbayes.training import Checkpoint, Ordinary
from pacbayes.training.augmentation import mixed
from pacbayes.training.fit import drain
from pacbayes.training.ordinary import _Training, training_ordinary


def images(n: int = 96, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Three classes: where the bright stripe is."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    x = torch.randn(n, 1, 6, 6, generator=generator) * 0.3
    x[torch.arange(n), 0, 2 * y] += 1
    return x, y


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(96, 12, bias=False), nn.ReLU(), nn.Linear(12, 3)
    )


def test_a_trained_copy_with_the_layers_of_the_original():
    model, (x, y) = net(), images()
    before = copy.deepcopy(model.state_dict())
    seen = []
    trained = pb.train_ordinary(model, (x, y), epochs=6, batch_size=32, callback=seen.append)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert not trained.training
    # A bias takes in what a BatchNorm adds.
    assert trained.state_dict().keys() == before.keys() | {"3.bias"}
    assert float((trained(x).argmax(1) != y).float().mean()) < 0.05
    assert [e.epoch for e in seen] == list(range(6)) and seen[-1].objective < seen[0].objective
    # It can be made stochastic, and certified on other data.
    stochastic = pb.stochastic(trained, 1e-6)
    assert pb.certify(stochastic, images(60, seed=1), draws=500, seed=1).empirical_risk < 0.1


@pytest.mark.parametrize("options", [
    {"batchnorm": False, "rate": 0.2}, {"average": 0.9}, {"augmentation": "shift 1, cutout 2"}, {"momentum": 0.0},
    {"mixing": 0.5}, {"output_rate": 0.2},
])  # fmt: skip
def test_every_option_learns(options):
    x, y = images()
    settings = {"epochs": 10, "batch_size": 32, **options}
    trained = pb.train_ordinary(net(), (x, y), **settings)
    assert float((trained(x).argmax(1) != y).float().mean()) < 0.1


def test_the_last_layer_may_have_a_rate_of_its_own():
    """One step of plain SGD: its change is a fifth, and that of the others the same."""
    start, changes = net(), []
    for factor in (1.0, 0.2):
        options = {"epochs": 1, "batch_size": 96, "momentum": 0.0, "weight_decay": 0.0, "batchnorm": False}
        trained = pb.train_ordinary(start, images(), output_rate=factor, **options)
        changes.append([t - s for t, s in zip(trained.parameters(), start.parameters(), strict=True)])
    for whole, part in zip(changes[0], changes[1], strict=True):
        last = whole is changes[0][-1] or whole is changes[0][-2]
        torch.testing.assert_close(part, whole * (0.2 if last else 1.0), rtol=1e-3, atol=1e-7)


def test_a_mixed_image_has_a_share_of_both_labels():
    x, y = images(32)
    training = _Training(net(), as_data((x, y)), Ordinary(mixing=1.0, batch_size=32, smoothing=0.0))
    seen, outputs = [], torch.randn(32, 3, requires_grad=True)

    def model(batch: torch.Tensor) -> torch.Tensor:
        seen.append(batch)
        return outputs

    training.generator.manual_seed(0)
    training.step(torch.arange(32), model)
    expected, own = mixed(x, 1.0, torch.Generator().manual_seed(0))
    assert torch.equal(seen[0], expected) and float(own.min()) < 0.9
    before = y.roll(1)
    log_probability = outputs.detach().log_softmax(1)
    rows = torch.arange(32)
    loss = -(own * log_probability[rows, y] + (1 - own) * log_probability[rows, before]).sum()
    assert float(training.sums[0]) == pytest.approx(float(loss), rel=1e-5)


def test_batchnorm_comes_and_goes_and_the_function_stays():
    model, (x, _) = with_batchnorm(net()).train(), images()
    for _ in range(3):
        model(x)  # statistics other than 0 and 1
    nn.init.uniform_(model[0][1].weight)
    model.eval()
    expected = model(x)
    folded = without_batchnorm(model)
    assert not any(isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d) for m in folded.modules())
    assert torch.allclose(folded(x), expected, atol=1e-5)


def test_the_average_is_of_the_weights_on_the_way():
    """With a decay next to 1 the average hardly leaves the start."""
    start = net()
    options = {"epochs": 4, "batchnorm": False, "rate": 0.1, "batch_size": 16}
    kept, trained = (
        pb.train_ordinary(start, images(), **options, average=average)[5].weight for average in (0.999999, 0.0)
    )
    moved = (trained - start[5].weight).abs().max()
    assert moved > 0.01 and (kept - start[5].weight).abs().max() < 0.1 * moved


def test_averaged_weights_have_statistics_of_their_own():
    """Far from its goal an average has other statistics than the weights that it was made of."""
    x, y = images(300)
    trained = pb.train_ordinary(net(), (x, y), epochs=8, batch_size=32, rate=0.5, weight_decay=0.05, average=0.99)
    assert float((trained(x).argmax(1) != y).float().mean()) < 0.1


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_going_on_after_any_epoch_ends_in_the_same_weights(average, tmp_path):
    data, settings = as_data(images()), Ordinary(epochs=3, batch_size=40, augmentation="shift 1", average=average)
    expected = drain(training_ordinary(net(), data, settings)).state_dict()
    for stop in range(3):
        checkpoint = Checkpoint(tmp_path / f"{stop}.safetensors")
        training = training_ordinary(net(), data, settings, checkpoint=checkpoint)
        for _ in range(stop + 2):
            next(training, None)
        training.close()
        seen: list[pb.training.Epoch] = []
        again = drain(training_ordinary(net(), data, settings, seen.append, Checkpoint(checkpoint.path)))
        assert [e.epoch for e in seen] == [0, 1, 2]
        assert all(torch.equal(t, expected[name]) for name, t in again.state_dict().items())
    with pytest.raises(RunError, match="not a checkpoint of this training"):
        other = Ordinary(epochs=3, batch_size=40, seed=1)
        drain(training_ordinary(net(), data, other, checkpoint=Checkpoint(checkpoint.path)))


def test_layers_that_are_random_themselves_go_by_the_seed():
    data = pb.load("digits").take(np.arange(90))
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.Dropout(0.5), nn.Linear(20, 10))
    before = torch.get_rng_state()
    first, second, other = (pb.train_ordinary(model, data, epochs=2, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first[-1].weight, second[-1].weight) and not torch.equal(first[-1].weight, other[-1].weight)


def test_more_classes_than_outputs():
    with pytest.raises(pb.PacBayesError, match=r"10 classes, and the model's output for one example is \[1, 3\]"):
        pb.train_ordinary(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), pb.load("digits"), epochs=1)


def test_a_pickled_model_knows_its_data_and_does_not_hold_them():
    data = pb.load("digits")
    prior_data, bound_data = pb.split(data, fraction=0.5)
    model = pb.build("mlp", data.shape, 10)
    trained = pb.train_ordinary(pb.standardise(model, prior_data), prior_data, epochs=1)
    net = pb.stochastic(trained)
    pb.fit(net, bound_data, epochs=1)
    weights = sum(p.nbytes for p in model.parameters())
    for one in (trained, net):
        held = pickle.dumps(one)
        assert len(held) < 6 * weights + 100 * len(data) < data.x.nbytes
        again = pickle.loads(held)
        with pytest.raises(pb.PacBayesError, match="prior was trained on some of these data"):
            pb.certify(again if one is net else pb.stochastic(again), prior_data, draws=10)


def test_a_pickled_model_knows_its_data_exactly():
    """A few rows of many, and rows that recur by themselves: what only the places in the whole can tell."""
    recurring = pb.Data((torch.arange(5000).view(1000, 5) % 7 // 4).float(), torch.arange(1000) % 2, 2)
    cases = ((recurring, np.arange(500), np.arange(1000)), (pb.load("digits"), np.arange(717), np.arange(712, 1400)))
    for data, of_prior, of_bound in cases:
        net = pb.stochastic(nn.Sequential(nn.Flatten(), nn.Linear(data.x[0].numel(), data.classes)))
        pb.freeze_prior(net, data.take(of_prior))
        for one in (net, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
            with pytest.raises(pb.PacBayesError, match="prior was trained on some of these data"):
                pb.certify(one, data.take(of_bound), draws=10)


def test_what_it_was_trained_on_is_no_bound_data():
    everything = pb.load("digits").take(np.arange(200))
    first, second, bound_data = (everything.take(np.arange(200)[part::3]) for part in range(3))
    model = pb.build("mlp", everything.shape, 10)
    for seen in (everything, bound_data):
        net = pb.stochastic(pb.train_ordinary(model, seen, epochs=1))
        with pytest.raises(pb.PacBayesError, match="prior was trained on some of these data"):
            pb.certify(net, bound_data, draws=10)
    # Nor what an earlier training has seen, or a training before features were taken.
    again = pb.train_ordinary(pb.train_ordinary(model, bound_data, epochs=1), first, epochs=1)
    assert pb.stochastic(nn.Sequential(nn.Flatten(), again[-1])).trained_on, "a head of it, in another model"
    of_bound_data, head = pb.features(again, bound_data)
    for net, data in ((pb.stochastic(again), bound_data), (pb.stochastic(head), of_bound_data)):
        with pytest.raises(pb.PacBayesError, match="prior was trained on some of these data"):
            pb.certify(net, data, draws=10)
    net = pb.stochastic(pb.train_ordinary(pb.train_ordinary(model, first, epochs=1), second, epochs=1))
    assert pb.certify(net, bound_data, draws=10).risk_bound <= 1
    assert not data_behind(net.model) and not data_behind(model)


def test_what_cannot_be_is_said():
    for options in (
        {"rate": 0.0},
        {"average": 1.0},
        {"epochs": 0},
        {"augmentation": "warp"},
        {"colour": 1},
        {"mixing": 2.0},
    ):
        with pytest.raises(InvalidInput):
            pb.train_ordinary(net(), images(), **options)
    with pytest.raises(InvalidInput, match="for images"):
        pb.train_ordinary(nn.Linear(4, 2), (torch.randn(20, 4), torch.arange(20) % 2), augmentation="flip")
    with pytest.raises(NonFinite, match="smaller rate"):
        pb.train_ordinary(net(), images(), rate=1e30, batchnorm=False, epochs=3)


class AlwaysDropped(nn.Module):
    def forward(self, x):
        return torch.dropout(x, 0.5, True)


class Positions(nn.Module):
    """Linear layers over positions, of as many features as there are of them, before one over all."""

    def __init__(self):
        super().__init__()
        self.first, self.frozen, self.tied = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 5)
        self.shifted = nn.Linear(5, 5)
        self.frozen.requires_grad_(False)
        self.shifted.bias.requires_grad_(False)
        self.other, self.last = nn.Linear(5, 5), nn.Linear(25, 3)
        self.other.weight = self.tied.weight

    def forward(self, x):
        x = self.tied(self.shifted(self.frozen(torch.relu(self.first(x)))))
        return self.last(torch.relu(self.other(x)).flatten(1))


def test_batchnorm_is_of_features_and_leaves_frozen_and_tied_layers_alone():
    torch.manual_seed(0)
    plain, x = Positions(), torch.randn(40, 5, 5)
    model = with_batchnorm(copy.deepcopy(plain)).train()
    assert sum(isinstance(m, nn.BatchNorm1d) for m in model.modules()) == 1
    for _ in range(3):
        model(3 * x + torch.arange(5.0))
    nn.init.uniform_(model.first[1].weight)
    model.eval()
    expected = model(x)
    folded = without_batchnorm(model)
    assert torch.allclose(folded(x), expected, atol=1e-5)
    assert torch.equal(folded.frozen.weight, plain.frozen.weight) and torch.equal(folded.tied.weight, plain.tied.weight)
    assert torch.equal(folded.shifted.bias, plain.shifted.bias)


@pytest.mark.parametrize(
    "way",
    [
        lambda net, x: net.last(torch.nn.functional.linear(x, net.first.weight)),
        lambda net, x: net.last(net.first(x) if isinstance(net.first, nn.Linear) else x),
    ],
)
def test_layers_that_no_batchnorm_can_follow(way):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x):
            return way(self, x)

    data = (torch.randn(20, 4), torch.arange(20) % 2)
    with pytest.raises(UnsupportedModel, match="batchnorm=False"):
        pb.train_ordinary(Own(), data, epochs=1)
    pb.train_ordinary(Own(), data, epochs=1, batchnorm=False)


def test_an_error_without_words():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(4, 2)

        def forward(self, x):
            raise RuntimeError

    data = (torch.randn(20, 4), torch.arange(20) % 2)
    with pytest.raises(InvalidInput, match="shape.*RuntimeError"):
        pb.train_ordinary(Bare(), data, epochs=1)
    with pytest.raises(InvalidInput, match="shape.*RuntimeError"):
        pb.fit(pb.stochastic(Bare()), data, epochs=1)


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), nn.Flatten(), nn.Linear(12, 2)),
        nn.Sequential(nn.Flatten(), *[m for _ in range(60) for m in (nn.Linear(12, 12), nn.Tanh())], nn.Linear(12, 2)),
        nn.Sequential(nn.Flatten(), nn.Linear(12, 12), AlwaysDropped(), nn.Linear(12, 2)),
    ],
    ids=["fast paths", "deep and steep", "random"],
)
def test_what_a_batchnorm_may_follow_is_trained(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if len(model) > 100 and name.endswith("weight"):
                nn.init.orthogonal_(parameter, 3.0)
    pb.train_ordinary(model, (torch.randn(20, 3, 4), torch.arange(20) % 2), epochs=1, rate=0.01)


class Images(nn.Module):
    """One of the ways in which a model may not take images whose channels come last in memory."""

    def __init__(self, first: nn.Module, way):
        super().__init__()
        self.first, self.last, self.way = first, nn.Linear(96, 3), way

    def forward(self, x):
        return self.last(self.way(self.first, x))


@pytest.mark.parametrize(
    ("first", "way"),
    [
        (nn.Conv2d(1, 6, 3), lambda conv, x: conv(x).view(len(x), -1)),
        (nn.Conv3d(1, 6, (1, 3, 3)), lambda conv, x: conv(x[:, :, None]).flatten(1)),
    ],
)
def test_images_of_any_layout(first, way):
    pb.train_ordinary(Images(first, way), images(), epochs=1, augmentation="flip, shift 1")
    trained = pb.train_ordinary(Images(first, way), images(), epochs=6, batch_size=32)
    x, y = images()
    assert float((trained(x).argmax(1) != y).float().mean()) < 0.1


@pytest.mark.parametrize("own", [True, False])
def test_batchnorm_needs_two_examples(own):
    """A short last batch of one is left out; batches of one cannot all be."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), *([nn.BatchNorm1d(8)] if own else []), nn.Linear(8, 3))
    options = {"batchnorm": not own, "epochs": 1, "rate": 0.01}
    pb.train_ordinary(model, images(33), batch_size=32, **options)
    with pytest.raises(InvalidInput, match="BatchNorm needs batches of 2 at least"):
        pb.train_ordinary(model, images(33), batch_size=1, **options)


class Viewed(nn.Linear):
    def forward(self, x):
        return super().forward(x.view(len(x), -1))


def test_a_model_that_views_its_images_at_once():
    """They may come in another layout after a shift."""
    data = (torch.randn(40, 3, 4, 4), torch.arange(40) % 2)
    model = nn.Sequential(Viewed(48, 8), nn.ReLU(), nn.Linear(8, 2))
    pb.train_ordinary(model, data, epochs=1, batchnorm=False, augmentation="shift 1")


class Routed(nn.Module):
    """Each example goes to one of two layers."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        here = x[:, 0] > 3
        hidden = x.new_zeros(len(x), 8)
        hidden[here], hidden[~here] = self.first(x[here]), self.second(x[~here])
        return self.last(hidden)


def test_a_layer_that_gets_a_single_example_is_said_in_words():
    x = torch.zeros(32, 4)
    x[0] = 4.0
    data = (x, torch.arange(32) % 3)
    with pytest.raises(UnsupportedModel, match="one example at a time.*batchnorm=False"):
        pb.train_ordinary(Routed(), data, epochs=1, batch_size=16)
    pb.train_ordinary(Routed(), data, epochs=1, batch_size=16, batchnorm=False)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.bag = nn.Embedding(7, 4, sparse=True), nn.EmbeddingBag(7, 4, sparse=True)
        self.last = nn.Linear(4, 3)

    def forward(self, x):
        words = (3 * x.abs()).long() % 7
        return self.last(self.words(words).mean(1) + self.bag(words))


def test_embeddings_with_sparse_gradients_learn():
    data = (torch.randn(24, 4, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 3)
    trained = pb.train_ordinary(model := Words(), data, epochs=1)
    assert model.words.sparse
    assert all((new != old).any() for new, old in zip(trained.parameters(), model.parameters(), strict=True))
    pb.fit(net := pb.stochastic(model), data, epochs=1)
    assert (net.mean != net.prior_mean).any()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_models_that_cannot_be_copied_or_are_scripted_are_refused():
    for first, message in (
        (nn.LazyLinear(4), "no shape yet"),
        (torch.jit.script(nn.Linear(4, 4)), r"compiled by torch\.jit"),
    ):
        with pytest.raises(UnsupportedModel, match=message):
            pb.train_ordinary(nn.Sequential(first, nn.Linear(4, 2)), (torch.randn(20, 4), torch.arange(20) % 2))
