"""Conversion: what is taken over, what is refused, and what is stored."""

from __future__ import annotations

import copy
import math
import threading

import pytest
import torch
from small_nets import seeded, shaken, two_layers
from torch import nn

import pacbayes as pb
from pacbayes.errors import InvalidInput, UnsupportedModel
from pacbayes.networks import stochastic

# PyTorch's own note on even kernels
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")


class Residual(nn.Module):
    """A user's own module: nested containers, a frozen part, a last layer that is registered first."""

    def __init__(self):
        super().__init__()
        self.head = nn.ModuleDict({"out": nn.Linear(6, 3)})
        self.stem = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.blocks = nn.ModuleList([nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()) for _ in range(2)])
        self.late = nn.ModuleDict({"squeeze": nn.Conv2d(4, 6, 1)})

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head["out"](self.late["squeeze"](x).mean((2, 3)))


class Wrapped(nn.Module):
    """A model followed by a function."""

    def __init__(self, model, function):
        super().__init__()
        self.model, self.function = model, function

    def forward(self, x):
        return self.function(self.model(x))


def ended(*layers: nn.Module, features: int) -> nn.Sequential:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 3))


def frozen(module: nn.Module) -> nn.Module:
    return module.requires_grad_(False)


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), (5,)),
    "no bias": (lambda: nn.Sequential(nn.Linear(5, 7, bias=False), nn.ReLU(), nn.Linear(7, 3, bias=False)), (5,)),
    "bare linear": (lambda: nn.Linear(5, 3), (5,)),
    "bare linear without bias": (lambda: nn.Linear(5, 3, bias=False), (5,)),
    "nested": (
        lambda: nn.Sequential(
            nn.Sequential(nn.Linear(5, 6), nn.Sequential(nn.ReLU(), nn.Linear(6, 4))), nn.Linear(4, 3)
        ),
        (5,),
    ),
    "own module": (Residual, (2, 8, 8)),
    "positions": (lambda: ended(nn.Linear(5, 4), nn.ReLU(), features=12), (3, 5)),
    "conv1d": (lambda: ended(nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2), features=24), (4, 9)),
    "conv1d circular": (lambda: ended(nn.Conv1d(2, 3, 3, padding=2, padding_mode="circular"), features=33), (2, 9)),
    "conv2d": (lambda: ended(nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 0)), features=84), (2, 7, 8)),
    "conv2d dilated": (lambda: ended(nn.Conv2d(2, 3, 3, dilation=(1, 2), padding=(0, 2)), features=120), (2, 7, 8)),
    "conv2d groups": (lambda: ended(nn.Conv2d(4, 6, 3, groups=2, bias=False), features=150), (4, 7, 7)),
    "conv2d depthwise": (lambda: ended(nn.Conv2d(4, 8, 3, stride=2, groups=4), features=72), (4, 7, 7)),
    "conv2d same": (lambda: ended(nn.Conv2d(2, 3, (4, 3), padding="same"), features=168), (2, 7, 8)),
    "conv2d valid": (lambda: ended(nn.Conv2d(2, 3, 3, padding="valid"), features=90), (2, 7, 8)),
    "conv2d reflect": (
        lambda: ended(nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode="reflect", stride=2), features=60),
        (2, 7, 8),
    ),
    "conv2d replicate same": (
        lambda: ended(nn.Conv2d(2, 3, (2, 3), padding="same", padding_mode="replicate", groups=1), features=168),
        (2, 7, 8),
    ),
    "conv3d": (
        lambda: ended(nn.Conv3d(2, 4, (2, 3, 1), stride=(1, 2, 1), padding=(0, 1, 0), groups=2), features=108),
        (2, 4, 5, 3),
    ),
    "conv3d plain": (lambda: ended(nn.Conv3d(1, 2, 2, dilation=2), features=12), (1, 4, 5, 3)),
    "dropout inside": (lambda: nn.Sequential(nn.Linear(5, 7), nn.Dropout(0.5), nn.ReLU(), nn.Linear(7, 3)), (5,)),
    "frozen layer norm": (lambda: nn.Sequential(nn.Linear(5, 7), frozen(nn.LayerNorm(7)), nn.Linear(7, 3)), (5,)),
    "plain group norm": (lambda: ended(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4, affine=False), features=36), (1, 5, 5)),
    "frozen batch norm": (
        lambda: nn.Sequential(nn.Linear(5, 7), frozen(nn.BatchNorm1d(7)), nn.Linear(7, 3)).eval(),
        (5,),
    ),
    "frozen linear": (lambda: nn.Sequential(frozen(nn.Linear(5, 7)), nn.ReLU(), nn.Linear(7, 3)), (5,)),
    "instance norm": (lambda: ended(nn.Conv2d(1, 4, 3), nn.InstanceNorm2d(4), features=36), (1, 5, 5)),
    "identity at the end": (lambda: nn.Sequential(nn.Linear(5, 3), nn.Identity()), (5,)),
}


