"""Draws the pictures of "What a certificate is": python docs/pictures.py."""

from __future__ import annotations

import math
from pathlib import Path

from pacbayes import Certificate
from pacbayes.bounds import kl_inverse, penalty
from pacbayes.report import write_picture
from pacbayes.report.svg import LIGHT, element, picture, style, text

FOLDER = Path(__file__).parent / "pictures"
RISK, DELTA = 0.03, 0.025
DIVERGENCES = {2.0: "empirical", 20.0: "log", 200.0: "kl"}


def walk() -> str:
    """From the training data to the certificate."""
    boxes = {
        "training data": (20, 90, 130), "prior data": (210, 30, 130), "bound data": (210, 150, 130),
        "prior P": (400, 30, 110), "posterior Q": (400, 150, 110), "certificate": (570, 150, 130),
    }  # fmt: skip
    arrows = [
        ("training data", "prior data"), ("training data", "bound data"), ("prior data", "prior P"),
        ("bound data", "posterior Q"), ("posterior Q", "certificate"),
    ]  # fmt: skip
    drawn = []
    for start, end in arrows:
        (x1, y1, wide), (x2, y2, _) = boxes[start], boxes[end]
        drawn.append(
            element("line", x1=x1 + wide, y1=y1 + 22, x2=x2 - 7, y2=y2 + 22, class_="axis", marker_end="url(#tip)")
        )
    x, y, wide = boxes["prior P"]
    drawn.append(
        element("line", x1=x + wide / 2, y1=y + 44, x2=x + wide / 2, y2=143, class_="axis", marker_end="url(#tip)")
    )
    drawn.append(text("fixed first", x=x + wide / 2 + 10, y=105, class_="tick"))
    drawn.append(element("path", d="M 275 194 V 222 H 635 V 201", fill="none", class_="axis", marker_end="url(#tip)"))
    drawn.append(text("errors are counted on these m examples", x=300, y=238, class_="tick"))
    for name, (x, y, wide) in boxes.items():
        look = {"prior data": "monte-carlo", "prior P": "monte-carlo", "training data": "band"}.get(name, "empirical")
        drawn.append(
            element(
                "rect",
                x=x,
                y=y,
                width=wide,
                height=44,
                rx=6,
                fill=LIGHT["page"],
                stroke=LIGHT.get(look, LIGHT["soft"]),
                stroke_width=2,
            )
        )
        drawn.append(text(name, x=x + wide / 2, y=y + 27, text_anchor="middle"))
    tip = element("path", d="M 0 0 L 8 4 L 0 8 z", fill=LIGHT["soft"])
    marker = element(
        "defs", element("marker", tip, id="tip", markerWidth=8, markerHeight=8, refX=7, refY=4, orient="auto")
    )
    words = "Prior data make the prior, which is fixed first; bound data make the posterior and the certificate."
    return _sheet("walk", "From the data to the certificate", words, [marker, *drawn], 720, 250)


def examples() -> str:
    """The bound B1 over the number of bound examples, from 100 to a million."""
    left, right, top, bottom = 70, 600, 20, 260
    highest = 0.30

    def x(m: float) -> float:
        return left + (right - left) * (math.log10(m) - 2) / 4

    def y(value: float) -> float:
        return bottom - (bottom - top) * min(value, highest) / highest

    drawn = []
    for step in range(0, 31, 10):
        at = y(step / 100)
        drawn.append(element("line", x1=left, x2=right, y1=at, y2=at, class_="grid" if step else "axis"))
        drawn.append(text(f"{step} %", x=left - 8, y=at + 4, text_anchor="end", class_="tick"))
    for power in range(2, 7):
        drawn.append(text(f"{10**power:,}", x=x(10**power), y=bottom + 20, text_anchor="middle", class_="tick"))
    drawn.append(
        text("examples of the bound data", x=(left + right) / 2, y=bottom + 42, text_anchor="middle", class_="tick")
    )
    drawn.append(element("line", x1=left, x2=right, y1=y(RISK), y2=y(RISK), class_="kept"))
    drawn.append(text("empirical risk", x=right + 8, y=y(RISK) + 4, class_="tick"))
    sizes = [10 ** (2 + step / 20) for step in range(81)]
    for place, (divergence, look) in enumerate(DIVERGENCES.items()):
        curve = [(m, kl_inverse(RISK, penalty(divergence, int(m), DELTA))) for m in sizes]
        points = " ".join(f"{x(m):.1f},{y(value):.1f}" for m, value in curve if value <= highest)
        drawn.append(element("polyline", points=points, class_=f"curve {look}"))
        drawn.append(
            element(
                "line", x1=right - 80, x2=right - 60, y1=34 + 22 * place, y2=34 + 22 * place, class_=f"curve {look}"
            )
        )
        drawn.append(text(f"KL {divergence:g} nats", x=right - 54, y=38 + 22 * place, class_="tick"))
    words = "The bound falls towards the empirical risk, later for larger KL."
    return _sheet("examples", "Bound and number of examples", words, drawn, 720, 310)


def _sheet(name: str, title: str, words: str, drawn: list[str], width: int, height: int) -> str:
    background = element("rect", width="100%", height="100%", fill=LIGHT["page"])
    parts = [element("style", style(LIGHT)), background, *drawn]
    return picture(name, title, words, parts, width=width, height=height, viewBox=f"0 0 {width} {height}") + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for draw in (walk, examples):
        (FOLDER / f"{draw.__name__}.svg").write_text(draw(), "utf-8")
    # Of `make demo`.
    write_picture(Certificate.load(FOLDER.parent / "certificate.json"), FOLDER.parent / "certificate.svg")
