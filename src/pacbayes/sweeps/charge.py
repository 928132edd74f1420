"""What a sweep must pay for, counted before its first trial.

The PAC-Bayes bound holds for all posteriors at once, but for one prior that was fixed without the bound data. So what
shapes the posterior alone may be chosen by the bound, free of charge. What shapes the prior or the split may be chosen
from a *finite set that is fixed in advance*: with K members, and delta/K for each, the bounds of all of them hold at
once with probability 1 - delta, whichever is tried, in whatever order, and for whatever reason. A range has no such K.
To count its trials instead would be wrong where a later prior was proposed because of the bounds of earlier ones: it
depends on the bound data, and no bound holds for it at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pacbayes.errors import InvalidInput
from pacbayes.sweeps.axes import Axis, Range

_REFUSED = {
    "data": "bounds for different data cannot be compared: sweep over one of them, in [base]",
    "data_folder": "it says where the data are, not what they are: give it in [base]",
    "device": "it is one for the whole sweep: give it in [base] or by --device",
    "priors": "the sweep counts them itself",
    "posterior.delta": "it is the delta of [certify], shared among the priors",
    "posterior.averaged": "averaged weights are for priors",
}


@dataclass(frozen=True)
class Charge:
    """The price of a sweep's choices."""

    priors: int
    """How many prior-side settings the axes can make: each has this share of delta."""
    charged: dict[str, int]
    """The axes that shape the prior, the split or its scale, and the number of their values."""
    free: tuple[str, ...]
    """The axes that shape the posterior alone."""
    delta: float
    mc_delta: float

    @property
    def each(self) -> float:
        """The delta of each prior."""
        return self.delta / self.priors

    def __str__(self) -> str:
        free = f"Free, for they shape the posterior alone: {', '.join(self.free)}." if self.free else ""
        if self.charged:
            counts = " x ".join(f"{name} ({count})" for name, count in self.charged.items())
            paid = (
                f"Charged: {self.priors} priors or splits, by {counts}; each has delta = {self.delta:g}/{self.priors} "
                f"= {self.each:.3g}, at a price of {math.log(self.priors):.2f} nats."
            )
        else:
            paid = "Nothing is charged: there is one prior and one split."
        spent = f", at mc_delta = {self.mc_delta:g}" if self.mc_delta else ""
        once = f"One model is certified{spent}: it was chosen before the draws that certify it."
        return " ".join(words for words in (paid, free, once) if words)


def posterior_side(name: str) -> bool:
    """Whether an option shapes nothing but the posterior."""
    return name.startswith("posterior.") and name not in _REFUSED


def count(axes: Mapping[str, Axis], delta: float, mc_delta: float) -> Charge:
    """The charge for these axes; refused are those that cannot be paid for."""
    for name, axis in axes.items():
        if name in _REFUSED:
            raise InvalidInput(f"{name} cannot be an axis: {_REFUSED[name]}")
        if isinstance(axis, Range) and not posterior_side(name):
            raise InvalidInput(
                f"{name} shapes the prior or the split, and a range of it cannot be paid for: a prior that is proposed "
                f"because of the bounds of others depends on the bound data. List the values to choose from instead, "
                f"such as {name} = [{axis.low}, {axis.high}]; their number is charged"
            )
    charged = {
        name: len(axis) for name, axis in axes.items() if not isinstance(axis, Range) and not posterior_side(name)
    }
    free = tuple(name for name in axes if posterior_side(name))
    return Charge(math.prod(charged.values()), charged, free, delta, mc_delta)
