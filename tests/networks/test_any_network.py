"""Any module whose output comes from a Linear: all its weights are drawn, and by the same law in every way."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from any_nets import NETS, Way, linears, net_and_batch
from small_nets import seeded, shaken, squared_deviations, two_sample_z
from torch import nn

from pacbayes.certificates import certify
from pacbayes.data import as_data
from pacbayes.errors import InvalidInput, UnsupportedModel
from pacbayes.networks import StochasticNetwork, passes, stochastic
from pacbayes.networks.binding import Binding
from pacbayes.networks.layers import Draw, Moments, StochasticConv
from pacbayes.networks.normals import Tape
from pacbayes.networks.refusals import check_examples
from pacbayes.training import Settings
from pacbayes.training.stage import Stage

MODES = ["shared", "independent", "mixed"]


def spread(variance: float, name: str) -> tuple[StochasticNetwork, nn.Module, torch.Tensor]:
    model, x = net_and_batch(name)
    net = stochastic(model, variance)
    return net, copy.deepcopy(model).eval(), x


@pytest.mark.parametrize("name", NETS)
def test_every_trainable_parameter_is_in_the_vectors_once(name):
    net, model, x = spread(0.01, name)
    trainable = {n: p for n, p in model.named_parameters() if p.requires_grad}
    assert set(net.slots) == set(trainable)
    assert len(net.mean) == sum(p.numel() for p in trainable.values())
    for n, part in net.parts(net.mean).items():
        assert torch.equal(part, trainable[n]), n
    last = list(net.slots)[-2:]
    assert [n.rpartition(".")[0] for n in last] == [net.output_layer.name] * 2
    for _ in range(2):  # before the first pass and after it
        assert {n for n, p in net.named_parameters() if p.requires_grad} == {"mean", "rho"}
        assert {n for n in net.state() if n.startswith("fixed.")} == {
            f"fixed.{n}" for n in model.state_dict() if n not in trainable and not is_second_name(model, n)
        }
        net(x)


def is_second_name(model: nn.Module, name: str) -> bool:
    return name not in dict(model.named_parameters()) and name in dict(model.named_parameters(remove_duplicate=False))


@pytest.mark.parametrize("name", NETS)
def test_the_mean_pass_is_the_original_model(name, monkeypatch):
    net, model, x = spread(0.01, name)
    torch.testing.assert_close(net(x, "mean"), model(x))
    assert net.drawn_by_rules is NETS[name][2]
    # with tiny deviations, so is every other pass
    monkeypatch.setattr("pacbayes.networks.distributions.SCALE_FLOOR", 1e-6)
    tiny, model, x = spread(1e-14, name)
    for sampling in MODES:
        torch.testing.assert_close(tiny(x, sampling, seeded(0)), model(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NETS)
def test_a_shared_draw_is_the_original_model_with_drawn_weights(name, monkeypatch):
    """The weights behind a pass are noted as they are drawn, and PyTorch's functional_call does the rest."""
    net, model, x = spread(0.05, name)
    shaken(net)
    net(x)
    drawn: dict[int, torch.Tensor] = {}
    original = Moments.sample

    def sample(self, draw, copies=None):
        assert self.mean.storage_offset() not in drawn, "drawn twice in a pass"
        drawn[self.mean.storage_offset()] = original(self, draw, copies)
        return drawn[self.mean.storage_offset()]

    monkeypatch.setattr(Moments, "sample", sample)
    out = net(x, "shared", seeded(3))
    starts = [0, *torch.tensor([shape.numel() for shape in net.slots.values()]).cumsum(0).tolist()]
    weights = {n: drawn[start] for n, start in zip(net.slots, starts, strict=False)}
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    torch.testing.assert_close(out, torch.func.functional_call(model, weights, (x,)))
    torch.backends.mha.set_fastpath_enabled(before)
    assert not torch.allclose(out, model(x), atol=1e-3)