def model_and_batch(name: str, batch: int = 4) -> tuple[nn.Module, torch.Tensor]:
    make, shape = MODELS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return make(), torch.randn(batch, *shape)


@pytest.mark.parametrize("name", MODELS)
def test_the_mean_pass_is_the_original_model(name):
    model, x = model_and_batch(name)
    net = stochastic(model)
    torch.testing.assert_close(net(x, "mean"), copy.deepcopy(model).eval()(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sampling", ["shared", "independent", "mixed"])
def test_every_mode_draws_around_the_original_model(name, sampling, monkeypatch):
    """With deviations of 1e-6 a sampled pass is the original one, whatever the layer's options."""
    monkeypatch.setattr("pacbayes.networks.distributions.SCALE_FLOOR", 1e-6)
    model, x = model_and_batch(name)
    net = stochastic(model, 1e-14)
    expected = copy.deepcopy(model).eval()(x)
    out = net(x, sampling, seeded(0))
    assert out.shape == (4, 3)
    torch.testing.assert_close(out, expected, rtol=1e-3, atol=1e-3)
    assert not torch.equal(net(x, sampling, seeded(1)), net(x, sampling, seeded(2)))


@pytest.mark.parametrize("name", MODELS)
def test_every_trainable_weight_is_in_the_two_vectors_and_nothing_else_trains(name):
    model, _ = model_and_batch(name)
    net = stochastic(model)
    assert {n for n, p in net.named_parameters() if p.requires_grad} == {"mean", "rho"}
    trainable = {n: p for n, p in model.named_parameters() if p.requires_grad}
    assert set(net.slots) == set(trainable)
    assert len(net.mean) == len(net.rho) == sum(p.numel() for p in trainable.values())
    state = net.state()
    for n, p in trainable.items():
        assert torch.equal(state[f"mean.{n}"], p.detach())


def test_every_weight_matters():
    """No weight in the vectors is left out of the pass: in models without ReLUs each has a gradient."""
    for name in ("conv1d", "conv2d", "conv2d groups", "conv3d", "mlp", "bare linear", "plain group norm"):
        model, x = model_and_batch(name, 16)
        net = stochastic(model)
        for sampling in ("shared", "independent", "mixed"):
            net.zero_grad()
            net(x, sampling, seeded(0)).square().sum().backward()
            assert (net.mean.grad != 0).all(), (name, sampling)
            assert (net.rho.grad != 0).all(), (name, sampling)


def test_the_last_layer_is_at_the_end_wherever_it_is_registered():
    net = stochastic(Residual())
    assert list(net.slots)[-2:] == ["head.out.weight", "head.out.bias"]
    assert net.hidden_size == len(net.mean) - 6 * 3 - 3
    assert net.classes == 3


def test_the_users_model_is_not_changed():
    model, x = model_and_batch("own module")
    before = copy.deepcopy(model)
    net = shaken(stochastic(model))
    net(x).sum().backward()
    assert [type(m) for m in model.modules()] == [type(m) for m in before.modules()]
    assert model.training
    for (name, p), (_, old) in zip(model.named_parameters(), before.named_parameters(), strict=True):
        assert torch.equal(p, old), name
        assert p.grad is None
    torch.testing.assert_close(model(x), before(x))
    # nor does the network follow the model
    with torch.no_grad():
        model.head["out"].weight.zero_()
    assert not torch.equal(net.state("prior")["mean.head.out.weight"], model.head["out"].weight)


def test_the_dtype_of_the_model_is_kept():
    net = stochastic(two_layers().double())
    x = torch.ones(2, 3, dtype=torch.float64)
    for sampling in ("shared", "independent", "mixed", "mean"):
        assert net(x, sampling).dtype == torch.float64
    assert stochastic(two_layers().float())(x.float()).dtype == torch.float32


def test_training_mode_does_not_reach_the_model_inside():
    model, x = model_and_batch("dropout inside", 64)
    net = stochastic(model)
    for mode in (True, False):
        assert net.train(mode) is net
        assert net.training is mode
        assert not any(m.training for m in net.model.modules())
        assert torch.equal(net(x, "mean"), net(x, "mean"))


def test_a_batch_norm_inside_never_learns():
    model, x = model_and_batch("frozen batch norm")
    net = stochastic(model)
    net.train()
    alone = net(x, "mean")[:1]
    torch.testing.assert_close(net(x[:1], "mean"), alone)
    assert not net.fixed_part_changed()
    assert not stochastic(model).model[1].training


# Refusals


REFUSED = {
    "batch norm in training mode": (
        lambda: nn.Sequential(nn.Linear(4, 4), frozen(nn.BatchNorm1d(4)), nn.Linear(4, 2)),
        r"^1 \(BatchNorm1d\) is in training mode",
    ),
    "batch norm in training mode, nested": (
        lambda: nn.Sequential(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)), nn.Flatten(), nn.Linear(4, 2)),
        r"^0\.1 \(BatchNorm2d\)",
    ),
    "batch norm in evaluation mode but trainable": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval(),
        r"^1 \(BatchNorm1d\) is trainable",
    ),
    "batch norm without statistics": (
        lambda: nn.Sequential(
            nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False, track_running_stats=False), nn.Linear(4, 2)
        ).eval(),
        r"^1 \(BatchNorm1d\) has no running statistics",
    ),
    "no linear": (lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten()), "it has none"),
    "a compiled model": (lambda: torch.compile(nn.Linear(4, 2), backend="eager"), "is compiled: give the modules"),
    "a compiled part": (
        lambda: nn.Sequential(torch.compile(nn.Linear(4, 3), backend="eager"), nn.Linear(3, 2)),
        "is compiled: give the modules",
    ),
    "no trainable linear": (lambda: frozen(nn.Linear(4, 2)), "it has none"),
}


