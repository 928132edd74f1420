"""The bounds of all trials over one axis, as a small picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from pacbayes.report.frame import VIEW, Frame
from pacbayes.report.svg import element, picture, round_steps
from pacbayes.sweeps.axes import Axis, Range, ends
from pacbayes.sweeps.study import Trial
from pacbayes.sweeps.trial import COMPLETE

# Bounds of many times the best say nothing but that they are bad.
_HIGHEST = 4.0


def slice_svg(place: int, name: str, axis: Axis, trials: Sequence[Trial], best: Trial) -> str:
    """A dot for each trial: its value on the axis, and its bound. The best is ringed; stopped ones are grey."""
    assert best.bound is not None
    ended = [trial for trial in trials if trial.bound is not None and name in trial.parameters]
    drawn_trials = [trial for trial in ended if trial.bound is not None and trial.bound <= _HIGHEST * best.bound]
    steps = _scale([trial.bound for trial in drawn_trials if trial.bound is not None])
    frame = Frame(float(steps[0]), float(steps[-1]))
    drawn = frame.grid((float(step), f"{float(step * 100):g} %") for step in steps)
    drawn += frame.below(((frame.x(_share(axis, value)), _label(value), "middle") for value in ends(axis)), name)
    for trial in drawn_trials:
        across, up = frame.x(_share(axis, trial.parameters[name])), frame.y(trial.bound or 0.0)
        look = "empirical" if trial.state == COMPLETE else "compared"
        drawn.append(element("circle", cx=across, cy=up, r=3.5, class_=look))
        if trial.number == best.number:
            drawn.append(element("circle", cx=across, cy=up, r=7.0, class_="curve kl"))
    hidden = len(ended) - len(drawn_trials)
    described = f"The least, {best.bound:.4g}, is that of {name} = {best.parameters[name]}."
    if hidden:
        described += f" {hidden} trials of more than {_HIGHEST:g} times that are not shown."
    return picture(f"slice-{place}", f"Bound over {name}", described, drawn, viewBox=VIEW)


def _scale(values: Sequence[float]) -> list[Decimal]:
    """Round numbers around the values: dots need no zero.

    >>> [str(value) for value in _scale([0.096, 0.115])]
    ['0.095', '0.100', '0.105', '0.110', '0.115']
    """
    low, high = min(values), max(values)
    step = round_steps(high - low or high)[1]
    first, last = math.floor(low / float(step)), math.ceil(round(high / float(step), 6))
    return [step * place for place in range(first, max(last, first + 1) + 1)]


def _label(value: Any) -> str:
    return f"{value:g}" if type(value) in (int, float) else str(value)[:12]


def _share(axis: Axis, value: Any) -> float:
    """How far along the axis a value lies, from 0 to 1."""
    if not isinstance(axis, Range):
        return (axis.index(value) + 0.5) / len(axis)
    if axis.log:
        return math.log(value / axis.low) / math.log(axis.high / axis.low)
    return (value - axis.low) / (axis.high - axis.low)
