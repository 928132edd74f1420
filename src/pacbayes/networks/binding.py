"""Where a model's drawn weights go for the time of a pass: into layers with a rule of their own, or to their places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pacbayes.networks import conversion
from pacbayes.networks.layers import Draw, Moments, OutputLinear, StochasticLayer


@dataclass(frozen=True)
class Rule:
    """A layer that draws by a rule of its own, the one it stands for, and the slots of its weight and bias."""

    layer: StochasticLayer
    original: nn.Module
    weight: int
    bias: int | None

    def slots(self) -> list[tuple[str, int]]:
        pairs = (("weight", self.weight), ("bias", self.bias))
        return [(kind, slot) for kind, slot in pairs if slot is not None]


@dataclass(frozen=True)
class Free:
    """A tensor without such a rule: its slot, and every place where the model has it."""

    slot: int
    places: tuple[tuple[nn.Module, str], ...]

    def put(self, value: Tensor | None) -> None:
        for module, name in self.places:
            setattr(module, name, value)


class Binding:
    """A model without its drawn weights, and the way to put them in."""

    def __init__(self, model: nn.Module, parameters: dict[str, nn.Parameter], output: str):
        slots = {id(p): i for i, p in enumerate(parameters.values())}
        self.rules: list[Rule] = []
        """The output layer's is the last."""
        self.free: list[Free] = []
        layers = conversion.layers_with_a_rule(model, output)
        layers[output] = layers.pop(output)
        for name, layer in layers.items():
            own = {kind: slots.pop(id(p)) for kind, p in layer.named_parameters(recurse=False)}
            drawn = conversion.drawn_by_a_rule(layer, is_output=name == output)
            drawn.name = name or drawn.name
            self.rules.append(Rule(drawn, layer, own["weight"], own.get("bias")))
            for kind in own:
                setattr(layer, kind, None)  # who has the layer in a list as well must not find weights of its own there
            model = conversion.replaced(model, name, drawn)
        self.model = model
        places: dict[int, list[tuple[nn.Module, str]]] = {slot: [] for slot in slots.values()}
        for module in model.modules():
            for kind, p in module.named_parameters(recurse=False, remove_duplicate=False):
                if id(p) in slots:
                    places[slots[id(p)]].append((module, kind))
        for slot, where in places.items():
            self._set_free(slot, where)
        left = [name for name, p in model.named_parameters() if p.requires_grad]
        assert not left, f"{left} would stay outside the KL"

    @property
    def output_layer(self) -> OutputLinear:
        layer = self.rules[-1].layer
        assert isinstance(layer, OutputLinear)
        return layer

    def _set_free(self, slot: int, places: list[tuple[nn.Module, str]]) -> None:
        for module, kind in places:
            # No longer a parameter: a plain attribute, which may be any tensor.
            delattr(module, kind)
        self.free.append(Free(slot, tuple(places)))
        self.free[-1].put(None)
        self.free.sort(key=lambda free: free.slot)

    def give_up(self, rule: Rule) -> None:
        """Put the original layer back; its weights are drawn without a rule from now on."""
        self.rules.remove(rule)
        conversion.replaced(self.model, rule.layer.name, rule.original)
        for kind, slot in rule.slots():
            self._set_free(slot, [(rule.original, kind)])

    @contextmanager
    def as_it_was(self, means: Callable[[int], Tensor]) -> Iterator[nn.Module]:
        """The model that was given, with its own layers, and parameters of these values."""
        originals = [rule.original for rule in self.rules]
        of_rules = [(rule.original, kind, slot) for rule in self.rules for kind, slot in rule.slots()]
        before = [getattr(layer, kind) for layer, kind, _ in of_rules]
        places = [(slot, ((layer, kind),)) for layer, kind, slot in of_rules]
        ours: set[int] = set()
        try:
            for slot, where in [*places, *((free.slot, free.places) for free in self.free)]:
                parameter = nn.Parameter(means(slot).detach().clone())
                ours.add(id(parameter))
                for module, kind in where:
                    setattr(module, kind, parameter)
            originals[-1].forward = partial(_in_full_precision, originals[-1])
            yield self._with(originals)
        finally:
            vars(originals[-1]).pop("forward", None)
            # Also where the model has put one of them into another place.
            for module in self._with([rule.layer for rule in self.rules]).modules():
                for kind in [kind for kind, p in module._parameters.items() if id(p) in ours]:
                    del module._parameters[kind]
            for (layer, kind, _), value in zip(of_rules, before, strict=True):
                setattr(layer, kind, value)
            for free in self.free:
                free.put(None)

    def _with(self, layers: list[nn.Module]) -> nn.Module:
        """The model with these layers in the places of the rules."""
        if self.model is self.rules[-1].layer:
            return layers[-1]
        for rule, layer in zip(self.rules, layers, strict=True):
            conversion.replaced(self.model, rule.layer.name, layer.eval())
        return self.model

    def bind(self, draw: Draw, moments: Callable[[int], Moments]) -> None:
        """Weights for one pass; those without a rule are drawn here, once for the whole batch."""
        for rule in self.rules:
            rule.layer.bind(draw, moments(rule.weight), None if rule.bias is None else moments(rule.bias))
        for free in self.free:
            value = moments(free.slot).sample(draw)
            # The means themselves are not given away: a model may change in place what it takes for its weights.
            free.put(value.clone() if draw.sampling == "mean" else value)

    def unbind(self) -> None:
        for rule in self.rules:
            rule.layer.unbind()
        for free in self.free:
            free.put(None)


def _in_full_precision(layer: nn.Module, input: Tensor) -> Tensor:
    """The last layer as it is computed here, whatever the layers before it use."""
    assert isinstance(layer, nn.Linear)
    with torch.autocast(input.device.type, enabled=False):
        return F.linear(input.to(layer.weight.dtype), layer.weight, layer.bias)