class WithALog(nn.Linear):
    def get_extra_state(self):
        return {"passes": 3}


def with_buffer(tensor: torch.Tensor) -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    model.register_buffer("table", tensor)
    return model


def with_a_lock() -> nn.Module:
    model = nn.Linear(4, 2)
    model.lock = threading.Lock()
    return model


REFUSED |= {
    "a lock": (with_a_lock, "cannot be copied.*Keep locks"),
    "complex128": (lambda: with_buffer(torch.ones(3, dtype=torch.complex128)), "table holds what no weight file"),
    "sparse": (lambda: with_buffer(torch.eye(3).to_sparse()), "table holds what no weight file.*sparse"),
    "a state that is no tensor": (
        lambda: nn.Sequential(WithALog(4, 3).requires_grad_(False), nn.Linear(3, 2)),
        "0._extra_state holds what no weight file can store: a dict",
    ),
}


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.complex64])
def test_what_a_weight_file_can_store_is_taken(dtype):
    for shape in ((), (3,), (0, 3)):
        assert stochastic(with_buffer(torch.ones(shape, dtype=dtype))).fingerprint()


def test_a_network_made_in_inference_mode_trains():
    with torch.inference_mode():
        net = stochastic(nn.Sequential(nn.Linear(4, 3).requires_grad_(False), nn.Tanh(), nn.Linear(3, 2)))
    pb.fit(net, (torch.randn(16, 4, generator=seeded(0)), torch.arange(16) % 2), epochs=1)
    assert not any(t.is_inference() for t in (*net.parameters(), *net.buffers()))


@pytest.mark.parametrize("name", REFUSED)
def test_what_voids_a_certificate_is_refused_and_named(name):
    make, message = REFUSED[name]
    with pytest.raises(UnsupportedModel, match=message):
        stochastic(make())


