"""How the certified risk is made up, in numbers and as a picture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

from pacbayes.certificates import Certificate
from pacbayes.certificates.wording import percent
from pacbayes.errors import RunError
from pacbayes.files import write_atomically
from pacbayes.report.svg import LIGHT, element, picture, round_steps, share, style, text
from pacbayes.runs import Evaluation

_WIDTH, _MARGIN = 720, 28
_NOT_MEASURED = "not measured"
_DIVERGENCES = ("kl", "profile_kl", "log_ratio", "profile_log_ratio")


@dataclass(frozen=True)
class Part:
    """One summand of the certified risk."""

    name: str
    label: str
    value: float
    percent: str
    """The value as it is shown. Shown values are rounded so that they add up to the bound as it is shown."""


def decomposition(certificate: Certificate) -> tuple[Part, ...]:
    """The parts of ``risk_bound``, which add up to it:

    - the empirical risk;
    - the Monte-Carlo slack, ``empirical_risk_bound - empirical_risk``, where there were draws;
    - the gap that the log term alone adds, ``kl_inverse(empirical_risk_bound, log(2 sqrt(m)/delta)/m)`` less the
      above, or what other bounds have in its place, the factor of a majority vote included;
    - the gap that the KL adds to this: the rest.

    The order matters: the bound is not linear, and the KL is counted last. A certificate whose own numbers do not
    follow from its counts is refused.
    """
    c = certificate
    if faults := c.check():
        raise RunError(f"the certificate does not hold, and is not reported: {faults[0]}")
    # What a record does not hold stays away; what it holds is 0.
    divergences: dict[str, Any] = {name: 0.0 for name in _DIVERGENCES if getattr(c, name) is not None}
    found = replace(c.evidence(), **divergences).derived()
    # By the same formula: without the KL another one might be the least.
    without_kl = found["parts"].get(c.part, found["risk_bound"])
    sampled = {("monte-carlo", "Monte-Carlo slack"): c.empirical_risk_bound} if c.limit != "none" else {}
    estimates = {("empirical", "Empirical risk"): c.empirical_risk, **sampled}
    divergence = f"KL(Q‖P), {nats(c.kl)}" if c.log_ratio is None else f"log dQ/dP, {nats(c.log_ratio)}"
    # The inverse is exact to 1e-12, so that two equal levels may come in the wrong order.
    bounds = {("log", _log_term(c)): min(without_kl, c.risk_bound), ("kl", divergence): c.risk_bound}
    names, levels = [*estimates, *bounds], [0.0, *estimates.values(), *bounds.values()]
    digits = 2 if c.risk_bound >= 0.01 else 4
    shown = [_in_percent(level, digits, ROUND_HALF_EVEN) for level in (0.0, *estimates.values())]
    shown += [_in_percent(level, digits, ROUND_CEILING) for level in bounds.values()]
    return tuple(
        Part(name, label, max(high - low, 0.0), _part_in_percent(high - low, above - below, digits))
        for (name, label), (low, high), (below, above) in zip(names, pairwise(levels), pairwise(shown), strict=True)
    )


def _log_term(certificate: Certificate) -> str:
    if certificate.predictor == "majority":
        return "Log term and factor of the vote"
    return "Log term, log(2√m/δ)" if (certificate.bound, certificate.priors) == ("invKL", 1) else "Log term"


def decomposition_svg(
    certificate: Certificate, evaluation: Evaluation | None = None, *, standalone: bool = False
) -> str:
    """The parts as a stacked bar and as a sum; with an evaluation, the test error and the hold-out bound beside it.

    For a page the picture is as wide as its surroundings and takes their colours, see
    :func:`pacbayes.report.svg.style`; a standalone one has its own size, colours and white background.
    """
    parts = decomposition(certificate)
    drawn, height = _drawing(certificate, parts, evaluation)
    title = f"Certified risk: at most {percent(certificate.risk_bound)}"
    description = "It is the sum of " + ", ".join(f"{part.label}: {part.percent}" for part in parts) + "."
    if evaluation is not None:
        description += "".join(f" {label}: {value}." for label, value in comparisons(evaluation))
    if not standalone:
        return picture("decomposition", title, description, drawn, width="100%", height=height)
    whole = height + 2 * _MARGIN
    inner = element("svg", "\n".join(drawn), x=_MARGIN, y=_MARGIN, width=_WIDTH - 2 * _MARGIN, height=height)
    background = element("rect", width="100%", height="100%", fill=LIGHT["page"])
    sheet = element("style", style(LIGHT))
    size = {"width": _WIDTH, "height": whole, "viewBox": f"0 0 {_WIDTH} {whole}"}
    return picture("decomposition", title, description, [sheet, background, inner], **size)


def write_picture(certificate: Certificate, path: str | Path) -> None:
    """Write the standalone picture, an SVG file."""
    write_atomically(Path(path), (decomposition_svg(certificate, standalone=True) + "\n").encode())


def comparisons(evaluation: Evaluation) -> list[tuple[str, str]]:
    """(name, value) of what is set beside the bound."""
    error, deviation, holdout = evaluation.test_error, evaluation.test_error_sd, evaluation.holdout_bound
    measured = _NOT_MEASURED
    if error is not None:
        digits = 2 if error >= 0.01 else 4
        spread = "" if deviation is None else f" ± {_in_percent(deviation, digits, ROUND_HALF_EVEN)}"
        measured = f"{_in_percent(error, digits, ROUND_HALF_EVEN)}{spread} %"
    return [
        ("Test error", measured),
        ("Plain hold-out bound", _NOT_MEASURED if holdout is None else f"≤ {percent(holdout)}"),
    ]


def nats(value: float) -> str:
    return f"{value:,.2f} nats" if value < 1e7 else f"{value:.3g} nats"


def _drawing(certificate: Certificate, parts: tuple[Part, ...], evaluation: Evaluation | None) -> tuple[list[str], int]:
    """The elements, and the height they take. Places along the width are shares of it, so that text keeps its size."""
    values = [certificate.risk_bound]
    if evaluation is not None:
        error = (evaluation.test_error or 0.0) + (evaluation.test_error_sd or 0.0)
        values += [min(error, 1.0), evaluation.holdout_bound or 0.0]
    steps = round_steps(max(values))
    top = float(steps[-1])

    bars = _heading("Certified risk", f"≤ {percent(certificate.risk_bound)}", 14, strong=True)
    level, y = 0.0, 24
    for part in parts:
        bars.append(_bar(part.name, level / top, part.value / top, y, 34))
        level += part.value
    y += 34
    if evaluation is not None:
        for (label, shown), value, deviation in zip(
            comparisons(evaluation),
            (evaluation.test_error, evaluation.holdout_bound),
            (evaluation.test_error_sd, None),
            strict=True,
        ):
            bars += _heading(label, shown, y + 28)
            if value is not None:
                bars.append(_bar("compared", 0.0, value / top, y + 37, 12))
            if value is not None and deviation:
                bars += _whisker((value - deviation) / top, (value + deviation) / top, y + 43)
            y += 49 if value is not None else 36
    y += 12
    axis = [element("line", x1="0", x2="100%", y1=y, y2=y, class_="axis")]
    for step in steps:
        place = step / steps[-1]
        x = share(float(place))
        axis.append(element("line", x1=x, x2=x, y1=y, y2=y + 5, class_="axis"))
        anchor = "start" if place == 0 else "end" if place == 1 else "middle"
        axis.append(text(f"{(step * 100).normalize():f} %", x=x, y=y + 20, text_anchor=anchor, class_="tick"))
    y += 52

    ledger = []
    for part in parts:
        ledger.append(element("rect", x=0, y=y - 11, width=12, height=12, rx=2, class_=part.name))
        ledger.append(text(part.label, x=22, y=y))
        ledger.append(text(part.percent, x="100%", y=y, text_anchor="end"))
        y += 27
    ledger.append(element("line", x1="0", x2="100%", y1=y - 14, y2=y - 14, class_="axis"))
    ledger += _heading("Certified risk", f"≤ {percent(certificate.risk_bound)}", y + 8, strong=True)
    return bars + axis + ledger, y + 16


def _heading(label: str, value: str, y: int, *, strong: bool = False) -> list[str]:
    look = "strong" if strong else ""
    return [text(label, x=0, y=y, class_=look), text(value, x="100%", y=y, text_anchor="end", class_=look)]


def _bar(name: str, start: float, length: float, y: int, height: int) -> str:
    return element("rect", x=share(start), y=y, width=share(length), height=height, class_=name)


def _whisker(low: float, high: float, y: int) -> list[str]:
    start, end = share(max(low, 0.0)), share(min(high, 1.0))
    ends = [element("line", x1=x, x2=x, y1=y - 4, y2=y + 4, class_="whisker") for x in (start, end)]
    return [element("line", x1=start, x2=end, y1=y, y2=y, class_="whisker"), *ends]


def _in_percent(value: float, digits: int, rounding: str) -> Decimal:
    return (Decimal(value) * 100).quantize(Decimal(1).scaleb(-digits), rounding)


def _part_in_percent(value: float, shown: Decimal, digits: int) -> str:
    if value > 0 and not shown:
        return f"< {Decimal(1).scaleb(-digits):f} %"
    return f"{shown:f} %"
