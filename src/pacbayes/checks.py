"""What options may be: each refusal names the option, the value and the choices."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from dataclasses import fields
from typing import Any

import numpy as np

from pacbayes.errors import InvalidInput

# A tuple, which torch.compile can follow: penalties are checked in compiled steps.
_NUMPY = (np.integer, np.floating)


def plain(number: Any) -> Any:
    """Numbers of NumPy's as Python's own; anything else as it is."""
    return number.item() if isinstance(number, _NUMPY) else number


def check_type(name: str, value: object, wanted: type) -> None:
    """Refuse a value of another type; whole numbers are taken for floats."""
    if type(value) is not wanted and not (wanted is float and type(value) is int):
        raise InvalidInput(f"{name} must be of type {wanted.__name__}, and is {value!r}")
    if wanted is float and type(value) is int and abs(value) > 2**53:
        raise InvalidInput(f"{name} is too large")


def check_kind(name: str, value: object, kind: Any, wanted: str) -> None:
    """Refuse what is no instance of these classes; ``wanted`` says in words what it has to be."""
    if not isinstance(value, kind):
        raise InvalidInput(f"{name} must be {wanted}, and is a {type(value).__name__}")


def check_number(name: str, value: object) -> None:
    """Refuse what is no real number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, *_NUMPY)):
        raise InvalidInput(f"{name} must be a number, and is {value!r}")


def check_count(name: str, value: object) -> None:
    """Refuse what is no whole number of at least 1."""
    if type(value) is not int or value < 1:
        raise InvalidInput(f"{name} must be a whole number of at least 1, and is {value!r}")


def check_types(options: Any, left_out: Collection[str] = ()) -> None:
    """Refuse fields of a dataclass that are not of their default's type; NumPy's numbers become Python's own."""
    for item in fields(options):
        if item.name not in left_out:
            value = plain(getattr(options, item.name))
            check_type(item.name, value, type(item.default))
            object.__setattr__(options, item.name, value)  # it may be frozen


def check_names(options: Iterable[str], of: type) -> None:
    """Refuse options that are no fields of the dataclass, and name those that are."""
    for name in options:
        check_one_of("option", name, [item.name for item in fields(of)])


def check_one_of(what: str, value: object, choices: Collection[str]) -> None:
    """Refuse a value that is none of the choices, and name them."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidInput(
            f"unknown {what} {value!r}: choose one of {', '.join(choices)}{did_you_mean(value, choices)}"
        )


def did_you_mean(value: object, choices: Iterable[str]) -> str:
    """The choice that is like the value, if there is one."""
    like = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(str(value).lower(), like, 1)
    return f"; did you mean {like[close[0]]!r}?" if close else ""


def check_in_range(name: str, value: float, low: float, high: float, *, closed_low: bool = False) -> None:
    """Refuse a number outside (low, high), or [low, high)."""
    if not (low < value < high or (closed_low and value == low)):
        raise InvalidInput(f"{name} must lie in {'[' if closed_low else '('}{low}, {high}), and is {value}")
