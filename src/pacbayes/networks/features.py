"""A fixed body computed once: what reaches the last layer becomes the data, and the last layer the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pacbayes.checks import check_count, plain
from pacbayes.data import Data, as_data
from pacbayes.data.dataset import spread_rows
from pacbayes.errors import InvalidInput, UnsupportedModel, first_line
from pacbayes.networks.conversion import check_model, copied, inputs_like
from pacbayes.networks.precision import full_precision
from pacbayes.networks.refusals import PROBES, near, refuse_a_change
from pacbayes.networks.shaping import forget_data, remember_data
from pacbayes.networks.stochastic import StochasticNetwork, stochastic


@torch.no_grad()
def features(model: nn.Module, data: Any, *, head: str | None = None, batch_size: int = 256) -> tuple[Data, nn.Module]:
    """(data, head): the examples as the head gets them from the rest of the model, and a copy of the head.

    The head is the part of the model with this name, whose output must be the model's: by default the last Linear. The
    rest is run once, in evaluation mode and on the model's device, and is fixed from then on: it must have been trained
    without the bound data. Of a stochastic network with nothing drawn before its last layer, the head is the stochastic
    network of that layer, with the same law. Examples stay the same examples: data from before and after are still
    known to overlap.

    >>> body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten())
    >>> data, head = features(nn.Sequential(body, nn.Linear(8 * 36, 10)), pb.load("digits"))
    >>> data.shape, head
    ((288,), Linear(in_features=288, out_features=10, bias=True))
    """
    check_model(model)
    data = as_data(data)
    check_count("batch_size", batch_size := plain(batch_size))
    whole = copied(model).eval()
    run: Callable[[Tensor], Tensor] = whole
    layer: nn.Module
    result: nn.Module
    if isinstance(whole, StochasticNetwork):
        _refuse_a_network(whole, head)
        shaped, run = whole.prior_trained_on, partial(whole, sampling="mean")
        layer, result = whole.output_layer, _head_network(whole)
    else:
        layer = result = _part(whole, head)
        shaped = forget_data(whole)
        remember_data(result, shaped)
    like = inputs_like(whole, data.x[:1])
    try:
        run(data.x[:1].to(like))  # a stochastic network looks at its model first
    except RuntimeError as error:
        words = first_line(error)
        raise InvalidInput(f"the model does not take examples of shape {list(data.shape)}: {words}") from None
    with full_precision(), _given_to(layer, run, like, head or "the last Linear") as given:
        x = torch.cat([given(some) for some in data.x.split(batch_size)])
        rows = spread_rows(len(x), PROBES)
        alone = torch.cat([given(some) for some in data.x[rows].split(1)])
    if not near(alone, x[rows]):
        raise UnsupportedModel(
            "what the head gets for an example depends on the other examples of the batch (a batch normalisation "
            "without statistics, or an operation over the first axis): there is no valid certificate for it"
        )
    # Still these examples: where they overlap with others is known by their places in the original data.
    source = data.source or (data, np.arange(len(data)))
    made_with = (*data.made_with, *shaped)
    named = f"features of {data.name}"
    return replace(data, x=x, name=named, source=source, feature_names=(), scaling=None, made_with=made_with), result


def _refuse_a_network(net: StochasticNetwork, head: str | None) -> None:
    """Refuse a stochastic network whose last layer's inputs are not fixed, or not asked for."""
    refuse_a_change(net)
    if net.hidden_size:
        raise UnsupportedModel(
            "weights before the last layer are drawn, so its inputs cannot be computed once: make the last layer "
            "alone stochastic, pacbayes.stochastic(model, layers=[...])"
        )
    if head is not None:
        raise InvalidInput("head would be ignored: it is for ordinary modules, a stochastic network has its own")


@contextmanager
def _given_to(
    layer: nn.Module, run: Callable[[Tensor], Tensor], like: Tensor, name: str
) -> Iterator[Callable[[Tensor], Tensor]]:
    """What the layer, whose output must be that of ``run``, gets for some examples, moved to where ``like`` is."""
    calls: list[tuple[tuple[Any, ...], Any]] = []
    handle = layer.register_forward_hook(lambda module, args, out: calls.append((args, out)))

    def given(x: Tensor) -> Tensor:
        calls.clear()
        out = run(x.to(like))
        if len(calls) != 1 or calls[0][1] is not out or len(calls[0][0]) != 1 or len(out) != len(x):
            raise UnsupportedModel(
                f"the model's output must be that of its head, {name}, applied once and to one input: name another "
                "part of the model, features(model, data, head=...)"
            )
        inputs: Tensor = calls[0][0][0]
        return inputs.float().cpu()

    try:
        yield given
    finally:
        handle.remove()


def body_is_fixed(net: StochasticNetwork, data: Data) -> bool:
    """Whether there is something before the one drawn layer that can be run once, and inputs in memory to do it on."""
    return not net.hidden_size and bool(net.model.state_dict()) and isinstance(data.x, Tensor)


def _part(model: nn.Module, name: str | None) -> nn.Module:
    if name is None:
        linears = [module for module in model.modules() if type(module) is nn.Linear]
        if not linears:
            raise UnsupportedModel("the model must end in an nn.Linear, and it has none")
        return linears[-1]
    try:
        return model.get_submodule(name)
    except AttributeError:
        raise InvalidInput(f"the model has no part {name!r}") from None


def _head_network(net: StochasticNetwork) -> StochasticNetwork:
    layer = net.output_layer
    with torch.random.fork_rng(devices=[]):
        linear = nn.Linear(layer.in_features, layer.out_features, bias=len(net.slots) == 2)
    head = stochastic(linear.to(net.mean))
    for name in ("mean", "rho", "prior_mean", "prior_rho"):
        getattr(head, name).copy_(getattr(net, name))
    head.objective, head.trained_on, head.prior_trained_on = net.objective, net.trained_on, net.prior_trained_on
    for name in ("catoni", "single_draws", "looks", "seen_before_catoni"):
        setattr(head, name, getattr(net, name))
    head.note_fixed()
    return head
