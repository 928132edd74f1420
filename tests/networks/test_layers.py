"""The law of a pass: each example's law is the same in every mode, and only the dependence between examples differs.

Statistical tests compare z-scores with a threshold chosen so that a right implementation fails with the probability
stated in each; seeds are fixed.
"""

from __future__ import annotations

import copy
import math

import pytest
import torch
from scipy import stats
from small_nets import mean_z, normals, seeded, shaken, squared_deviations, two_layers, two_sample_z, variance_z
from torch import nn

from pacbayes.networks import StochasticNetwork, stochastic
from pacbayes.networks.distributions import DISTRIBUTIONS
from pacbayes.networks.layers import Draw, StochasticConv

MODES = ["shared", "independent", "mixed"]
# Two-sided, 5.7 standard errors: 1.2e-8 for each comparison, so that 80 of them fail by chance with 1e-6.
THRESHOLD = 5.7


@torch.no_grad()
def draws(net: StochasticNetwork, x: torch.Tensor, sampling: str, n: int, seed: int = 0) -> torch.Tensor:
    """Independent outputs [n, examples, classes] for the examples x.

    A pass each where the batch shares its draw; one pass over n copies where examples have draws of their own.
    """
    generator = seeded(seed)
    if sampling == "independent":
        out = net(x.repeat(n, *(1,) * (x.dim() - 1)), sampling, generator)
        return out.view(n, len(x), -1)
    return torch.stack([net(x, sampling, generator) for _ in range(n)])


def captured(module: nn.Module, call) -> torch.Tensor:
    """What a module inside gave in the pass that ``call`` makes; the first one is preceded by a look at the model."""
    outputs: list[torch.Tensor] = []
    handle = module.register_forward_hook(lambda module, args, out: outputs.append(out.detach()))
    call()
    handle.remove()
    return outputs[-1]


# Moments


