"""Rates side by side: a labelled bar for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pacbayes.certificates import Certificate, ClassCertificate, compare_bounds
from pacbayes.certificates.wording import percent
from pacbayes.report.svg import element, picture, round_steps, share, text
from pacbayes.runs import Evaluation

_ROW = 38
_CLASSES = 20


@dataclass(frozen=True)
class Bar:
    """A rate and its name; ``look`` names the colour."""

    label: str
    value: float
    shown: str
    look: str = "compared"


def bars_svg(name: str, title: str, bars: Sequence[Bar]) -> str:
    """Each bar under its label and value, all on one scale from 0; as wide as its surroundings."""
    top = float(round_steps(max(bar.value for bar in bars))[-1])
    drawn = []
    for number, bar in enumerate(bars):
        y = number * _ROW + 14
        strong = "strong" if bar.look != "compared" else ""
        drawn.append(text(bar.label, x=0, y=y, class_=strong))
        drawn.append(text(bar.shown, x="100%", y=y, text_anchor="end", class_=strong))
        drawn.append(element("rect", x="0", y=y + 7, width="100%", height=6, rx=2, class_="band"))
        drawn.append(element("rect", x="0", y=y + 7, width=share(bar.value / top), height=6, rx=2, class_=bar.look))
    description = "; ".join(f"{bar.label}: {bar.shown}" for bar in bars) + "."
    return picture(name, title, description, drawn, width="100%", height=len(bars) * _ROW)


def bounds_bars(certificate: Certificate, evaluation: Evaluation) -> list[Bar]:
    """The certificate, each bound for the same counts where they can be had, and the prior's plain hold-out bound."""
    c = certificate
    bars = [Bar("This certificate", c.risk_bound, _at_most(c.risk_bound), "empirical")]
    if c.predictor == "randomised" and c.profile_kl is not None and c.catoni:
        for name, value in compare_bounds(c).items():
            bars.append(Bar(name[0].upper() + name[1:], value, _at_most(value)))
    if evaluation.holdout_bound is not None:
        bars.append(Bar("Plain hold-out", evaluation.holdout_bound, _at_most(evaluation.holdout_bound), "log"))
    return bars


def class_bars(classes: ClassCertificate, names: Sequence[str]) -> list[Bar]:
    """The certified risk of each class; of many classes the worst."""
    risks = [row[y] for y, row in enumerate(classes.bounds)]
    shown = sorted(sorted(range(len(risks)), key=lambda y: -risks[y])[:_CLASSES])
    return [
        Bar(f"{names[y]} ({classes.m[y]:,} example{'s' * (classes.m[y] != 1)})", risks[y], _at_most(risks[y]))
        for y in shown
    ]


def _at_most(value: float) -> str:
    return f"≤ {percent(value)}"
