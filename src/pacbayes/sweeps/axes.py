"""The axes of a sweep: an option of a run's configuration, and the values that it may take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pacbayes.errors import InvalidInput
from pacbayes.runs import Config
from pacbayes.runs.config import TABLES
from pacbayes.training import Settings


@dataclass(frozen=True)
class Range:
    """All numbers from ``low`` to ``high``, evenly in the logarithm if ``log``; the whole ones alone if ``whole``."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __str__(self) -> str:
        return f"{self.low} to {self.high}{', log' if self.log else ''}"


Axis = tuple[Any, ...] | Range


def read_axes(table: Any) -> dict[str, Axis]:
    """The axes of a TOML table; an option of a stage may be written ``"posterior.rate"`` or in a table of its own."""
    if not isinstance(table, Mapping) or not table:
        raise InvalidInput('a sweep needs a table [axes], such as "posterior.rate" = [0.001, 0.002]')
    flat: dict[str, Any] = {}
    for name, value in table.items():
        inner = value if name in TABLES and isinstance(value, Mapping) else None
        for full, item in ((f"{name}.{key}", v) for key, v in inner.items()) if inner is not None else ((name, value),):
            if full in flat:
                raise InvalidInput(f"the axis {full!r} is given twice")
            flat[full] = item
    return {name: _axis(name, value) for name, value in flat.items()}


def ends(axis: Axis) -> tuple[Any, ...]:
    """The values of a list, or the two ends of a range."""
    return (axis.low, axis.high) if isinstance(axis, Range) else axis


def _axis(name: str, value: Any) -> Axis:
    if isinstance(value, list):
        if not value or any(type(item) not in (bool, int, float, str) for item in value):
            raise InvalidInput(f"the axis {name!r} must list numbers, words, or true and false, and is {value!r}")
        if any(item in value[:place] for place, item in enumerate(value)):
            raise InvalidInput(f"the axis {name!r} lists a value twice: {value!r}")
        return tuple(value)
    if not isinstance(value, Mapping) or not {"low", "high"} <= value.keys() <= {"low", "high", "log"}:
        raise InvalidInput(
            f"the axis {name!r} must be a list of values, or a range such as {{ low = 0.001, high = 0.1, log = true }}"
            f", and is {value!r}"
        )
    low, high, log = value["low"], value["high"], value.get("log", False)
    if any(type(end) not in (int, float) or not math.isfinite(end) for end in (low, high)) or type(log) is not bool:
        raise InvalidInput(f"the range of {name!r} needs two numbers, and log = true or false, and is {value!r}")
    if not low < high or (log and low <= 0):
        raise InvalidInput(f"the range of {name!r} must go upwards, and from above 0 if log, and is {value!r}")
    return Range(low, high, log, _takes_whole_numbers(name))


def _takes_whole_numbers(name: str) -> bool:
    stage, _, option = name.rpartition(".")
    return type(getattr(Settings() if stage else Config(), option, None)) is int
