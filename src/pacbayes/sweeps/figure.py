"""The bounds of all trials over one axis, as a small picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from pacbayes.report.svg import element, picture, round_steps, text
from pacbayes.sweeps.axes import Axis, Range, ends
from pacbayes.sweeps.study import Trial
from pacbayes.sweeps.trial import COMPLETE

_WIDTH, _HEIGHT = 360, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 344, 18, 180
# Bounds of many times the best say nothing but that they are bad.
_HIGHEST = 4.0


def slice_svg(place: int, name: str, axis: Axis, trials: Sequence[Trial], best: Trial) -> str:
    """A dot for each trial: its value on the axis, and its bound. The best is ringed; stopped ones are grey."""
    assert best.bound is not None
    ended = [trial for trial in trials if trial.bound is not None and name in trial.parameters]
    drawn_trials = [trial for trial in ended if trial.bound is not None and trial.bound <= _HIGHEST * best.bound]
    steps = _scale([trial.bound for trial in drawn_trials if trial.bound is not None])
    low, high = float(steps[0]), float(steps[-1])

    def y(value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * (value - low) / (high - low)

    drawn = []
    for step in steps:
        at = y(float(step))
        drawn.append(element("line", x1=_LEFT, x2=_RIGHT, y1=at, y2=at, class_="grid" if step != steps[0] else "axis"))
        drawn.append(text(f"{float(step * 100):g} %", x=_LEFT - 8, y=at + 4, text_anchor="end", class_="tick"))
    for value in ends(axis):
        label = f"{value:g}" if type(value) in (int, float) else str(value)[:12]
        drawn.append(text(label, x=_place(axis, value), y=_BOTTOM + 18, text_anchor="middle", class_="tick"))
    drawn.append(text(name, x=(_LEFT + _RIGHT) / 2, y=_BOTTOM + 40, text_anchor="middle", class_="tick"))
    for trial in drawn_trials:
        across, up = _place(axis, trial.parameters[name]), y(trial.bound or 0.0)
        look = "empirical" if trial.state == COMPLETE else "compared"
        drawn.append(element("circle", cx=across, cy=up, r=3.5, class_=look))
        if trial.number == best.number:
            drawn.append(element("circle", cx=across, cy=up, r=7.0, class_="curve kl"))
    hidden = len(ended) - len(drawn_trials)
    described = f"The least, {best.bound:.4g}, is that of {name} = {best.parameters[name]}."
    if hidden:
        described += f" {hidden} trials of more than {_HIGHEST:g} times that are not shown."
    return picture(f"slice-{place}", f"Bound over {name}", described, drawn, viewBox=f"0 0 {_WIDTH} {_HEIGHT}")


def _scale(values: Sequence[float]) -> list[Decimal]:
    """Round numbers around the values: dots need no zero.

    >>> [str(value) for value in _scale([0.096, 0.115])]
    ['0.095', '0.100', '0.105', '0.110', '0.115']
    """
    low, high = min(values), max(values)
    step = round_steps(high - low or high)[1]
    first, last = math.floor(low / float(step)), math.ceil(round(high / float(step), 6))
    return [step * place for place in range(first, max(last, first + 1) + 1)]


def _place(axis: Axis, value: Any) -> float:
    if not isinstance(axis, Range):
        share = (axis.index(value) + 0.5) / len(axis)
    elif axis.log:
        share = math.log(value / axis.low) / math.log(axis.high / axis.low)
    else:
        share = (value - axis.low) / (axis.high - axis.low)
    return _LEFT + (_RIGHT - _LEFT) * share