@pytest.mark.parametrize("name", [name for name, (_, _, rules) in NETS.items() if not rules])
def test_an_independent_draw_is_a_shared_draw_for_each_example(name, monkeypatch):
    net, _, x = spread(0.05, name)
    sizes: list[int] = []
    net(x)

    def count(shape):
        sizes.append(math.prod(shape))
        return torch.zeros(shape, dtype=torch.float64)

    for call in (lambda x, draw: (net.drawn(x, draw),), net.conditional_moments):
        sizes.clear()
        call(x[:1], Draw("shared", count))
        for at_once in (10**9, 2 * sum(sizes), 1):
            monkeypatch.setattr(passes, "_WEIGHTS_AT_ONCE", at_once)
            chunk = min(4, max(1, at_once // sum(sizes)))
            generator = seeded(5)
            noise = torch.cat(
                [torch.randn(chunk, sum(sizes), generator=generator, dtype=torch.float64) for _ in range(4 // chunk)]
            )
            source = seeded(5)
            found = call(x, Draw("independent", lambda s, g=source: torch.randn(s, generator=g, dtype=torch.float64)))
            for b in range(4):
                pieces = iter(noise[b].split(sizes))
                alone = call(x[b : b + 1], Draw("shared", lambda shape, p=pieces: next(p).view(shape)))
                for ours, theirs in zip(found, alone, strict=True):
                    torch.testing.assert_close(ours[b : b + 1], theirs)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("sampling", MODES)
def test_every_parameter_matters_and_has_finite_gradients(name, sampling):
    net, _, x = spread(0.05, name)
    mean, variance = net.conditional(x, sampling, seeded(0))
    (mean.square().sum() + variance.sum()).backward()
    for vector in (net.mean.grad, net.rho.grad):
        assert vector.isfinite().all()
        for n, part in net.parts(vector).items():
            assert part.any(), n


@pytest.mark.parametrize("name", NETS)
def test_equal_examples_of_a_batch_and_copies_of_a_network(name):
    net, _, x = spread(0.05, name)
    pair = x[:1].repeat(2, *(1,) * (x.dim() - 1))
    shared = net(pair, "shared", seeded(0))
    torch.testing.assert_close(shared[0], shared[1])
    own = net(pair, "independent", seeded(0))
    assert ((own[0] - own[1]).abs() > 1e-6).all()
    other = copy.deepcopy(net)
    for sampling in [*MODES, "mean"]:
        assert torch.equal(other(x, sampling, seeded(7)), net(x, sampling, seeded(7)))
    assert other.fingerprint() == net.fingerprint()


LAWS = ["transformer", "lstm", "applied again", "tied", "layer norm", "group norm of features", "positions first"]


@pytest.mark.parametrize("name", LAWS)
def test_every_mode_has_the_moments_of_the_shared_one(name):
    """168 comparisons in all, two-sided at 5.7 standard errors: 2e-6 to fail by chance."""
    family = "laplace" if name in ("tied", "layer norm") else "gaussian"
    model, x = net_and_batch(name, 2)
    net = shaken(stochastic(model, 0.02, distribution=family))
    n = 500
    with torch.no_grad():
        generator = seeded(1)
        shared = torch.stack([net(x, "shared", generator) for _ in range(n)])
        own = net(x.repeat(n, *(1,) * (x.dim() - 1)), "independent", seeded(2)).view(n, 2, -1)
        mixed = torch.stack([net(x, "mixed", generator) for _ in range(n)])
    for other in (own, mixed):
        assert two_sample_z(shared, other).abs().max() < 5.7
        assert two_sample_z(squared_deviations(shared), squared_deviations(other)).abs().max() < 5.7


NORMS = {
    "layer": (nn.LayerNorm(4), (3, 4)),
    "layer of two axes": (nn.LayerNorm((3, 4), bias=False), (2, 3, 4)),
    "group": (nn.GroupNorm(2, 4), (4, 3, 2)),
    "group of features": (nn.GroupNorm(2, 4), (4,)),
}


@pytest.mark.parametrize("sampling", ["independent", "mixed"])
@pytest.mark.parametrize("name", NORMS)
def test_a_norm_for_each_example_is_a_loop_of_norms(name, sampling):
    norm, shape = copy.deepcopy(NORMS[name][0]).double(), NORMS[name][1]
    net = shaken(stochastic(nn.Sequential(norm, nn.Flatten(), nn.Linear(math.prod(shape), 2)).double(), 0.3))
    x = torch.randn(3, *shape, generator=seeded(1), dtype=torch.float64)
    outputs: list[torch.Tensor] = []
    net.model[0].register_forward_hook(lambda module, args, out: outputs.append(out.detach()))
    net(x, sampling, seeded(8))
    state, generator = net.state(), seeded(8)
    drawn = {}
    for kind, _ in norm.named_parameters():
        mean, s = state[f"mean.0.{kind}"], state[f"rho.0.{kind}"].abs() ** 1.5
        drawn[kind] = mean + s * torch.randn((3, *mean.shape), generator=generator, dtype=torch.float64)
    for b in range(3):
        one = torch.func.functional_call(norm, {kind: t[b] for kind, t in drawn.items()}, (x[b : b + 1],))
        torch.testing.assert_close(outputs[-1][b : b + 1], one)


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # the compiler's own
def test_norms_compile_whole():
    """What the GPU engine asks of a network all of whose layers draw by rules."""
    model = nn.Sequential(nn.Conv1d(2, 4, 2), nn.GroupNorm(2, 4), nn.LayerNorm(4), nn.Flatten(), nn.Linear(16, 3))
    data = as_data((torch.randn(8, 2, 5, generator=seeded(0)), torch.arange(8) % 3), classes=3)
    net = stochastic(model, 0.01)
    check_examples(net, data.x)
    assert net.drawn_by_rules
    stage, batch = Stage(net, data, Settings()), torch.arange(8)
    noise = torch.randn(10_000, generator=seeded(1))
    plain = stage.measure(batch, Tape(noise))
    torch._dynamo.reset()
    compiled = torch.compile(stage.measure, fullgraph=True, dynamic=False, backend="aot_eager")
    torch.testing.assert_close(compiled(batch, Tape(noise)), plain)


def test_a_model_that_changes_its_weights_in_place_does_not_change_the_law():
    model = nn.Sequential(nn.Embedding(5, 4, max_norm=0.1), nn.Flatten(), nn.Linear(8, 3))
    net = stochastic(model, 0.01)
    before = net.fingerprint(), net.fingerprint("prior")
    with torch.no_grad():
        for sampling in [*MODES, "mean"]:
            net(torch.tensor([[0, 1], [2, 3]]), sampling)
    assert (net.fingerprint(), net.fingerprint("prior")) == before


def test_dropout_where_examples_pass_one_by_one():
    net, _, x = spread(0.05, "transformer")
    assert not torch.equal(net(x, "independent", seeded(1), dropout=0.5), net(x, "independent", seeded(1), dropout=0.0))
    assert torch.equal(net(x, "independent", seeded(1), dropout=0.5), net(x, "independent", seeded(1), dropout=0.5))


def test_what_vmap_cannot_do_is_looped():
    for name, can in (("transformer", True), ("attention", True), ("lstm", False), ("tied", True)):
        net, _, x = spread(0.05, name)
        net(x)
        assert net._passes.vmaps is can, name


def keeps_a_map(net, x):
    net.last_map = net.body(net.body(x)).detach()
    return net.out(net.body(net.body(x)))


def test_a_model_that_keeps_something_of_a_pass_is_looped():
    net, x = stochastic(Way(keeps_a_map, **linears()), 1e-3), torch.randn(30, 4, generator=seeded(0))
    assert certify(net, (x, torch.arange(30) % 3), draws=30).check() == []
    assert torch.equal(copy.deepcopy(net).model.last_map, net.model.last_map)


class Routed(nn.Module):
    """A mixture of experts: the sign of an example's first number says which of two it takes."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.small, self.large = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 4))
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        h, small = torch.zeros_like(x), x[:, 0] > 0
        for chosen, expert in ((small, self.small), (~small, self.large)):
            if chosen.any():
                h[chosen] = expert(x[chosen])
        return self.out(h * self.scale)


@pytest.mark.parametrize("distribution", ["gaussian", "laplace"])
@pytest.mark.parametrize("first", [1, -1])
def test_each_example_may_take_layers_of_its_own(first, distribution):
    net, x = stochastic(Routed(), 0.05, distribution=distribution), torch.randn(8, 4, generator=seeded(0))
    x[:, 0] = torch.tensor([first, -first]).repeat(4)
    with torch.no_grad():
        noise: list[torch.Tensor] = []

        def source(shape):
            noise.append(torch.randn(shape, generator=seeded(1)))
            return noise[-1]

        found = net.drawn(x, Draw("independent", source))
        for b in range(8):
            alone = net.drawn(x[b : b + 1], Draw("shared", Tape(noise[0][b])))
            torch.testing.assert_close(found[b : b + 1], alone)
    assert certify(net, (x, torch.arange(8) % 3), draws=16).check() == []


def test_the_switch_for_fast_paths_is_left_as_it_was():
    net, _, x = spread(0.05, "transformer")
    before = torch.backends.mha.get_fastpath_enabled()
    with torch.no_grad():
        for sampling in MODES:
            net(x, sampling)
    assert torch.backends.mha.get_fastpath_enabled() is before


# The output layer


def swapped(net, x):
    return net.first(torch.tanh(net.second(x)))


def test_the_output_layer_may_be_named():
    model = Way(swapped, first=nn.Linear(4, 2), second=nn.Linear(4, 4))
    with pytest.raises(UnsupportedModel, match=r"last Linear \(second\).*output="):
        stochastic(model)(torch.zeros(3, 4))
    net = stochastic(model, output="first")
    assert net(torch.zeros(3, 4)).shape == (3, 2)
    assert list(net.slots)[-2:] == ["first.weight", "first.bias"] and net.classes == 2
    with pytest.raises(InvalidInput, match=r"'third'.*first, second"):
        stochastic(model, output="third")


def test_an_output_layer_that_is_called_by_keyword_is_refused_in_words():
    model = Way(lambda net, x: net.head(input=torch.tanh(net.body(x))), body=nn.Linear(4, 4), head=nn.Linear(4, 2))
    with pytest.raises(UnsupportedModel, match=r"by position: head\(h\)"):
        stochastic(model)(torch.zeros(3, 4))


def tied_output(kind: str) -> nn.Module:
    model = Way(None, words=nn.Embedding(3, 4), body=nn.Linear(4, 3), out=nn.Linear(4, 3))
    if kind == "embedding":
        model.words.weight = model.out.weight
    elif kind == "linear":
        model.body.weight = model.out.weight
    else:
        model.body.bias = model.out.bias
    return model


@pytest.mark.parametrize("kind", ["embedding", "linear", "bias"])
def test_an_output_layer_that_is_tied_is_refused(kind):
    with pytest.raises(UnsupportedModel, match=r"shared with another place.*weights of its own"):
        stochastic(tied_output(kind), output="out")


def test_an_output_layer_that_is_half_frozen_or_hooked_is_refused():
    for spoil in (
        lambda layer: layer.bias.requires_grad_(False),
        lambda layer: layer.register_forward_hook(lambda module, args, out: out),
    ):
        model = Way(None, **linears())
        spoil(model.out)
        with pytest.raises(UnsupportedModel, match=r"\(out\) must be a plain nn.Linear"):
            stochastic(model)


def test_an_output_layer_applied_twice_is_refused():
    net = stochastic(Way(lambda net, x: net.out(net.out(x)), out=nn.Linear(4, 4)))
    with pytest.raises(UnsupportedModel, match="out is applied more than once"):
        net(torch.zeros(3, 4))


def test_only_a_layer_that_is_applied_twice_does_without_its_rule():
    model = Way(
        lambda net, x: net.out(net.once(net.twice(net.twice(x)))),
        **linears(twice=nn.Linear(4, 4), once=nn.Linear(4, 4)),
    )
    net = stochastic(model, output="out")
    net(torch.zeros(3, 4))
    drawn = {row.name: row.drawn for row in net.audit().rows}
    assert drawn["twice.weight"] == "as a whole" and drawn["once.weight"] == "Linear"


def test_a_model_with_more_outputs_than_examples_is_refused():
    net = stochastic(nn.Sequential(nn.Flatten(0, 1), nn.Linear(4, 2)))
    with pytest.raises(UnsupportedModel, match="5 outputs for 1 examples"):
        net(torch.zeros(3, 5, 4))


def test_a_first_batch_without_examples_is_refused():
    with pytest.raises(InvalidInput, match="batch is empty"):
        stochastic(nn.Linear(4, 2))(torch.zeros(0, 4))


def listed(*names: str) -> Way:
    model = Way(lambda net, x: net.listed[-1](net.body(x)) if names[-1] == "out" else net.out(net.listed[0](x)))
    for name, layer in linears().items():
        setattr(model, name, layer)
    model.listed = [getattr(model, name) for name in names]
    return model


def test_a_layer_that_is_in_a_list_as_well_is_drawn():
    net, model = stochastic(listed("body"), 1e-3), listed("body")
    x = torch.randn(30, 4, generator=seeded(0))
    assert certify(net, (x, torch.arange(30) % 3), draws=30).check() == []
    assert not net.drawn_by_rules and len(net.mean) == sum(p.numel() for p in model.parameters())


def test_an_output_layer_that_is_taken_from_a_list_is_refused_in_words():
    with pytest.raises(UnsupportedModel, match="ModuleList, not in a list"):
        stochastic(listed("body", "out"))(torch.zeros(3, 4))


def test_parameters_without_a_shape_or_of_another_dtype_are_refused():
    with pytest.raises(UnsupportedModel, match=r"0\.weight has no shape yet"):
        stochastic(nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2)))
    with pytest.raises(UnsupportedModel, match=r"1\.\w+ has no shape yet"):
        stochastic(nn.Sequential(nn.Linear(4, 4), nn.LazyBatchNorm1d(), nn.Linear(4, 2)))
    with pytest.raises(UnsupportedModel, match=r"1\.weight is torch.float32"):
        stochastic(nn.Sequential(nn.Linear(4, 4).double(), nn.Linear(4, 2)))


class Looks(nn.Module):
    """A forward that asks its hidden layers what they are before it lets a ReLU follow."""

    def __init__(self, question, last=1.0):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 5), nn.Linear(5, 4), nn.Linear(4, 3)])
        self.question = question
        with torch.no_grad():
            for parameter in self.layers[-1].parameters():
                parameter.mul_(last)

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x)) if self.question(layer) else layer(x)
        return self.layers[-1](x)


@pytest.mark.parametrize("last", [1.0, 0.0])
@pytest.mark.parametrize(
    "question",
    [
        lambda layer: isinstance(layer, nn.Linear),
        lambda layer: type(layer) is nn.Linear,
        lambda layer: type(layer).__name__ == "Linear",
        lambda layer: not hasattr(layer, "draw"),
    ],
)
def test_a_model_that_looks_at_its_layers_stays_the_function_it_is(question, last):
    """Also where a last layer of zeros hides all before it."""
    model, x = Looks(question, last), torch.randn(4, 6, generator=seeded(1))
    net = stochastic(model, 1e-4)
    net(x)
    with torch.no_grad():
        for parameter in (model.layers[-1].weight, model.layers[-1].bias, net.mean[-15:]):
            parameter.fill_(0.5)
    torch.testing.assert_close(net(x, "mean"), model(x))
    assert not net.drawn_by_rules
    net(x, "independent")


@pytest.mark.parametrize(
    "way",
    [
        lambda net, x: net.out(net.body(x) / sum(p.norm() for p in net.parameters())),
        lambda net, x: net.out(net.body(x) if isinstance(net.out, nn.Linear) else x),
    ],
)
def test_a_model_that_becomes_another_function_is_refused(way):
    with pytest.raises(UnsupportedModel, match="looks at what they are"):
        stochastic(Way(way, **linears()), 1e-4)(torch.randn(5, 4, generator=seeded(1)))


@pytest.mark.parametrize("name", NETS)
def test_the_first_pass_may_be_in_inference_mode(name):
    net, model, x = spread(0.01, name)
    with torch.inference_mode():
        net(x)
    torch.testing.assert_close(net(x, "mean"), model(x))
    net(x).sum().backward()


def in_half(net, x):
    with torch.autocast("cpu", torch.bfloat16):
        return net.out(torch.relu(net.body(x)))


def keeps(net, x):
    net.kept = net.weight
    return net.out(x @ net.weight)


@pytest.mark.parametrize(
    "model",
    [
        Way(in_half, **linears()),
        Way(keeps, **linears(weight=nn.Parameter(torch.randn(4, 4, generator=seeded(0))))),
    ],
)
def test_layers_of_another_precision_and_parameters_that_are_kept(model):
    net, x = stochastic(model.eval(), 1e-3), torch.randn(5, 4, generator=seeded(1))
    net(x)
    assert {name for name, p in net.named_parameters() if p.requires_grad} == {"mean", "rho"}
    torch.testing.assert_close(net(x, "mean").float(), model(x).float(), rtol=0.02, atol=0.02)


def test_a_frozen_body_of_few_digits_may_have_a_head_of_more():
    body = nn.Linear(4, 4).bfloat16().requires_grad_(False)
    net = stochastic(Way(lambda net, x: net.out(net.body(x.bfloat16())), **linears(body=body)).eval(), 1e-3)
    assert net(torch.randn(5, 4, generator=seeded(1))).dtype == torch.float32


def test_a_look_at_the_original_that_fails_leaves_the_network_as_it_was(monkeypatch):
    """For want of memory, say; an LSTM has two places for each weight."""
    net, x = stochastic(net_and_batch("lstm")[0], 0.01), net_and_batch("lstm")[1]
    look, given = Binding.as_it_was, []

    def failing(binding, means):
        def one(slot):
            given.append(slot)
            if len(given) == 3:
                raise torch.OutOfMemoryError("no memory is left")
            return means(slot)

        return look(binding, one)

    monkeypatch.setattr(Binding, "as_it_was", failing)
    with pytest.raises(torch.OutOfMemoryError):
        net(x)
    assert {name for name, p in net.named_parameters() if p.requires_grad} == {"mean", "rho"}
    torch.testing.assert_close(net(x, "mean"), net_and_batch("lstm")[0].eval()(x))


def test_a_model_that_asks_for_its_parameters_is_told_so():
    model = Way(lambda net, x: net.out(net.body(x.to(next(net.parameters()).dtype))), **linears())
    with pytest.raises(UnsupportedModel, match="asks for its own parameters"):
        stochastic(model, 0.01)(torch.zeros(2, 4))


def test_a_model_that_asks_its_last_weight_for_a_device_is_told_so():
    model = Way(lambda net, x: net.out(net.body(x.to(net.out.weight.device))), **linears())
    with pytest.raises(UnsupportedModel, match="asks for the device of its last Linear's weight"):
        stochastic(model, 0.01)(torch.zeros(2, 4))


def test_inputs_of_other_digits_pass_where_autocast_sees_to_them():
    net = stochastic(Way(lambda net, x: net.out(net.body(x)), **linears()), 1e-3)
    x = torch.randn(5, 4, generator=seeded(1))
    with torch.autocast("cpu", torch.bfloat16):
        net(x.bfloat16())
    assert net.drawn_by_rules


def test_what_follows_the_last_layer_is_said_without_other_advice():
    with pytest.raises(UnsupportedModel, match="with nothing after it") as refused:
        stochastic(Way(lambda net, x: net.out(net.body(x)).softmax(1), **linears()), 0.01)(torch.zeros(2, 4))
    assert "by position" not in str(refused.value)


@pytest.mark.parametrize(
    ("way", "error"),
    [
        (lambda net, x: net.out(net.bdy(x)), "no attribute 'bdy'"),
        (lambda net, x: net.out(net.body(x) + None), "unsupported operand"),
    ],
)
def test_a_model_that_fails_by_itself_fails_with_its_own_words(way, error):
    with pytest.raises((AttributeError, TypeError), match=error) as failed:
        stochastic(Way(way, **linears()), 0.01)(torch.zeros(2, 4))
    assert not isinstance(failed.value, UnsupportedModel)


@pytest.mark.parametrize("takes_any_layout", [True, False])
def test_a_convolution_is_a_product_where_the_model_takes_its_layout(takes_any_layout, monkeypatch):
    """On a GPU it would be, for so few inputs."""
    monkeypatch.setattr(StochasticConv, "_suits_a_product", lambda self, x: True)
    flat = (lambda h: h.flatten(1)) if takes_any_layout else (lambda h: h.view(len(h), -1))
    model = Way(lambda net, x: net.out(flat(net.conv(x))), conv=nn.Conv2d(1, 3, 3), out=nn.Linear(48, 2)).eval()
    net, x = stochastic(model, 1e-3), torch.randn(5, 1, 6, 6, generator=seeded(1))
    net(x)
    (conv,) = (m for m in net.model.modules() if isinstance(m, StochasticConv))
    assert conv.by_product is takes_any_layout
    torch.testing.assert_close(net(x, "mean"), model(x))
