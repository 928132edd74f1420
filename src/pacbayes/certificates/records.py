"""Records of certificates: read from JSON that may be anybody's, and compared with what another machine computes."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from pacbayes.errors import RunError
from pacbayes.files import strict_json

# Another machine's logarithm may differ in the last digit; nothing more is forgiven.
_TOLERANCE = 1e-12

Record = TypeVar("Record")


def record_of(cls: type[Record], content: bytes, refusal: str) -> Record:
    """The dataclass that a JSON text is the record of: every field, and of its type."""
    try:
        record = strict_json(content)
    except ValueError as error:
        raise RunError(f"{refusal}: {error}") from None
    if not isinstance(record, dict):
        raise RunError(f"{refusal}: a JSON object is expected")
    known = {item.name: item for item in fields(cls)}  # type: ignore[arg-type]
    for name in sorted(known.keys() | record.keys()):
        if name not in known:
            raise RunError(f"{refusal}: {name!r} is unknown")
        if name not in record and _has_no_default(known[name]):
            raise RunError(f"{refusal}: {name!r} is missing")
    found = {}
    for name, value in record.items():
        kind = str(known[name].type)
        found[name], fits = fitting(value, kind)
        if not fits:
            raise RunError(f"{refusal}: {name} must be of type {kind}")
    return cls(**found)


def _has_no_default(item: Any) -> bool:
    return item.default is MISSING and item.default_factory is MISSING


def fitting(value: Any, kind: str) -> tuple[Any, bool]:
    """The value, whole numbers made floats where those are asked for, and whether it is of this kind."""
    if kind.endswith(" | None"):
        return (None, True) if value is None else fitting(value, kind.removesuffix(" | None"))
    outer, _, inner = kind.rstrip("]").partition("[")
    if not inner:
        if kind == "float" and type(value) is int and abs(value) < 2**53:
            value = float(value)
        return value, type(value).__name__ == kind
    if type(value).__name__ != outer:
        return value, False
    if outer == "list":
        found = []  # without the pairs: of the longest files they would take gigabytes
        for item in value:
            item, fits = fitting(item, inner)
            if not fits:
                return value, False
            found.append(item)
        return found, True
    items = {k: fitting(v, inner.partition(", ")[2]) for k, v in value.items()}
    return {k: v for k, (v, _) in items.items()}, all(fits for _, fits in items.values())


def same(recorded: Any, value: Any) -> bool:
    """Equal, but for what another machine's last digits may differ by."""
    if isinstance(value, float):
        return math.isclose(recorded, value, rel_tol=_TOLERANCE, abs_tol=0)
    if isinstance(value, dict):
        return recorded.keys() == value.keys() and all(same(recorded[k], v) for k, v in value.items())
    return bool(recorded == value)
