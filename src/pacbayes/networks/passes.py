"""Passes of a model whose weights are drawn: all examples together, or, where layers have no rule, one by one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parametrize

from pacbayes.errors import InvalidInput, UnsupportedModel
from pacbayes.networks.binding import Binding
from pacbayes.networks.held_aside import held_aside
from pacbayes.networks.layers import Draw, Moments, StochasticConv
from pacbayes.networks.normals import Counted, Normals, Rows, Seeded, Tape, normals_like, of_examples
from pacbayes.networks.precision import fullest_precision
from pacbayes.networks.watch import Call, has_fast_paths, no_fast_paths, watched

# How many weights may be drawn at a time for examples that pass one by one; each takes about four numbers of memory.
_WEIGHTS_AT_ONCE, _GPU_WEIGHTS_AT_ONCE = 2**24, 2**28

# Of the largest output: what two ways to compute the same may differ by.
_ROUNDING = 1e-3

MomentsOf = Callable[[int], Moments]
"""The law of the weight tensor in a slot."""


class Passes:
    """Runs a model. The first pass is preceded by a look at what the model does with its layers."""

    def __init__(self, binding: Binding):
        self.binding = binding
        self.vmaps = True
        self._ready = False
        self._has_fast_paths = has_fast_paths(binding.model)
        self._noise_sizes: dict[tuple[Any, ...], int] = {}

    def run(self, x: Tensor, draw: Draw, moments: MomentsOf, *, conditional: bool) -> tuple[Tensor, ...]:
        """The output alone, or its mean and variance given the hidden weights."""
        if parametrize._cache_enabled:
            raise UnsupportedModel(
                "torch.nn.utils.parametrize.cached() keeps the weights of one pass for the next, which must have a "
                "draw of its own: do without it"
            )
        if not self._ready:
            self._prepare(x, moments)
        if draw.sampling == "independent" and self.binding.free:
            return self._one_by_one(x, draw, moments, conditional=conditional)
        return self._together(x, draw, moments, conditional=conditional)

    def _together(self, x: Tensor, draw: Draw, moments: MomentsOf, *, conditional: bool) -> tuple[Tensor, ...]:
        layer = self.binding.output_layer
        self.binding.bind(replace(draw, examples=len(x)), moments)
        layer.conditional = conditional
        try:
            if self._has_fast_paths:
                with no_fast_paths():
                    out: Tensor = self.binding.model(x)
            else:
                out = self.binding.model(x)
        finally:
            self.binding.unbind()
        if not conditional:
            return (out,)
        variance = layer.variance
        del layer.variance
        return out, variance

    def _one_by_one(self, x: Tensor, draw: Draw, moments: MomentsOf, *, conditional: bool) -> tuple[Tensor, ...]:
        """Each example by itself, with a draw of all the weights of its own; many at a time, if vmap can."""
        size = self._noise_of_a_draw(x, draw, moments, conditional=conditional)

        def one(example: Tensor, noise: Tensor) -> tuple[Tensor, ...]:
            own = replace(draw, sampling="shared", normals=Tape(noise))
            return tuple(t[0] for t in self._together(example[None], own, moments, conditional=conditional))

        budget = _GPU_WEIGHTS_AT_ONCE if x.is_cuda else _WEIGHTS_AT_ONCE
        at_once = max(1, budget // max(1, size))
        parts = []
        if isinstance(draw.normals, Rows | Seeded):
            # How many are drawn at a time must not depend on how many rows there are; training keeps it all anyway.
            noises = iter(of_examples(draw.normals)((len(x), size)).split(at_once))
        else:
            noises = (draw.normals((len(some), size)) for some in x.split(at_once))
        for some, noise in zip(x.split(at_once), noises, strict=True):
            if self.vmaps:
                # The other kernels of attention know no vmap.
                with sdpa_kernel(SDPBackend.MATH):
                    parts.append(torch.func.vmap(one)(some, noise))
            else:
                each = [one(*pair) for pair in zip(some, noise, strict=True)]
                parts.append(tuple(torch.stack(outs) for outs in zip(*each, strict=True)))
        return tuple(torch.cat(outs) for outs in zip(*parts, strict=True))

    def _noise_of_a_draw(self, x: Tensor, draw: Draw, moments: MomentsOf, *, conditional: bool) -> int:
        """How many normals a pass of one example takes."""
        key = (conditional, draw.dropout > 0, *x.shape[1:])
        if key not in self._noise_sizes:
            count = Counted(moments(0).mean)
            counting = replace(draw, sampling="shared", normals=count)
            with torch.no_grad():
                self._together(x[:1], counting, moments, conditional=conditional)
                for rule in self.binding.rules:
                    if not rule.layer.used:  # another example may take this way
                        for _, slot in rule.slots():
                            moments(slot).sample(counting)
            self._noise_sizes[key] = count.used
        return self._noise_sizes[key]

    @torch.inference_mode(False)
    @torch.no_grad()
    def _prepare(self, x: Tensor, moments: MomentsOf) -> None:
        """Watch the model on a few copies of an example, and settle which layers draw by a rule of their own.

        A layer does if it is applied once in a pass, to one row for each example. The others (applied again; with
        positions in front) must do without; so must all, where the model takes the weights of one by itself.
        """
        if not len(x):
            raise InvalidInput("the batch is empty: the first pass needs an example")
        x = x[:3].clone()  # a tensor of inference mode keeps no account of changes
        hidden, zeros = self.binding.rules[:-1], moments(0).mean.new_zeros
        try:
            calls = self._watch(x, Draw("mean", zeros), moments)
        except (AttributeError, TypeError, StopIteration):
            self._run_as_given(x, lambda slot: moments(slot).mean)  # it may be that the model does not take these
            for rule in hidden:
                self.binding.give_up(rule)
            hidden = []
            calls = self._watch_without_rules(x, zeros, moments)
        for rule in hidden:
            for count, seen in calls.items():
                if [call.rows for call in seen if call.layer is rule.layer] not in ([], [count]):
                    self.binding.give_up(rule)
                    break
        if not self._is_as_given(x, moments):
            for rule in self.binding.rules[:-1]:
                self.binding.give_up(rule)
            self._watch(x, Draw("mean", zeros), moments)
            if not self._is_as_given(x, moments):
                raise UnsupportedModel(
                    "the model gives other outputs when its layers are drawn: its forward looks at what they are "
                    "(isinstance(layer, nn.Linear), self.parameters()), and stochastic layers are of other classes and "
                    "hold no weights. Choose by position or by name in its place"
                )
        self._settle_products(x, zeros, moments)
        if self.binding.free:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")  # vmap warns where it falls back on a loop of its own
                    self._one_by_one(torch.cat([x[:1]] * 2), Draw("independent", zeros), moments, conditional=True)
                # What a model keeps of a pass cannot be read when vmap is over.
                for _ in (*map(torch.detach, self.binding.model.buffers()), *held_aside(self.binding.model)):
                    pass
            except Exception:
                self.vmaps = False
                self._together(x[:1], Draw("mean", zeros), moments, conditional=False)  # writes over what was kept
        self._ready = True

    def _watch_without_rules(self, x: Tensor, zeros: Normals, moments: MomentsOf) -> dict[int, list[Call]]:
        """:meth:`_watch` where no hidden layer has a rule, or why the model cannot do without."""
        try:
            return self._watch(x, Draw("mean", zeros), moments)
        except UnsupportedModel:  # a TypeError too, with words of its own
            raise
        except StopIteration as error:
            raise UnsupportedModel(
                "the model asks for its own parameters, next(self.parameters()), and it has none: they are drawn. Take "
                "device and dtype of the inputs, or of a buffer"
            ) from error
        except AttributeError as error:
            if not isinstance(error.obj, Moments):
                raise
            raise UnsupportedModel(
                f"the model asks for the {error.name} of its last Linear's weight, which is drawn: take device and "
                "dtype of the inputs, or of a buffer"
            ) from error
        except TypeError as error:
            raise UnsupportedModel(
                f"the model fails where its last Linear is drawn: {error}. Call that layer with its input alone, by "
                "position: head(h), not head(input=h); and keep layers in an nn.ModuleList, not in a list"
            ) from error

    def _settle_products(self, x: Tensor, zeros: Normals, moments: MomentsOf) -> None:
        """Convolutions as products only where the model, with an x.view() say, takes the layout of their outputs."""
        convolutions = [rule.layer for rule in self.binding.rules if isinstance(rule.layer, StochasticConv)]
        try:
            if convolutions:
                self._together(x, Draw("shared", zeros), moments, conditional=False)
        except RuntimeError:
            for layer in convolutions:
                layer.by_product = False

    def _is_as_given(self, x: Tensor, moments: MomentsOf) -> bool:
        """Whether one and the same draw of the weights makes the outputs that the model, as it was given, makes."""
        like = moments(0).mean
        draw = Draw("shared", normals_like(like, torch.Generator(like.device).manual_seed(0)))
        draws: dict[int, Tensor] = {}

        def drawn(slot: int) -> Moments:
            if slot not in draws:  # not the means: the last layer's may be zeros, which hide all before it
                draws[slot] = moments(slot).sample(draw)
            return replace(moments(slot), mean=draws[slot])

        def ours() -> Tensor:
            return self._together(x, Draw("mean", like.new_zeros), drawn, conditional=False)[0]

        if torch.is_autocast_enabled(x.device.type) and x.is_floating_point():
            x = x.to(like.dtype)  # which autocast would see to
        with fullest_precision():
            out, theirs = ours(), self._run_as_given(x, lambda slot: drawn(slot).mean)
            # Outputs that change from pass to pass are refused elsewhere, in words of their own.
            return alike(out, theirs) or not alike(out, ours())

    def _run_as_given(self, x: Tensor, means: Callable[[int], Tensor]) -> Tensor:
        """The output of the model that was given, with these weights."""
        with no_fast_paths() if self._has_fast_paths else nullcontext(), self.binding.as_it_was(means) as model:
            out: Tensor = model(x)
        return out

    def _watch(self, x: Tensor, draw: Draw, moments: MomentsOf) -> dict[int, list[Call]]:
        """The calls of layers with a rule, by the number of examples. Nothing may follow the output layer."""
        calls = {}
        output = self.binding.output_layer
        for count in (1, 2, 3):
            run = partial(self._together, torch.cat([x[:1]] * count), draw, moments, conditional=False)
            (out,), calls[count] = watched(run, [rule.layer for rule in self.binding.rules])
            if not isinstance(out, Tensor):
                raise UnsupportedModel(
                    f"the model gives a {type(out).__name__}, where its outputs alone are needed: one tensor, with "
                    "a row for each example"
                )
            last = calls[count][-1] if calls[count] else None
            if last is None or last.layer is not output or not last.gave(out):
                raise UnsupportedModel(
                    f"the model's output must be that of its last Linear ({output.name}), with nothing after it: "
                    "remove the softmax, or whatever else follows (the prediction, the index of the largest output, "
                    "stays the same); if the output is another Linear's, name it, stochastic(model, output=...)"
                )
            if last.rows != count:
                raise UnsupportedModel(
                    f"the model gives {last.rows} outputs for {count} examples: it must give one each"
                )
        return calls


def alike(one: Tensor, other: Tensor) -> bool:
    """The same numbers, but for rounding; outputs that are not finite are like each other."""
    allowed = _ROUNDING * float(other.abs().nan_to_num(0, 0, 0).max())
    return bool(torch.isclose(one, other, rtol=_ROUNDING, atol=allowed, equal_nan=True).all())
