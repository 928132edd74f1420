"""What may have shaped a module besides its weights: data before it became a prior, and tensors that it holds aside."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from inspect import getclosurevars
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pacbayes.data.dataset import Data, Trace


def remember_data(model: nn.Module, seen: Iterable[Data | Trace]) -> None:
    """Note on the module and each of its parts that these data have shaped it; copies know that too."""
    seen = list(seen)
    for module in model.modules():
        module.shaped_by = [*getattr(module, "shaped_by", []), *seen]  # type: ignore[assignment]


def data_behind(model: nn.Module) -> list[Data | Trace]:
    """All that has been noted on the module and its parts."""
    noted = {id(data): data for module in model.modules() for data in getattr(module, "shaped_by", [])}
    return list(noted.values())


def forget_data(model: nn.Module) -> list[Data | Trace]:
    """The same, and the module lets go of them."""
    found = data_behind(model)
    for module in model.modules():
        vars(module).pop("shaped_by", None)
    return found


_MOST_OBJECTS = 100_000
_OF_MODULES = vars(nn.Module()).keys()


def held_aside(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Tensors and arrays that a model holds, but not as its parameters or buffers, each with a name.

    In attributes of classes of one's own, in lists, dicts and objects that are no modules, in closures: however deep,
    and in the same order each time.
    """
    seen = {id(t) for module in model.modules() for t in (*module._parameters.values(), *module._buffers.values())}
    seen |= {id(module) for module in model.modules()}
    waiting = deque(
        (f"{name}.{key}", value) for name, part in model.named_modules() for key, value in _attributes(part)
    )
    for _ in range(_MOST_OBJECTS):
        if not waiting:
            return
        name, value = waiting.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Tensor):
            yield name, value.detach()
        elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            yield name, torch.from_numpy(np.ascontiguousarray(value).reshape(-1).view(np.uint8).copy())
        else:
            waiting.extend((f"{name}.{key}", inside) for key, inside in _inside(value))


def _attributes(value: Any) -> list[tuple[str, Any]]:
    """The plain attributes of an object, but for tensors that PyTorch's own classes compute from their weights."""
    package = type(value).__module__.partition(".")[0]
    if package == "pacbayes":
        return []
    own = [(key, inside) for key, inside in getattr(value, "__dict__", {}).items() if key not in _OF_MODULES]
    return [(k, v) for k, v in own if package != "torch" or not (isinstance(v, Tensor) or k.startswith("_flat_weight"))]


def _inside(value: Any) -> list[tuple[str, Any]]:
    """What an object holds, as far as one can see."""
    if isinstance(value, dict):
        return [(str(key), inside) for key, inside in value.items()]
    if isinstance(value, list | tuple | deque):
        return [(str(place), inside) for place, inside in enumerate(value)]
    if isinstance(value, nn.Module):
        return [*value.named_parameters(), *value.named_buffers(), *value.named_children(), *_attributes(value)]
    if isinstance(value, partial):
        return [("func", value.func), ("args", value.args), ("keywords", value.keywords)]
    if isinstance(value, MethodType):
        return [("self", value.__self__)]
    if isinstance(value, FunctionType):
        return [(f"closure {place}", cell) for place, cell in enumerate(getclosurevars(value).nonlocals.values())]
    return [] if isinstance(value, type | ModuleType) else _attributes(value)
