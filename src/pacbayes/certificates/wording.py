"""Numbers of a certificate in words: rounded to the safe side, bounds up and probabilities down."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, Decimal


def class_titles(names: Iterable[str]) -> list[str]:
    """Names of classes where nothing else says what they are: a number by itself does not."""
    return [f"class {name}" if name.isdigit() else name for name in names]


def rounded_up(value: float, digits: int) -> str:
    """A bound with so many digits, never below it."""
    return f"{Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_CEILING):f}"


def percent(value: float) -> str:
    """A rate in percent with two digits, or four below one percent, never rounded down."""
    number = Decimal(value).scaleb(2)
    digits = 2 if number >= 1 else 4
    return f"{number.quantize(Decimal(1).scaleb(-digits), ROUND_CEILING)} %"


def confidence_percent(confidence: float) -> str:
    """A probability in percent with two digits, never rounded up."""
    # The sum of the deltas may have been rounded up; but nothing short of certainty is 100 %.
    hundredths = min(math.floor(confidence * 1e4 + 1e-6), 10_000 if confidence == 1 else 9_999)
    return f"{(Decimal(hundredths) / 100).normalize():f} %"


def rounded_down(confidence: float) -> float:
    """A probability, rounded down to six digits, but for what float64 itself takes away."""
    return math.floor(confidence * 1e6 + 1e-6) / 1e6


def last_of(issued: int) -> str:
    """What to say of a certificate that was not the first for its run."""
    return f"the last of {issued} certificates for this run: none of them holds if it was chosen by its result"


def table(rows: list[tuple[str, str, str]]) -> str:
    """Lines of a name, a value and a remark."""
    return "\n".join(f"  {name:<18} {value:>10}   {remark}" for name, value, remark in rows)
