"""The paper's architectures, layer by layer."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import pacbayes as pb
from pacbayes.errors import InvalidInput
from pacbayes.networks import ARCHITECTURES, build, stochastic
from pacbayes.networks.architectures import Committee, count_weights

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)

# C for a convolution, F for max pooling, R for ReLU, L for Linear, as in the formulas of SM5.
PAPER = {
    "mnist-4": (MNIST, "C R C F R L R L", [1, 32, 64], [9216, 128, 10], 0),
    "cifar10-9": (
        CIFAR,
        "C R C F R C R C F R C R C F R L R L R L",
        [3, 32, 64, 128, 128, 256, 256],
        [4096, 1024, 512, 10],
        1,
    ),
    "cifar10-15": (
        CIFAR,
        "C R C F R C R C F R C R C R C R C F R C R C R C R C F R L R L R L",
        [3, 32, 64, 128, 128, 256, 256, 256, 256, 512, 512, 512, 512],
        [2048, 1024, 512, 10],
        1,
    ),
    "cifar10-15-five-pools": (
        CIFAR,
        "C R C F R C R C F R C R C F R C R C F R C R C R C R C F R L R L R L",
        [3, 32, 64, 128, 128, 256, 256, 256, 256, 512, 512, 512, 512],
        [512, 1024, 512, 10],
        1,
    ),
}
LETTERS = {nn.Conv2d: "C", nn.MaxPool2d: "F", nn.ReLU: "R", nn.Linear: "L"}


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_architectures(name):
    shape, formula, channels, features, padding = PAPER[name]
    model = build(name, shape, 10)
    assert [LETTERS[type(m)] for m in model if not isinstance(m, nn.Flatten)] == formula.split()
    convolutions = [m for m in model if isinstance(m, nn.Conv2d)]
    linears = [m for m in model if isinstance(m, nn.Linear)]
    assert [convolutions[0].in_channels] + [c.out_channels for c in convolutions] == channels
    assert [linears[0].in_features] + [layer.out_features for layer in linears] == features
    for conv in convolutions:
        assert (conv.kernel_size, conv.stride, conv.padding) == ((3, 3), (1, 1), (padding, padding))
    for pool in (m for m in model if isinstance(m, nn.MaxPool2d)):
        assert (pool.kernel_size, pool.stride, pool.padding) == (2, 2, 0)
    weights = sum(9 * a * b + b for a, b in zip(channels, channels[1:], strict=False))
    weights += sum(a * b + b for a, b in zip(features, features[1:], strict=False))
    assert sum(p.numel() for p in model.parameters()) == weights
    with torch.no_grad():
        assert model(torch.zeros(2, *shape)).shape == (2, 10)


def test_centred_pixels_are_nearly_those_of_the_authors():
    pixels = torch.arange(256.0).view(1, 1, 16, 16)
    centred = build("mnist-4-centred", MNIST, 10)
    plain = build("mnist-4", MNIST, 10)
    inputs = centred[0](4 * pixels / 255)
    torch.testing.assert_close(inputs, (pixels / 255 - 1 / 8) / (5 / 16))
    torch.testing.assert_close(inputs, (pixels / 255 - 0.1307) / 0.3081, rtol=0, atol=0.05)
    # the same first weights, so that nothing else differs
    torch.testing.assert_close([*centred.parameters()], [*plain.parameters()], rtol=0, atol=0)


def test_the_number_of_weights_of_mnist_4():
    net = stochastic(build("mnist-4", MNIST, 10))
    assert len(net.mean) == 1_199_882


@pytest.mark.parametrize(
    ("name", "shape"), [("mlp", (64,)), ("mlp", (1, 8, 8)), ("mlp-2", (13,)), ("cnn-small", (1, 8, 8))]
)
@pytest.mark.parametrize("classes", [2, 5])
def test_the_small_architectures(name, shape, classes):
    net = stochastic(build(name, shape, classes))
    for sampling in ("shared", "independent", "mean"):
        assert net(torch.zeros(3, *shape), sampling).shape == (3, classes)
    assert net.classes == classes


def test_each_architecture_is_described():
    for name, architecture in ARCHITECTURES.items():
        assert architecture.about
        assert architecture.for_images == ("mlp" not in name)


@pytest.mark.parametrize("init", ["default", "orthogonal"])
def test_the_seed_decides_the_weights_and_the_global_generator_is_left_alone(init):
    def weights(seed: int) -> torch.Tensor:
        model = build("cnn-small", (1, 8, 8), 10, init=init, seed=seed)
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    before = torch.get_rng_state()
    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", ["mnist-4", "scattering"])
def test_the_weights_are_made_on_the_processor_whatever_the_default_device(name):
    with torch.device("meta"):
        elsewhere = build(name, MNIST, 10, seed=3)
    for a, b in zip(elsewhere.parameters(), build(name, MNIST, 10, seed=3).parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_weights_are_counted_without_making_them(name):
    assert count_weights(name, CIFAR, 10) == sum(p.numel() for p in build(name, CIFAR, 10).parameters())
    side = 2**10
    shape = (3, side, side) if ARCHITECTURES[name].for_images else (2**31 - 1,)
    assert count_weights(name, shape, 10) > 0


def test_a_scattering_body_is_built_whatever_the_default_precision(doubles):
    assert build("scattering", MNIST, 10).float()(torch.zeros(2, *MNIST, dtype=torch.float32)).shape == (2, 10)


def test_orthogonal_weights_are_orthogonal_with_zero_biases():
    model = build("cnn-small", (1, 8, 8), 10, init="orthogonal")
    for layer in model:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            weight = layer.weight.detach().double().flatten(1)
            gram = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
            torch.testing.assert_close(gram, torch.eye(len(gram), dtype=torch.float64), rtol=0, atol=1e-5)
            assert not layer.bias.any()


def test_default_weights_are_pytorchs():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        expected = nn.Linear(20, 100)
    first = build("mlp", (20,), 3, seed=5)[0]
    assert torch.equal(first.weight, expected.weight)
    assert first.weight.abs().max() <= 1 / math.sqrt(20)


def test_unknown_names_are_refused_with_the_choices():
    with pytest.raises(InvalidInput, match=r"'resnet'.*mlp.*mnist-4"):
        build("resnet", MNIST, 10)
    with pytest.raises(InvalidInput, match=r"'xavier'.*default.*orthogonal"):
        build("mlp", (4,), 2, init="xavier")


@pytest.mark.parametrize(("name", "shape"), [("mnist-4", (784,)), ("cnn-small", (8, 8)), ("cifar10-9", (1, 3, 32, 32))])
def test_examples_that_are_no_images_are_refused(name, shape):
    with pytest.raises(InvalidInput, match=f"{name}.*x\\[:, None\\]" if len(shape) == 2 else name):
        build(name, shape, 10)


def test_channels_that_come_last_are_pointed_out():
    with pytest.warns(UserWarning, match=r"look like \[height, width, channels\].*x\.transpose\(0, 3, 1, 2\)"):
        build("cnn-small", (32, 32, 3), 10)
    for name, shape in (("mlp", (32, 32, 3)), ("cnn-small", (3, 4, 4)), ("cnn-small", (16, 4, 4))):
        build(name, shape, 10)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("mnist-4", (1, 4, 4)), ("mnist-4", (1, 5, 5)), ("cifar10-9", (3, 7, 32)), ("cifar10-15", (1, 8, 8))],
)
def test_images_too_small_are_refused(name, shape):
    with pytest.raises(InvalidInput, match="smaller network"):
        build(name, shape, 10)


def test_a_mirrored_body_sees_an_image_and_its_mirror_image_alike():
    model = build("resnet-18-mirrored", (1, 8, 8), 3).eval()
    x = torch.randn(2, 1, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(model(x), model(x.flip(-1)))
        body, plain = model[0], nn.Sequential(*model[0])
        torch.testing.assert_close(body(x), (plain(x) + plain(x.flip(-1))) / 2)
        torch.testing.assert_close(body.train()(x), plain(x))


def test_a_mirrored_body_is_mirrored_in_the_certified_network():
    net = stochastic(build("resnet-18-mirrored", (1, 8, 8), 3).train(), 0.01, layers=["1"])
    x = torch.randn(4, 1, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(net(x, sampling="mean"), net(x.flip(-1), sampling="mean"))


def test_a_committee_gives_the_mean_of_its_members_and_trains_them_apart():
    model = build("cnn-6-committee", (1, 8, 8), 3).eval()
    committee, last = model
    count, x = len(committee.members), torch.randn(24, 1, 8, 8)
    weights = last.weight.detach().chunk(count, 1)
    with torch.no_grad():
        each = [count * member(x) @ w.T + last.bias for member, w in zip(committee.members, weights, strict=True)]
        torch.testing.assert_close(model(x), torch.stack(each).mean(0))
        # In training an example is answered by one of them.
        shared = model.train()(x)
        for place in range(count):
            torch.testing.assert_close(shared[place::count], each[place][place::count])
        torch.testing.assert_close(model(x[:15]), model.eval()(x[:15]))
    shares = model.train()(x)[3::count].sum()
    gradients = torch.autograd.grad(shares, list(committee.parameters()), allow_unused=True)
    touched = [any(g is not None and g.any() for g in some) for some in zip(*[iter(gradients)] * 12, strict=True)]
    assert touched == [place == 3 for place in range(count)]


def test_a_committee_of_kernels():
    committee, last = model = build("kernels-committee", MNIST, 10)
    kinds = [{m.kernel_size[0] for m in member if isinstance(m, nn.Conv2d)} for member in committee.members]
    assert kinds == [{3}, {5}, {7}] * 2
    assert last.in_features == 2 * 16 * (176 + 160 + 192)
    x = torch.randn(12, *MNIST)
    with torch.no_grad():
        alone = committee.members[1](x[1::6])
        torch.testing.assert_close(committee.train()(x)[1::6, 2816 : 2816 + 2560], 6 * alone)
        assert model.eval()(x).shape == (12, 10)


def test_a_committee_trains_and_certifies():
    prior_data, bound_data = pb.split(pb.load("digits"), 0.5, seed=0)
    members = [nn.Sequential(nn.Flatten(), nn.Linear(64, size), nn.ReLU()) for size in (24, 32, 40, 32)]
    model = nn.Sequential(Committee(members), nn.Linear(128, 10))
    model = pb.train_ordinary(model, prior_data, epochs=20, batch_size=100, rate=0.4, output_rate=0.1)
    net = stochastic(model, 1e-6, layers=["1"])
    assert pb.certify(net, bound_data, sampling="exact").risk_bound < 0.2
