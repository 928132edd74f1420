"""Which data have shaped a module before it became a prior: they must not enter the bound."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

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
