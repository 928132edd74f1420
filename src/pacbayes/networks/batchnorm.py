"""Two ways out of BatchNorm: fold a trained one into the layer before it, or put GroupNorm in its place.

And a way in, for as long as a network is trained.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pacbayes.checks import check_count, plain
from pacbayes.errors import InvalidInput, UnsupportedModel, first_line
from pacbayes.networks.conversion import check_model, copied, inputs_like, output_name, replaced, uses_of_parameters
from pacbayes.networks.watch import first_argument, watched

_FOLDS_INTO = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@torch.no_grad()
def fold_batchnorm(model: nn.Module, x: Any) -> nn.Module:
    """A copy of the model, in evaluation mode, with every BatchNorm folded into the Linear or Conv right before it.

    With ``scale = weight / sqrt(running_var + eps)`` the layer's weight becomes ``scale * weight`` and its bias
    ``scale * (bias - running_mean)`` plus the BatchNorm's. For a model that has been trained on prior data: from then
    on the statistics are part of weights that are drawn. ``x`` are a few inputs of the right shape, [n, ...]: the
    model is run on them to see which layer is before which, and to check that its outputs stay the same.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    >>> fold_batchnorm(model, torch.randn(5, 4))[1]
    Identity()
    """
    check_model(model)
    model = copied(model).eval()
    x = _inputs(model, x)
    names = {module: name for name, module in model.named_modules()}
    norms = [m for m in names if isinstance(m, _BatchNorm)]
    layers = [m for m in names if type(m) in _FOLDS_INTO]
    inputs: dict[nn.Module, list[Tensor]] = {norm: [] for norm in norms}

    def note(norm: nn.Module, args: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
        inputs[norm].append(first_argument(args, named))

    handles = [norm.register_forward_pre_hook(note, with_kwargs=True) for norm in norms]
    try:
        before, calls = watched(lambda: model(x), layers)
    except (RuntimeError, ValueError, IndexError) as error:
        raise InvalidInput(f"the model does not take an x of shape {list(x.shape)}: {first_line(error)}") from None
    if not isinstance(before, Tensor):
        raise UnsupportedModel(f"the model gives a {type(before).__name__}, where one tensor, its outputs, is needed")
    if not bool(before.isfinite().all()):
        raise UnsupportedModel("the model's output is not finite: scale its inputs to size 1, or look for a 0/0 in it")
    for handle in handles:
        handle.remove()
    for norm in norms:
        name = f"{names[norm]} ({type(norm).__name__})"
        if norm.running_mean is None:
            raise UnsupportedModel(f"{name} has no running statistics to fold: pacbayes.replace_batchnorm(model)")
        givers = [call.layer for call in calls if len(inputs[norm]) == 1 and call.gave(inputs[norm][0])]
        if len(givers) != 1 or sum(call.layer is givers[0] for call in calls) != 1:
            raise UnsupportedModel(
                f"{name} does not come right after a Linear or Conv that is applied once, so it cannot be folded: "
                "freeze it and call model.eval(), or use pacbayes.replace_batchnorm(model) and train again"
            )
        _fold(norm, givers[0])
        model = replaced(model, names[norm], nn.Identity())
    after = model(x)
    if not torch.allclose(after, before, rtol=1e-3, atol=1e-4 * float(before.abs().max().clamp_min(1))):
        raise UnsupportedModel(
            "the folded model does not give the outputs of the original: another part of it uses what a BatchNorm "
            "was given. Use pacbayes.replace_batchnorm(model) and train again"
        )
    return model


def _fold(norm: _BatchNorm, layer: nn.Module) -> None:
    weight, bias = layer.weight, layer.bias
    assert isinstance(weight, Tensor) and norm.running_mean is not None and norm.running_var is not None
    scale = (norm.running_var.double() + norm.eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight.double()
    start = bias.double() if isinstance(bias, Tensor) else 0.0
    shift = scale * (start - norm.running_mean.double())
    if norm.bias is not None:
        shift = shift + norm.bias.double()
    weight.copy_(weight.double() * scale.view(-1, *(1,) * (weight.dim() - 1)))
    layer.bias = nn.Parameter(shift.to(weight.dtype), requires_grad=weight.requires_grad)


def replace_batchnorm(model: nn.Module, groups: int = 8) -> nn.Module:
    """A copy of the model with GroupNorm in place of every BatchNorm, to be trained anew.

    Up to ``groups`` groups of channels, a divisor of their number; one group for BatchNorm1d, whose examples may have
    a single number a channel. Scale and shift are taken over.

    >>> replace_batchnorm(nn.Sequential(nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12)))[1].num_groups
    4
    """
    check_model(model)
    check_count("groups", groups := plain(groups))
    model = copied(model)
    for name, norm in list(model.named_modules(remove_duplicate=False)):
        if isinstance(norm, _BatchNorm):
            channels = norm.num_features
            count = 1 if isinstance(norm, nn.BatchNorm1d) else math.gcd(groups, channels)
            new = nn.GroupNorm(count, channels, norm.eps, norm.affine)
            if norm.affine:
                new.weight, new.bias = norm.weight, norm.bias
            model = replaced(model, name, new.train(norm.training))
    return model


class _Normalised(nn.Sequential):
    """A layer and its BatchNorm."""


class _OfFeatures(nn.BatchNorm1d):
    """After a Linear, whose features are the last axis, whatever stands before it."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(0, -2)).view_as(x)


_NORM_AFTER: dict[type[nn.Module], type[_BatchNorm]] = {
    nn.Linear: _OfFeatures,
    nn.Conv1d: nn.BatchNorm1d,
    nn.Conv2d: nn.BatchNorm2d,
    nn.Conv3d: nn.BatchNorm3d,
}


def with_batchnorm(model: nn.Module, eps: float = 1e-5) -> nn.Module:
    """The model with a BatchNorm after every Linear and Conv but the output layer, frozen and tied ones; in place."""
    output, uses = output_name(model), uses_of_parameters(model)
    for name, layer in list(model.named_modules()):
        own = list(layer.parameters(recurse=False))
        free = all(p.requires_grad and uses[id(p)] == 1 for p in own)
        if type(layer) in _NORM_AFTER and name != output and free:
            assert isinstance(layer.weight, Tensor)
            norm = _NORM_AFTER[type(layer)](len(layer.weight), eps=eps).to(layer.weight)
            model = replaced(model, name, _Normalised(layer, norm))
    return model


@torch.no_grad()
def without_batchnorm(model: nn.Module) -> nn.Module:
    """What :func:`with_batchnorm` put in folded into the layers, which have their names again; in place."""
    for name, pair in list(model.named_modules()):
        if isinstance(pair, _Normalised):
            layer, norm = pair
            assert isinstance(norm, _BatchNorm)
            _fold(norm, layer)
            model = replaced(model, name, layer)
    return model


def _inputs(model: nn.Module, x: Any) -> Tensor:
    try:
        x = torch.as_tensor(x)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidInput(f"x must be a few inputs of the model, [n, ...], and is a {type(x).__name__}") from None
    if x.dim() == 0 or x.numel() == 0 or not bool(x.isfinite().all()):
        raise InvalidInput(f"x must be a few inputs of the model, [n, ...], all finite: its shape is {list(x.shape)}")
    like = inputs_like(model, x)
    return x.to(like) if x.is_floating_point() else x.to(like.device)
