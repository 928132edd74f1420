"""What all pictures share: SVG elements, colours, and round numbers for the axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from html import escape

LIGHT = {
    "page": "#ffffff",
    "ink": "#1c2126",
    "soft": "#58626c",
    "line": "#d5dade",
    "empirical": "#1d5c96",
    "monte-carlo": "#6aa6d6",
    "log": "#cf8a1b",
    "kl": "#b4472a",
    "compared": "#7a848e",
}
DARK = {
    "page": "#15181b",
    "ink": "#e9ebed",
    "soft": "#a7b0b8",
    "line": "#383f46",
    "empirical": "#4f9be0",
    "monte-carlo": "#b3d6f3",
    "log": "#efbf5b",
    "kl": "#e67f5c",
    "compared": "#8d979f",
}
BY_VARIABLE = {name: f"var(--{name})" for name in LIGHT}
"""The colours of the page around a picture, light or dark."""

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif'


def style(colours: Mapping[str, str]) -> str:
    """The style sheet of the pictures, in these colours."""
    ink, soft, line = colours["ink"], colours["soft"], colours["line"]
    rules = [
        f".figure text{{fill:{ink};font:14px {FONT};font-variant-numeric:tabular-nums}}",
        ".figure .strong{font-weight:650}",
        f".figure .tick{{fill:{soft};font-size:12px}}",
        f".figure .grid{{stroke:{line};stroke-width:1}}",
        f".figure .axis{{stroke:{soft};stroke-width:1}}",
        f".figure .whisker{{stroke:{ink};stroke-width:1.5}}",
        f".figure .kept{{stroke:{soft};stroke-width:1.5;stroke-dasharray:2 3}}",
        f".figure .band{{fill:{line}}}",
        ".figure .curve{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}",
        ".figure .dashed{stroke-dasharray:5 4}",
    ]
    for name in ("empirical", "monte-carlo", "log", "kl", "compared"):
        rules.append(f".figure .{name}{{fill:{colours[name]}}}")
        rules.append(f".figure .curve.{name}{{fill:none;stroke:{colours[name]}}}")
    return "\n".join(rules)


def element(tag: str, content: str = "", **attributes: object) -> str:
    """An element with this markup inside. ``text_anchor`` is written ``text-anchor``, ``class_`` ``class``."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_plain(value))}"' for name, value in attributes.items()
    )
    return f"<{tag}{written}>{content}</{tag}>" if content else f"<{tag}{written}/>"


def text(words: str, **attributes: object) -> str:
    return element("text", escape(words), **attributes)


def picture(name: str, title: str, description: str, parts: Iterable[str], **attributes: object) -> str:
    """The whole picture, with its title and description for those who do not see it; ``name`` is unique on a page."""
    head = element("title", escape(title), id=f"{name}-title") + element(
        "desc", escape(description), id=f"{name}-description"
    )
    labels = f"{name}-title {name}-description"
    return element(
        "svg", "\n".join([head, *parts]), xmlns="http://www.w3.org/2000/svg", class_="figure", role="img",
        aria_labelledby=labels, **attributes,
    )  # fmt: skip


def share(value: float) -> str:
    """A place along the width of the picture: 0.5 is "50%"."""
    return f"{_plain(100 * value)}%"


def round_steps(top: float) -> list[Decimal]:
    """Round numbers in equal steps, about four, from 0 to the first that is not below ``top``.

    >>> [str(value) for value in round_steps(0.065)]
    ['0.00', '0.02', '0.04', '0.06', '0.08']
    """
    top = top if top > 0 else 1.0
    unit = Decimal(10) ** math.floor(math.log10(max(top / 4, 1e-300)))
    exact = Decimal(str(float(top)))
    # The last is for a logarithm that came out a digit too low.
    choices = (unit * Decimal(factor) for factor in ("1", "2", "2.5", "5", "10", "20"))
    step = next(choice for choice in choices if choice * 4 >= exact)
    return [step * i for i in range(math.ceil(exact / step) + 1)]


def _plain(value: object) -> str:
    """Numbers with three decimals at most: a thousandth of a pixel."""
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