@pytest.mark.parametrize("call", ["forward", "conditional"])
@pytest.mark.parametrize(
    "last",
    [
        lambda: nn.Softmax(-1),
        lambda: nn.LogSoftmax(-1),
        lambda: nn.Unflatten(1, (2, 1)),
        lambda: nn.ReLU(),
        lambda: nn.ReLU(inplace=True),
    ],
)
def test_anything_after_the_last_linear_is_refused(last, call):
    net = stochastic(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2), last()))
    for _ in range(2):
        with pytest.raises(UnsupportedModel, match="last Linear"):
            getattr(net, call)(torch.zeros(3, 4))


@pytest.mark.parametrize(("given", "name"), [(lambda out: (out, out), "tuple"), (lambda out: {"logits": out}, "dict")])
def test_outputs_that_are_no_tensor_are_refused(given, name):
    net = stochastic(Wrapped(two_layers().float(), given))
    with pytest.raises(UnsupportedModel, match=f"gives a {name}.*one tensor"):
        net(torch.zeros(3, 3))


def test_a_function_that_changes_the_output_in_place_is_refused():
    net = stochastic(Wrapped(two_layers().float(), lambda out: out.mul_(2)))
    with pytest.raises(UnsupportedModel, match="last Linear"):
        net(torch.zeros(3, 3))


def test_a_last_linear_that_is_not_called_last_is_refused():
    class Swapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.out, self.body = nn.Linear(4, 2), nn.Linear(4, 4)

        def forward(self, x):
            return self.out(self.body(x))

    with pytest.raises(UnsupportedModel, match="last Linear"):
        stochastic(Swapped())(torch.zeros(3, 4))


def test_a_last_linear_that_gets_positions_is_refused():
    net = stochastic(nn.Linear(4, 2))
    with pytest.raises(UnsupportedModel, match=r"\(1, 5, 4\)"):
        net(torch.zeros(3, 5, 4))


def test_a_convolution_without_a_batch_is_refused():
    net = stochastic(ended(nn.Conv2d(1, 2, 3), features=18))
    with pytest.raises(InvalidInput, match="convolution"):
        net(torch.zeros(1, 5, 5))


def test_unknown_samplings_and_dropouts_are_refused():
    net = stochastic(two_layers().float())
    with pytest.raises(InvalidInput, match=r"'each'.*shared.*independent.*mixed.*mean"):
        net(torch.zeros(1, 3), "each")
    for dropout in (-0.1, 1.0, math.nan):
        with pytest.raises(InvalidInput, match="dropout"):
            net(torch.zeros(1, 3), dropout=dropout)


# Conditional output


@pytest.mark.parametrize("sampling", ["shared", "independent", "mixed", "mean"])
@pytest.mark.parametrize("bias", [True, False])
def test_conditional_moments_are_the_papers_formula(sampling, bias):
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2, bias=bias)).double()
    net = shaken(stochastic(model, 0.05))
    x = torch.randn(6, 3, generator=seeded(1), dtype=torch.float64)
    features = []
    net.output_layer.register_forward_pre_hook(lambda module, args: features.append(args[0].detach()))
    mean, variance = net.conditional(x, sampling, seeded(9))
    h = features[-1]
    state = net.state()
    weight, s = state["mean.2.weight"], state["rho.2.weight"].abs() ** 1.5
    expected_mean, expected_variance = h @ weight.T, h.square() @ s.square().T
    if bias:
        expected_mean = expected_mean + state["mean.2.bias"]
        expected_variance = expected_variance + state["rho.2.bias"].abs() ** 3
    torch.testing.assert_close(mean, expected_mean)
    torch.testing.assert_close(variance, expected_variance)
    # the same seed gives the same hidden draw in a sampled pass
    net(x, sampling, seeded(9))
    assert torch.equal(features[-1], h)