def two_layer_moments(net: StochasticNetwork, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance of Linear, ReLU, Linear with Gaussian weights, in closed form."""
    state = net.state()
    w1, b1, w2, b2 = (state[f"mean.{n}"] for n in ("0.weight", "0.bias", "2.weight", "2.bias"))
    v1, c1, v2, c2 = (state[f"rho.{n}"].abs() ** 3 for n in ("0.weight", "0.bias", "2.weight", "2.bias"))
    mean, deviation = x @ w1.T + b1, (x.square() @ v1.T + c1).sqrt()
    t = mean / deviation
    density, below = torch.exp(-t * t / 2) / math.sqrt(2 * math.pi), torch.special.ndtr(t)
    first = mean * below + deviation * density
    second = (mean.square() + deviation.square()) * below + mean * deviation * density
    variance = second @ (w2.square() + v2).T - first.square() @ w2.square().T + c2
    return first @ w2.T + b2, variance


@pytest.mark.parametrize("sampling", MODES)
def test_two_linear_layers_have_the_moments_of_their_formula(sampling):
    """8 comparisons a mode."""
    net = shaken(stochastic(two_layers(1), 0.2))
    x = torch.tensor([[0.5, -1.0, 2.0], [0.0, 0.3, -0.7]], dtype=torch.float64)
    mean, variance = two_layer_moments(net, x)
    out = draws(net, x, sampling, 40_000 if sampling == "independent" else 8000)
    assert mean_z(out, mean).abs().max() < THRESHOLD
    assert variance_z(out, variance).abs().max() < THRESHOLD
    # the test can see an error of a tenth of a standard deviation, and of 20 % of the variance
    assert (out.std(0) / math.sqrt(len(out)) * THRESHOLD < 0.1 * variance.sqrt()).all()
    assert ((squared_deviations(out).std(0) / math.sqrt(len(out))) * THRESHOLD < 0.2 * variance).all()


def conv_net() -> tuple[nn.Module, torch.Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(3, 2, 2), nn.Flatten(), nn.Linear(8, 2)
        )
        return model.double(), torch.randn(2, 1, 6, 6).double()


class Positions(nn.Module):
    """A Linear applied at every position of a sequence, then their mean."""

    def __init__(self):
        super().__init__()
        self.each, self.out = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.out(torch.relu(self.each(x)).mean(1))


def positions_net() -> tuple[nn.Module, torch.Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        return Positions().double(), torch.randn(2, 5, 3).double()


@pytest.mark.parametrize("sampling", ["independent", "mixed"])
@pytest.mark.parametrize("family", DISTRIBUTIONS)
@pytest.mark.parametrize("make", [conv_net, positions_net])
def test_every_mode_has_the_moments_of_the_shared_one(make, family, sampling):
    """64 comparisons in all. Were positions of one example drawn apart, its variance would fall by more than half."""
    model, x = make()
    net = shaken(stochastic(model, 0.1, distribution=family))
    n = 3000
    shared = draws(net, x, "shared", n, seed=1)
    other = draws(net, x, sampling, 6000 if sampling == "independent" else n, seed=2)
    assert two_sample_z(shared, other).abs().max() < THRESHOLD
    assert two_sample_z(squared_deviations(shared), squared_deviations(other)).abs().max() < THRESHOLD
    spread = squared_deviations(shared)
    assert (spread.std(0) / math.sqrt(n) * THRESHOLD < 0.5 * spread.mean(0)).all()


# Dependence


@pytest.mark.parametrize("make", [conv_net, positions_net, lambda: (two_layers(), torch.ones(1, 3).double())])
@pytest.mark.parametrize("family", DISTRIBUTIONS)
def test_equal_examples_in_a_batch(make, family):
    model, x = make()
    net = stochastic(model, 0.1, distribution=family)
    pair = x[:1].repeat(2, *(1,) * (x.dim() - 1))
    with torch.no_grad():
        shared = net(pair, "shared", seeded(0))
        torch.testing.assert_close(shared[0], shared[1], rtol=1e-12, atol=1e-12)
        # neighbours in a batch of n copies: n/2 pairs, with a correlation of 0 within 1/sqrt(n/2)
        n = 20_000
        out = net(x[:1].repeat(n, *(1,) * (x.dim() - 1)), "independent", seeded(1)).view(n // 2, 2, -1)
    standard = (out - out.mean((0, 1))) / out.std((0, 1))
    correlation = (standard[:, 0, :, None] * standard[:, 1, None, :]).mean(0)
    assert correlation.abs().max() * math.sqrt(n // 2) < THRESHOLD


def test_the_mixed_mode_shares_convolutions_and_nothing_else():
    model, x = conv_net()
    net = stochastic(model, 0.1)
    pair = x[:1].repeat(2, 1, 1, 1)
    for layer in (0, 3):
        out = captured(net.model[layer], lambda: net(pair, "mixed", seeded(0)))
        torch.testing.assert_close(out[0], out[1], rtol=1e-12, atol=1e-12)
        out = captured(net.model[layer], lambda: net(pair, "independent", seeded(0)))
        assert not torch.allclose(out[0], out[1])
    out = net(pair, "mixed", seeded(0))
    assert not torch.allclose(out[0], out[1])


@pytest.mark.parametrize("sampling", MODES)
@pytest.mark.parametrize("family", DISTRIBUTIONS)
def test_equal_patches_of_one_example_get_equal_outputs(sampling, family):
    """Weights are shared over positions: within an example a convolution stays one."""
    for conv, shape in (
        (nn.Conv2d(2, 3, 2), (4, 2, 3, 3)),
        (nn.Conv2d(2, 4, 2, groups=2), (4, 2, 3, 3)),
        (nn.Conv1d(2, 3, 2), (4, 2, 5)),
        (nn.Conv3d(2, 3, 2), (4, 2, 3, 3, 3)),
    ):
        positions = math.prod(n - 1 for n in shape[2:])
        net = stochastic(nn.Sequential(conv, nn.Flatten(), nn.Linear(conv.out_channels * positions, 2)).double(), 0.5)
        flat = torch.ones(shape, dtype=torch.float64) * torch.tensor([1.0, 2.0]).double().view(
            2, *(1,) * (len(shape) - 2)
        )
        out = captured(net.model[0], lambda net=net, flat=flat: net(flat, sampling, seeded(0))).flatten(2)
        torch.testing.assert_close(out, out[..., :1].expand_as(out), rtol=1e-12, atol=1e-12)
        differ = not torch.allclose(out[0], out[1])
        assert differ == (sampling == "independent")


@pytest.mark.parametrize("sampling", MODES)
@pytest.mark.parametrize("family", DISTRIBUTIONS)
def test_equal_positions_of_one_example_get_equal_outputs_from_a_linear(sampling, family):
    model, _ = positions_net()
    net = stochastic(model, 0.5, distribution=family)
    x = torch.tensor([0.3, -1.0, 2.0]).double().expand(4, 5, 3)
    out = captured(net.model.each, lambda: net(x, sampling, seeded(0)))
    assert out.shape == (4, 5, 4)
    torch.testing.assert_close(out, out[:, :1].expand_as(out), rtol=1e-12, atol=1e-12)
    assert torch.allclose(out[0], out[1]) == (sampling == "shared")


def test_a_linear_on_grids_of_positions_is_a_loop_of_linears():
    """[batch, height, width, features], each example with weights of its own."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Flatten(), nn.Linear(24, 2)).double()
    net = stochastic(model, 0.5)
    x = torch.randn(5, 2, 3, 3, generator=seeded(1), dtype=torch.float64)
    out = captured(net.model[0], lambda: net(x, "independent", seeded(7)))
    generator = seeded(7)
    weight = model[0].weight + math.sqrt(0.5) * torch.randn(5, 4, 3, generator=generator, dtype=torch.float64)
    bias = model[0].bias + math.sqrt(0.5) * torch.randn(5, 4, generator=generator, dtype=torch.float64)
    for b in range(5):
        torch.testing.assert_close(out[b], nn.functional.linear(x[b], weight[b], bias[b]))


CONVOLUTIONS = {
    "1d": (nn.Conv1d(2, 3, 3), (2, 7)),
    "1d all": (nn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2, bias=False), (4, 9)),
    "1d circular": (nn.Conv1d(2, 3, 4, padding=2, padding_mode="circular"), (2, 7)),
    "2d": (nn.Conv2d(2, 3, 3), (2, 6, 5)),
    "2d stride": (nn.Conv2d(2, 3, (3, 2), stride=(2, 3), padding=(1, 2)), (2, 7, 8)),
    "2d dilation": (nn.Conv2d(2, 3, 2, dilation=(2, 3), bias=False), (2, 6, 7)),
    "2d groups": (nn.Conv2d(4, 8, 3, groups=4, padding=1, stride=2), (4, 5, 6)),
    "2d same": (nn.Conv2d(2, 3, (3, 5), padding="same", dilation=(2, 1)), (2, 6, 5)),
    "2d valid": (nn.Conv2d(2, 3, 3, padding="valid"), (2, 6, 5)),
    "2d reflect": (nn.Conv2d(2, 3, 3, padding=(2, 1), padding_mode="reflect"), (2, 6, 5)),
    "2d replicate, same": (nn.Conv2d(2, 4, (2, 3), padding="same", padding_mode="replicate", groups=2), (2, 6, 5)),
    "2d circular": (nn.Conv2d(2, 3, 3, padding=1, stride=2, padding_mode="circular"), (2, 6, 5)),
    "3d": (nn.Conv3d(2, 3, (2, 3, 1)), (2, 4, 5, 3)),
    "3d all": (
        nn.Conv3d(2, 4, 2, stride=(1, 2, 1), padding=(1, 0, 1), dilation=(1, 1, 2), groups=2, padding_mode="replicate"),
        (2, 4, 5, 3),
    ),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("family", DISTRIBUTIONS)
def test_a_convolution_for_each_example_is_a_loop_of_convolutions(name, family):
    """The weights behind the pass are drawn again from the same seed, and PyTorch's own layer does the rest."""
    conv, shape = CONVOLUTIONS[name]
    conv = copy.deepcopy(conv).double()
    batch = 3
    x = torch.randn(batch, *shape, generator=seeded(1), dtype=torch.float64)
    features = conv(x)[0].numel()
    net = shaken(
        stochastic(nn.Sequential(conv, nn.Flatten(), nn.Linear(features, 2)).double(), 0.3, distribution=family)
    )
    out = captured(net.model[0], lambda: net(x, "independent", seeded(8)))

    state, source, law = net.state(), normals(8), DISTRIBUTIONS[family]
    drawn = {}
    for kind, _ in conv.named_parameters():
        mean, s = state[f"mean.0.{kind}"], state[f"rho.0.{kind}"].abs() ** 1.5
        drawn[kind] = mean + s * law.noise((batch, *mean.shape), source)
    for b in range(batch):
        one = {kind: t[b] for kind, t in drawn.items()}
        expected = torch.func.functional_call(conv, one, (x[b : b + 1],))
        torch.testing.assert_close(out[b : b + 1], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_for_the_batch_is_one_convolution(name):
    conv, shape = CONVOLUTIONS[name]
    conv = copy.deepcopy(conv).double()
    x = torch.randn(3, *shape, generator=seeded(1), dtype=torch.float64)
    net = stochastic(nn.Sequential(conv, nn.Flatten(), nn.Linear(conv(x)[0].numel(), 2)).double(), 0.3)
    for sampling in ("shared", "mixed"):
        out = captured(net.model[0], lambda sampling=sampling: net(x, sampling, seeded(8)))
        generator = seeded(8)
        drawn = {
            kind: p + math.sqrt(0.3) * torch.randn(p.shape, generator=generator, dtype=torch.float64)
            for kind, p in conv.named_parameters()
        }
        torch.testing.assert_close(out, torch.func.functional_call(conv, drawn, (x,)), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["2d", "2d stride", "2d dilation"])
def test_a_convolution_as_a_product_is_the_convolution(name):
    """What a GPU takes for few input channels, with its gradients; a bias is one more weight there."""
    conv, shape = CONVOLUTIONS[name]
    layer = StochasticConv(copy.deepcopy(conv))
    x = torch.randn(3, *shape, generator=seeded(1), dtype=torch.float64)
    weights = [p.detach().double().requires_grad_() for p in conv.parameters()]
    product = layer._as_product(x, *weights) if len(weights) == 2 else layer._as_product(x, *weights, None)
    plain = torch.func.functional_call(conv, dict(zip(("weight", "bias"), weights, strict=False)), (x,))
    torch.testing.assert_close(product, plain, rtol=1e-10, atol=1e-10)
    for ours, torchs in zip(*(torch.autograd.grad(out.sin().sum(), weights) for out in (product, plain)), strict=True):
        torch.testing.assert_close(ours, torchs, rtol=1e-10, atol=1e-10)


# Laws other than their moments


@pytest.mark.parametrize("family", DISTRIBUTIONS)
@pytest.mark.parametrize("kind", ["linear", "conv"])
def test_a_single_weight_has_the_law_of_its_family(family, kind):
    """Kolmogorov-Smirnov, 1e-7 to fail; and the fourth moment, 3 or 6 within seven standard errors."""
    layer = nn.Linear(1, 1, bias=False) if kind == "linear" else nn.Conv1d(1, 1, 1, bias=False)
    net = stochastic(nn.Sequential(layer, nn.Flatten(), nn.Linear(1, 2)).double(), 0.04, distribution=family)
    n = 200_000
    x = torch.full((n, 1) if kind == "linear" else (n, 1, 1), 2.0, dtype=torch.float64)
    out = captured(net.model[0], lambda: net(x, "independent", seeded(5))).flatten()
    standard = (out / 2 - net.mean[0].item()) / 0.2
    law = stats.norm() if family == "gaussian" else stats.laplace(scale=1 / math.sqrt(2))
    assert stats.kstest(standard.numpy(), law.cdf).pvalue > 1e-7
    # the variance of x⁴ is 96 for a normal and 2484 for a Laplace variable
    kurtosis, spread = (3, 96) if family == "gaussian" else (6, 2484)
    assert standard.pow(4).mean().item() == pytest.approx(kurtosis, abs=7 * math.sqrt(spread / n))


def test_the_last_layer_is_gaussian_in_every_family():
    """Kolmogorov-Smirnov, 1e-7 to fail: a Laplace law of this variance is refused with certainty."""
    net = stochastic(nn.Linear(1, 2, bias=False).double(), 0.04, distribution="laplace")
    out = net(torch.ones(50_000, 1, dtype=torch.float64), "independent", seeded(5)).detach()
    for i in range(2):
        standard = (out[:, i] - net.mean[i].item()) / 0.2
        assert stats.kstest(standard.detach().numpy(), stats.norm().cdf).pvalue > 1e-7


@pytest.mark.parametrize("sampling", MODES)
@pytest.mark.parametrize("family", DISTRIBUTIONS)
@pytest.mark.parametrize("make", [conv_net, positions_net, lambda: (two_layers(), torch.ones(2, 3).double())])
def test_all_randomness_comes_from_the_one_source(make, family, sampling):
    """With normals that are all 0 the pass is the mean pass."""
    model, x = make()
    net = shaken(stochastic(model, 0.1, distribution=family))

    def zeros(shape):
        return torch.zeros(shape, dtype=torch.float64)

    torch.testing.assert_close(net.drawn(x, Draw(sampling, zeros)), net(x, "mean"))
    torch.testing.assert_close(net.drawn(x, Draw(sampling, normals(3))), net(x, sampling, seeded(3)))
    for ours, theirs in zip(
        net.conditional_moments(x, Draw(sampling, normals(3))), net.conditional(x, sampling, seeded(3)), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


# Dropout


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8])
def test_dropout_keeps_the_mean_of_a_hidden_layer(rate):
    """Each unit is 0 with the rate's probability, else scaled up: a binomial count, 5.7 standard errors."""
    net = stochastic(nn.Sequential(nn.Linear(3, 50), nn.ReLU(), nn.Linear(50, 2)).double())
    x = torch.randn(2000, 3, generator=seeded(0), dtype=torch.float64)
    plain = captured(net.model[0], lambda: net(x, "mean"))
    dropped = captured(net.model[0], lambda: net(x, "mean", seeded(1), dropout=rate))
    ratio = dropped / plain
    kept = dropped != 0
    torch.testing.assert_close(ratio[kept], torch.full_like(ratio[kept], 1 / (1 - rate)))
    error = math.sqrt(rate * (1 - rate) / kept.numel())
    assert kept.double().mean().item() == pytest.approx(1 - rate, abs=THRESHOLD * error)
    assert abs(ratio.mean().item() - 1) < THRESHOLD * error / (1 - rate)
    # unit by unit and example by example
    assert (kept.double().mean(0) - (1 - rate)).abs().max() < THRESHOLD * math.sqrt(rate * (1 - rate) / 2000)


@pytest.mark.parametrize("sampling", [*MODES, "mean"])
def test_dropout_after_a_convolution_drops_whole_channels_of_single_examples(sampling):
    net = stochastic(nn.Sequential(nn.Conv2d(1, 8, 3), nn.Flatten(), nn.Linear(8 * 16, 2)).double())
    x = torch.randn(200, 1, 6, 6, generator=seeded(0), dtype=torch.float64)
    out = captured(net.model[0], lambda: net(x, sampling, seeded(1), dropout=0.4))
    zero = (out == 0).flatten(2)
    assert (zero.all(-1) == zero.any(-1)).all()
    dropped = zero.all(-1).double()
    assert dropped.mean().item() == pytest.approx(0.4, abs=THRESHOLD * math.sqrt(0.24 / 1600))
    assert dropped.mean(0).min() > 0
    assert dropped.mean(0).max() < 1


def test_dropout_leaves_the_last_layer_alone():
    net = stochastic(nn.Linear(3, 50))
    x = torch.randn(20, 3, generator=seeded(0))
    assert torch.equal(net(x, "mean", seeded(1), dropout=0.9), net(x, "mean"))
    assert (net(x, "shared", seeded(1), dropout=0.9) != 0).all()
    mean, variance = net.conditional(x, "shared", seeded(1), dropout=0.9)
    assert torch.equal(mean, net.conditional(x, "shared")[0])
    assert (variance > 0).all()


def test_dropout_keeps_the_mean_of_the_output():
    """A linear network: the mean over dropout is the network without it. 2 comparisons."""
    net = stochastic(nn.Sequential(nn.Linear(3, 6), nn.Linear(6, 2)).double(), 0.1)
    x = torch.ones(40_000, 3, dtype=torch.float64)
    out = net(x, "independent", seeded(1), dropout=0.3).detach()
    assert mean_z(out, net(x[:1], "mean").detach()[0]).abs().max() < THRESHOLD


def test_no_dropout_is_the_default():
    net = stochastic(two_layers().float())
    x = torch.ones(2, 3)
    assert torch.equal(net(x, "shared", seeded(1)), net(x, "shared", seeded(1), dropout=0.0))


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
