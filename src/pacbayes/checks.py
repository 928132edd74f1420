"""What options may be: each refusal names the option, the value and the choices."""

from __future__ import annotations

from collections.abc import Collection

from pacbayes.errors import InvalidInput


def check_type(name: str, value: object, wanted: type) -> None:
    """Refuse a value of another type; whole numbers are taken for floats."""
    if type(value) is not wanted and not (wanted is float and type(value) is int):
        raise InvalidInput(f"{name} must be of type {wanted.__name__}, and is {value!r}")
    if wanted is float and type(value) is int and abs(value) > 2**53:
        raise InvalidInput(f"{name} is too large")


def check_one_of(what: str, value: object, choices: Collection[str]) -> None:
    """Refuse a value that is none of the choices, and name them."""
    if value not in choices:
        raise InvalidInput(f"unknown {what} {value!r}: choose one of {', '.join(choices)}")


def check_in_range(name: str, value: float, low: float, high: float, *, closed_low: bool = False) -> None:
    """Refuse a number outside (low, high), or [low, high)."""
    if not (low < value < high or (closed_low and value == low)):
        raise InvalidInput(f"{name} must lie in {'[' if closed_low else '('}{low}, {high}), and is {value}")