@pytest.mark.parametrize("family", ["gaussian", "laplace"])
@pytest.mark.parametrize("sampling", ["shared", "independent"])
def test_conditional_moments_are_those_of_outputs_drawn_anew(sampling, family):
    """Outputs drawn from the last layer over one hidden draw. 5 z-scores, each two-sided below 5.5: 2e-7 to fail."""
    net = shaken(stochastic(two_layers(3), 0.05, distribution=family))
    x = torch.randn(1, 3, generator=seeded(1), dtype=torch.float64)
    features = []
    handle = net.output_layer.register_forward_pre_hook(lambda module, args: features.append(args[0].detach()))
    mean, variance = net.conditional(x, sampling, seeded(9))
    handle.remove()
    (h,) = features[-1:]
    n = 40_000 if sampling == "independent" else 4000
    with torch.no_grad():
        if sampling == "independent":
            many = h.repeat(n, 1)
            net.output_layer.register_forward_pre_hook(lambda module, args: (many,))
            draws = net(x.repeat(n, 1), sampling, seeded(2))
        else:
            net.output_layer.register_forward_pre_hook(lambda module, args: (h,))
            generator = seeded(2)
            draws = torch.cat([net(x, sampling, generator) for _ in range(n)])
    standard = (draws - mean.detach()) / variance.detach().sqrt()
    scores = torch.cat(
        [
            standard.mean(0) * math.sqrt(n),
            (standard.square().mean(0) - 1) * math.sqrt(n / 2),
            # components are independent: the last layer is Gaussian, so uncorrelated is enough
            (standard[:, 0] * standard[:, 1]).mean()[None] * math.sqrt(n),
        ]
    )
    assert scores.abs().max() < 5.5


def test_conditional_leaves_the_next_pass_alone():
    net = stochastic(two_layers().float(), 0.5)
    x = torch.ones(2, 3)
    before = net(x, "shared", seeded(1))
    net.conditional(x, "shared", seeded(1))
    assert torch.equal(net(x, "shared", seeded(1)), before)


def test_conditional_gradients_reach_all_means_and_deviations():
    net = stochastic(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), 0.5)
    for sampling in ("shared", "independent", "mixed"):
        net.zero_grad()
        mean, variance = net.conditional(torch.ones(4, 3), sampling, seeded(1))
        (mean.square().sum() + variance.sum()).backward()
        assert (net.mean.grad != 0).all()
        assert (net.rho.grad != 0).all()


def test_gradients_are_finite_for_inputs_that_are_all_zeros():
    """A pre-activation without any variance: no bias and a zero input."""
    model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 2, bias=False))
    for sampling in ("shared", "independent", "mixed"):
        net = stochastic(model)
        net(torch.zeros(2, 3), sampling, seeded(0)).sum().backward()
        assert net.mean.grad.isfinite().all()
        assert net.rho.grad.isfinite().all()


# Generators


@pytest.mark.parametrize("sampling", ["shared", "independent", "mixed"])
@pytest.mark.parametrize("family", ["gaussian", "laplace"])
@pytest.mark.parametrize("name", ["mlp", "conv2d", "positions"])
def test_the_generator_decides_and_the_global_one_is_left_alone(name, sampling, family):
    model, x = model_and_batch(name)
    net = stochastic(model, distribution=family)
    before = torch.get_rng_state()
    for call in (net.forward, lambda *args, **options: net.conditional(*args, **options)[0]):
        first = call(x, sampling, seeded(1), dropout=0.2)
        assert torch.equal(first, call(x, sampling, seeded(1), dropout=0.2))
        if name != "bare linear":
            assert not torch.equal(first, call(x, sampling, seeded(2), dropout=0.2))
    generator = seeded(1)
    assert not torch.equal(net(x, sampling, generator), net(x, sampling, generator))
    assert torch.equal(before, torch.get_rng_state())


def test_without_a_generator_the_global_one_is_used():
    net = stochastic(two_layers().float())
    x = torch.ones(2, 3)
    with torch.random.fork_rng(devices=[]):
        outs = []
        for _ in range(2):
            torch.manual_seed(3)
            outs.append(net(x))
        assert torch.equal(*outs)
        assert not torch.equal(outs[0], net(x))


def test_a_network_can_be_copied_after_a_pass():
    net = stochastic(two_layers().float())
    net(torch.ones(2, 3)).sum().backward()
    other = copy.deepcopy(net)
    assert other.fingerprint() == net.fingerprint()
    assert torch.equal(other(torch.ones(2, 3), "shared", seeded(1)), net(torch.ones(2, 3), "shared", seeded(1)))
    shaken(other)
    assert other.fingerprint() != net.fingerprint()
