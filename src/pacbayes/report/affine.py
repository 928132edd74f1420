"""Figures 1, SM1 and SM2 for a page: the estimates of the risk, the bound, and its tangent."""

from __future__ import annotations

from typing import Any

import numpy as np

from pacbayes.bounds.binary_kl import kl_inverse
from pacbayes.report.frame import BOTTOM, LEFT, RIGHT, TOP, VIEW, Frame, legend
from pacbayes.report.svg import element, picture, round_steps, text


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

    frame = Frame(bottom, top)

    def x(risk: float) -> float:
        return frame.x((risk - low) / (high - low))

    lines = [float(step) for step in steps] if marked else [bottom, top]
    drawn = frame.grid((bound, f"{100 * bound:.3g} %") for bound in lines)
    drawn += frame.below(((x(q), f"{100 * q:.3g} %", side) for q, side in ((low, "start"), (high, "end"))), "risk")
    if marked:
        start, end = x(marked[0]), min(x(marked[1]), RIGHT)
        drawn.append(element("rect", x=start, y=TOP, width=max(end - start, 1.5), height=BOTTOM - TOP, class_="band"))
    else:
        counts = found["histogram"]["counts"]
        wide = (RIGHT - LEFT) / len(counts)
        for place, count in enumerate(counts):
            tall = 0.4 * (BOTTOM - TOP) * count / max(counts)
            drawn.append(
                element("rect", x=LEFT + place * wide, y=BOTTOM - tall, width=wide, height=tall, class_="band")
            )
    # The tangent is drawn as far as it stays in the picture.
    tangent = [(q, found["bound"] + found["slope"] * (q - mean)) for q in risks]
    for look, points in (("empirical", zip(risks, curve, strict=True)), ("kl dashed", tangent)):
        places = " ".join(f"{x(float(q)):.1f},{frame.y(b):.1f}" for q, b in points if bottom <= b <= top)
        drawn.append(element("polyline", points=places, class_=f"curve {look}"))
    drawn.append(element("circle", cx=x(mean), cy=frame.y(found["bound"]), r=3.5, class_="empirical"))
    named, along = legend((("bound", "empirical"), ("tangent", "kl dashed")))
    drawn += named
    drawn.append(element("rect", x=along, y=6, width=14, height=12, class_="band"))
    drawn.append(text("estimates", x=along + 20, y=16, class_="tick"))
    description = (
        f"{found['realisations']} estimates of the risk with mean {100 * mean:.3g} % and standard deviation "
        f"{100 * found['sd']:.3g} %; over two deviations to each side the slope of the bound varies by "
        f"{100 * found['slope_variation']:.2g} %."
    )
    return picture(name, "The bound and its tangent", description, drawn, viewBox=VIEW)
