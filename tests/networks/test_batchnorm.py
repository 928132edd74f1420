"""BatchNorm: refused with two ways out, and both lead out."""

from __future__ import annotations

import copy

import pytest
import torch
from any_nets import ResNet18, Way
from torch import nn

import pacbayes as pb
from pacbayes.errors import InvalidInput, UnsupportedModel


def used(model: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """As after training: statistics, scales and shifts that are not those of the start."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model.train()
        for _ in range(3):
            model(2 + torch.randn(16, *shape))
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def flat(*layers: nn.Module, features: int) -> nn.Sequential:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 3))


FOLDED = {
    "resnet 18": (lambda: ResNet18(nn.BatchNorm2d, 4), (3, 8, 8)),
    "linear": (lambda: flat(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), features=6), (4,)),
    "linear without bias": (lambda: flat(nn.Linear(4, 6, bias=False), nn.BatchNorm1d(6), features=6), (4,)),
    "conv1d, plain norm": (lambda: flat(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3, affine=False), features=12), (2, 5)),
    "conv2d, groups": (lambda: flat(nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6), features=54), (4, 5, 5)),
    "conv3d": (lambda: flat(nn.Conv3d(1, 2, 2), nn.BatchNorm3d(2, eps=0.1), features=54), (1, 4, 4, 4)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FOLDED)
def test_a_folded_model_gives_the_same_outputs_and_becomes_stochastic(name, dtype):
    make, shape = FOLDED[name]
    model = used(make(), shape).to(dtype)
    x = torch.randn(7, *shape, generator=torch.Generator().manual_seed(1), dtype=dtype)
    state = copy.deepcopy(model.state_dict())
    with pytest.raises(UnsupportedModel, match=r"fold_batchnorm.*replace_batchnorm"):
        pb.stochastic(model)
    folded = pb.fold_batchnorm(model, x[:2])
    tolerance = 1e-4 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(folded(x), copy.deepcopy(model).eval()(x), rtol=tolerance, atol=tolerance)
    assert not any("Norm" in type(m).__name__ for m in folded.modules())
    assert not folded.training and model.training
    assert all(torch.equal(t, state[n]) for n, t in model.state_dict().items())
    net = pb.stochastic(folded)
    torch.testing.assert_close(net(x, "mean"), folded(x))
    assert all(row.drawn != "fixed" for row in net.audit().rows)


NOT_FOLDED = {
    "a ReLU between": (lambda: flat(nn.Linear(4, 6), nn.ReLU(), nn.BatchNorm1d(6), features=6), "right after"),
    "first": (lambda: flat(nn.BatchNorm1d(4), features=4), "right after"),
    "without statistics": (
        lambda: flat(nn.Linear(4, 6), nn.BatchNorm1d(6, track_running_stats=False), features=6),
        "no running statistics",
    ),
    "a layer applied twice": (
        lambda: Way(
            lambda net, x: net.out(net.norm(net.body(net.body(x)))),
            body=nn.Linear(4, 4),
            norm=nn.BatchNorm1d(4),
            out=nn.Linear(4, 3),
        ),
        "right after",
    ),
    "used beside the norm": (
        lambda: Way(
            lambda net, x: net.out((h := net.body(x)) + net.norm(h)),
            body=nn.Linear(4, 4),
            norm=nn.BatchNorm1d(4),
            out=nn.Linear(4, 3),
        ),
        "does not give the outputs",
    ),
}


@pytest.mark.parametrize("name", NOT_FOLDED)
def test_what_cannot_be_folded_is_refused(name):
    make, message = NOT_FOLDED[name]
    with pytest.raises(UnsupportedModel, match=message):
        pb.fold_batchnorm(used(make(), (4,)), torch.randn(5, 4, generator=torch.Generator().manual_seed(1)))


def test_batch_norms_are_replaced_by_group_norms():
    model = used(ResNet18(nn.BatchNorm2d, 4), (3, 8, 8))
    new = pb.replace_batchnorm(model)
    assert sum(isinstance(m, nn.BatchNorm2d) for m in model.modules()) == 20
    assert sum(isinstance(m, nn.GroupNorm) for m in new.modules()) == 20
    assert not any(isinstance(m, nn.BatchNorm2d) for m in new.modules())
    assert torch.equal(new.stem[1].weight, model.stem[1].weight) and new.stem[1].weight is not model.stem[1].weight
    assert new.stem[1].num_groups == 4 and new.stages[3][0].norm1.num_groups == 8
    data = (torch.randn(12, 3, 8, 8), torch.arange(12) % 3)
    assert pb.certify(pb.stochastic(new, 1e-4), data, draws=12).check() == []
    assert pb.replace_batchnorm(model, groups=1).stem[1].num_groups == 1
    with pytest.raises(InvalidInput, match="groups"):
        pb.replace_batchnorm(model, groups=0)


def test_features_keep_their_differences_under_the_norm_put_in():
    """With one number a channel, a group for each channel would make every feature a zero."""
    model = pb.replace_batchnorm(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)))
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    assert (model[1](model[0](x)).std(0) > 0.1).all()


def test_layers_called_by_keyword_are_folded_too():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.last = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)

        def forward(self, x):
            return self.last(torch.relu(self.norm(input=self.first(input=x))))

    model, x = used(Named(), (4,)).eval(), torch.randn(5, 4)
    torch.testing.assert_close(pb.fold_batchnorm(model, x)(x), model(x), rtol=1e-4, atol=1e-4)


def with_norm() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(0, 4), "must be a few inputs"),
        (torch.tensor(1.0), "must be a few inputs"),
        (torch.full((2, 4), torch.nan), "all finite"),
        (torch.zeros(2, 5), r"does not take an x of shape \[2, 5\]"),
    ],
)
def test_inputs_that_show_nothing_are_refused(x, message):
    with pytest.raises(InvalidInput, match=message):
        pb.fold_batchnorm(with_norm(), x)


def test_models_whose_outputs_show_nothing_are_refused():
    x = torch.ones(2, 4)
    for way, message in (
        (lambda net, x: (net.body(x), x), "gives a tuple"),
        (lambda net, x: net.body(x) / 0, "not finite"),
    ):
        with pytest.raises(UnsupportedModel, match=message):
            pb.fold_batchnorm(Way(way, body=with_norm()), x)
    lazy = nn.Sequential(nn.Linear(4, 4), nn.LazyBatchNorm1d(), nn.Linear(4, 3))
    for change in (lambda: pb.fold_batchnorm(lazy, x), lambda: pb.replace_batchnorm(lazy)):
        with pytest.raises(UnsupportedModel, match="no shape yet"):
            change()


def test_inputs_keep_their_digits_where_a_weight_is_whole_numbers():
    whole = nn.Parameter(torch.ones(4, dtype=torch.int8), requires_grad=False)
    model = Way(lambda net, x: net.body(x * net.whole.to(x.dtype)), whole=whole, body=used(with_norm(), (4,))).eval()
    seen: list[torch.Tensor] = []
    model.body.register_forward_pre_hook(lambda body, args: seen.append(args[0]))
    pb.fold_batchnorm(model, x := 0.4 * torch.ones(2, 4))
    assert torch.equal(seen[0], x)
