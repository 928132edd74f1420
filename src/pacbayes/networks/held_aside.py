"""What a module holds besides its parameters and buffers: where something may learn outside the KL."""

from __future__ import annotations

import sys
from argparse import Namespace
from array import array
from collections import UserDict, deque
from collections.abc import Iterable, Iterator
from functools import partial
from types import CellType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pacbayes.errors import UnsupportedModel
from pacbayes.files import sha256

_MOST_OBJECTS = 1_000_000
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_OF_MODULES = vars(nn.Module()).keys() - set(_HOOKS)
_OF_CLASSES = ("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__")
_NOT_LOOKED_INTO = sys.stdlib_module_names | {"pacbayes"}  # a logger, say; their lists and the like are
_NUMBERS = (float, complex, np.inexact)
# Whole numbers count things.
_PLAIN = (str, bytes, int, type(None), type, ModuleType)


def held_aside(model: nn.Module) -> Iterator[tuple[str, Tensor | complex]]:
    """Tensors, arrays and fractions that a model holds, but not as its parameters or buffers, each with a name.

    In attributes of classes of one's own and of their objects, in lists, dicts and objects that are no modules, in
    hooks, closures and default arguments: however deep. Several may have one name: see :func:`digests`.
    """
    seen = {id(t) for module in model.modules() for t in (*module._parameters.values(), *module._buffers.values())}
    seen |= {id(module) for module in model.modules()}
    waiting = deque(
        (f"{name}.{key}", value) for name, part in model.named_modules() for key, value in _attributes(part)
    )
    while waiting:
        name, value = waiting.popleft()
        if isinstance(value, _NUMBERS):
            yield name, complex(value)
            continue
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Tensor):
            yield name, value.detach()
        elif isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
            yield name, torch.from_numpy(np.ascontiguousarray(value).reshape(-1).view(np.uint8).copy())
        elif isinstance(value, bytearray | array):
            yield name, torch.frombuffer(bytearray(memoryview(value).cast("B")), dtype=torch.uint8).clone()
        elif isinstance(value, list | tuple | deque) and value and all(type(part) is float for part in value):
            yield f"{name}.numbers", torch.tensor(value, dtype=torch.float64)  # there may be millions
        else:
            for key, part in _inside(value):
                if isinstance(part, _NUMBERS):
                    yield f"{name}.{key}", complex(part)
                elif not isinstance(part, _PLAIN):
                    waiting.append((f"{name}.{key}", part))
        if len(seen) + len(waiting) > _MOST_OBJECTS:
            raise UnsupportedModel(f"the model holds more than {_MOST_OBJECTS} objects, too many to look into: {name}")


def _attributes(value: Any) -> list[tuple[str, Any]]:
    """The plain attributes of an object and its classes; not weights that PyTorch's layers hold once more."""
    package = _package(type(value))
    if package in _NOT_LOOKED_INTO:
        return []
    own = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        if _package(kind) != "torch" and _package(kind) not in _NOT_LOOKED_INTO:
            slots = getattr(kind, "__slots__", ())
            own |= {slot: getattr(value, slot, None) for slot in ([slots] if isinstance(slots, str) else slots)}
            own = {f"class.{key}": inside for key, inside in vars(kind).items() if key not in _OF_CLASSES} | own
    found = [(key, inside) for key, inside in own.items() if key not in _OF_MODULES and not isinstance(inside, _PLAIN)]
    if package != "torch":
        return found
    # What weight_norm and spectral_norm, as they were before parametrizations, compute anew for each pass.
    anew = {getattr(hook, "name", None) for hook in own["_forward_pre_hooks"].values()} if "_parameters" in own else ()
    return [(k, v) for k, v in found if k not in anew and not k.startswith("_flat_weight")]


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _inside(value: Any) -> list[tuple[str, Any]]:
    """What an object holds, as far as one can see."""
    if isinstance(value, SimpleNamespace | Namespace | UserDict):
        return list(vars(value).items())
    if isinstance(value, dict):
        # Keys that read alike, 1 and "1", are two; but not by where they are in memory.
        return [(k if type(k) is str else f"{type(k).__name__} {k}", inside) for k, inside in value.items()]
    if isinstance(value, set | frozenset):
        return [("one", inside) for inside in value]  # in an order that is another in each process
    if isinstance(value, list | tuple | deque):
        return [(str(place), inside) for place, inside in enumerate(value)]
    if isinstance(value, nn.Module):
        return [*value.named_parameters(), *value.named_buffers(), *value.named_children(), *_attributes(value)]
    if isinstance(value, partial):
        return [("func", value.func), ("args", value.args), ("keywords", value.keywords)]
    if isinstance(value, staticmethod | classmethod | MethodType):
        return [("func", value.__func__), ("self", getattr(value, "__self__", None))]
    if isinstance(value, property):
        return [("get", value.fget), ("set", value.fset)]
    if isinstance(value, FunctionType):
        cells = [(f"closure {place}", _content(cell)) for place, cell in enumerate(value.__closure__ or ())]
        return [*cells, ("defaults", value.__defaults__), ("keywords", value.__kwdefaults__), ("own", value.__dict__)]
    return _attributes(value)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # nothing yet


def digests(named: Iterable[tuple[str, Tensor | complex]]) -> dict[str, str]:
    """The :func:`digest` of each; of all that have one name, as members of a set do, in an order of their own."""
    found: dict[str, list[str]] = {}
    for name, tensor in named:
        found.setdefault(name, []).append(digest(tensor))
    return {name: " ".join(sorted(each)) for name, each in found.items()}


def digest(tensor: Tensor | complex) -> str:
    """SHA-256 of a tensor's kind, shape and numbers; a number as it is written."""
    if not isinstance(tensor, Tensor):
        return repr(tensor)
    kind = f"{tensor.dtype} {tuple(tensor.shape)} {tensor.layout}"
    if tensor.is_meta:
        return kind
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    numbers = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return sha256(kind.encode() + numbers.numpy().tobytes())
