"""Figures 1, SM1 and SM2 for a page: the estimates of the risk, the bound, and its tangent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pacbayes.bounds.binary_kl import kl_inverse
from pacbayes.report.svg import element, picture, round_steps, text

_WIDTH, _HEIGHT = 360, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 344, 34, 188


def affine_svgs(found: dict[str, Any]) -> list[tuple[str, str]]:
    """(caption, picture): the bound and its tangent as a whole, and where the estimates of the risk lie."""
    bars = found["histogram"]
    reach = min(1.0, max(10 * found["mean"], 0.1))
    near = bars["low"], max(bars["high"], bars["low"] + 1e-9)
    return [
        ("The bound as a function of the risk", _panel("affine-whole", found, (0.0, reach), near)),
        ("The same, where the estimates lie", _panel("affine-near", found, near)),
    ]


def _panel(
    name: str, found: dict[str, Any], ends: tuple[float, float], marked: tuple[float, float] | None = None
) -> str:
    """The curve between these risks; without a marked stretch, the histogram of the estimates below it."""
    (low, high), mean, pen = ends, found["mean"], found["penalty"]
    risks = np.linspace(low, high, 60)
    curve = [kl_inverse(float(q), pen) for q in risks]
    steps = round_steps(max(curve))
    bottom, top = (0.0, float(steps[-1])) if marked else (min(curve), max(curve[-1], min(curve) + 1e-9))

    def x(risk: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (risk - low) / (high - low)

    def y(bound: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * (min(max(bound, bottom), top) - bottom) / (top - bottom)

    drawn = _axes([float(step) for step in steps] if marked else [bottom, top], [low, high], x, y)
    if marked:
        start, end = x(marked[0]), min(x(marked[1]), _RIGHT)
        drawn.append(
            element("rect", x=start, y=_TOP, width=max(end - start, 1.5), height=_BOTTOM - _TOP, class_="band")
        )
    else:
        counts = found["histogram"]["counts"]
        wide = (_RIGHT - _LEFT) / len(counts)
        for place, count in enumerate(counts):
            tall = 0.4 * (_BOTTOM - _TOP) * count / max(counts)
            drawn.append(
                element("rect", x=_LEFT + place * wide, y=_BOTTOM - tall, width=wide, height=tall, class_="band")
            )
    # The tangent is drawn as far as it stays in the picture.
    tangent = [(q, found["bound"] + found["slope"] * (q - mean)) for q in risks]
    for look, points in (("empirical", zip(risks, curve, strict=True)), ("kl dashed", tangent)):
        places = " ".join(f"{x(float(q)):.1f},{y(b):.1f}" for q, b in points if bottom <= b <= top)
        drawn.append(element("polyline", points=places, class_=f"curve {look}"))
    drawn.append(element("circle", cx=x(mean), cy=y(found["bound"]), r=3.5, class_="empirical"))
    along = _LEFT
    for label, look in (("bound", "empirical"), ("tangent", "kl dashed")):
        drawn.append(element("line", x1=along, x2=along + 16, y1=12, y2=12, class_=f"curve {look}"))
        drawn.append(text(label, x=along + 22, y=16, class_="tick"))
        along += 80
    drawn.append(element("rect", x=along, y=6, width=14, height=12, class_="band"))
    drawn.append(text("estimates", x=along + 20, y=16, class_="tick"))
    description = (
        f"{found['realisations']} estimates of the risk with mean {100 * mean:.3g} % and standard deviation "
        f"{100 * found['sd']:.3g} %; over two deviations to each side the slope of the bound varies by "
        f"{100 * found['slope_variation']:.2g} %."
    )
    return picture(name, "The bound and its tangent", description, drawn, viewBox=f"0 0 {_WIDTH} {_HEIGHT}")


def _axes(
    bounds: list[float], risks: list[float], x: Callable[[float], float], y: Callable[[float], float]
) -> list[str]:
    drawn = []
    for bound in bounds:
        at = y(bound)
        drawn.append(element("line", x1=_LEFT, x2=_RIGHT, y1=at, y2=at, class_="axis" if at == _BOTTOM else "grid"))
        drawn.append(text(f"{100 * bound:.3g} %", x=_LEFT - 8, y=at + 4, text_anchor="end", class_="tick"))
    for risk, anchor in zip(risks, ("start", "end"), strict=True):
        drawn.append(text(f"{100 * risk:.3g} %", x=x(risk), y=_BOTTOM + 18, text_anchor=anchor, class_="tick"))
    drawn.append(text("risk", x=(_LEFT + _RIGHT) / 2, y=_BOTTOM + 36, text_anchor="middle", class_="tick"))
    return drawn
