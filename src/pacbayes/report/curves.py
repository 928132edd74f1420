"""Training curves as small pictures, all of one size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from pacbayes.report.frame import BOTTOM, TOP, VIEW, Frame, legend
from pacbayes.report.svg import element, picture, round_steps, text


@dataclass(frozen=True)
class Curve:
    """One value an epoch; ``look`` names its colour."""

    label: str
    look: str
    values: Sequence[float]


def curves_svg(name: str, title: str, curves: Sequence[Curve], *, kept: int | None = None, rate: bool = True) -> str:
    """Curves over the epochs, counted from 1, on an axis that starts at 0; ``kept``, counted from 0, is marked.

    ``rate`` says that the values are rates, to be shown in percent.
    """
    epochs = len(curves[0].values)
    steps = round_steps(max(max(curve.values) for curve in curves))
    frame = Frame(0.0, float(steps[-1]))

    def x(epoch: int) -> float:
        return frame.x(epoch / (epochs - 1) if epochs > 1 else 0.5)

    drawn = frame.grid((float(step), _shown(step, rate)) for step in steps)
    drawn += frame.below(((x(epoch - 1), str(epoch), "middle") for epoch in epoch_ticks(epochs)), "epoch")
    if kept is not None:
        drawn.append(element("line", x1=x(kept), x2=x(kept), y1=TOP, y2=BOTTOM, class_="kept"))
    for curve in curves:
        points = " ".join(f"{x(epoch):.1f},{frame.y(value):.1f}" for epoch, value in enumerate(curve.values))
        drawn.append(element("polyline", points=points, class_=f"curve {curve.look}"))
        dot = epochs - 1 if kept is None else kept
        drawn.append(element("circle", cx=x(dot), cy=frame.y(curve.values[dot]), r=3.5, class_=curve.look))

    named, along = legend((curve.label, curve.look) for curve in curves)
    drawn += named
    if kept is not None:
        drawn.append(element("line", x1=along + 8, x2=along + 8, y1=5, y2=19, class_="kept"))
        drawn.append(text(f"epoch {kept + 1}, kept", x=along + 16, y=16, class_="tick"))

    ends = "; ".join(
        f"{curve.label}: {_value(curve.values[0], rate)} after the first epoch, {_value(curve.values[-1], rate)} "
        f"after the last" + ("" if kept is None else f", {_value(curve.values[kept], rate)} at the kept one")
        for curve in curves
    )
    return picture(name, title, f"{epochs} epochs. {ends}.", drawn, viewBox=VIEW)


def epoch_ticks(epochs: int) -> list[int]:
    """The first epoch and some round ones.

    >>> epoch_ticks(20)
    [1, 5, 10, 15, 20]
    """
    step = 1
    while epochs > 5 * step:
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return sorted({1, *range(step, epochs + 1, step)})


def _shown(step: Decimal, rate: bool) -> str:
    return f"{float(step * 100):g} %" if rate else f"{float(step):g}"


def _value(value: float, rate: bool) -> str:
    return f"{100 * value:.3g} %" if rate else f"{value:.3g}"
