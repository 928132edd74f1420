"""The frame of a small plot, all of one size: grid lines with their values, ticks, a legend."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pacbayes.report.svg import element, text

VIEW = "0 0 360 230"
LEFT, RIGHT, TOP, BOTTOM = 62, 344, 34, 188


@dataclass(frozen=True)
class Frame:
    """Values between ``low`` and ``high`` lie between its bottom and its top."""

    low: float
    high: float

    def x(self, share: float) -> float:
        """The place at this share of the way from left to right."""
        return LEFT + (RIGHT - LEFT) * share

    def y(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)
        return BOTTOM - (BOTTOM - TOP) * (inside - self.low) / (self.high - self.low)

    def grid(self, values: Iterable[tuple[float, str]]) -> list[str]:
        """A line at each value, with its words; that at the bottom is the axis."""
        drawn = []
        for value, words in values:
            at = self.y(value)
            drawn.append(element("line", x1=LEFT, x2=RIGHT, y1=at, y2=at, class_="axis" if at == BOTTOM else "grid"))
            drawn.append(text(words, x=LEFT - 8, y=at + 4, text_anchor="end", class_="tick"))
        return drawn

    def below(self, ticks: Iterable[tuple[float, str, str]], name: str) -> list[str]:
        """Words below the axis, each with its place and anchor; and what they are of."""
        drawn = [text(words, x=at, y=BOTTOM + 18, text_anchor=anchor, class_="tick") for at, words, anchor in ticks]
        return [*drawn, text(name, x=self.x(0.5), y=BOTTOM + 36, text_anchor="middle", class_="tick")]


def legend(entries: Iterable[tuple[str, str]]) -> tuple[list[str], int]:
    """A stroke and a word for each (label, look); and where there is room for more."""
    drawn, along = [], LEFT
    for label, look in entries:
        drawn.append(element("line", x1=along, x2=along + 16, y1=12, y2=12, class_=f"curve {look}"))
        drawn.append(text(label, x=along + 22, y=16, class_="tick"))
        along += 40 + 7 * len(label)
    return drawn, along
