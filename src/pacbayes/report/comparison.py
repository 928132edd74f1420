"""Runs side by side: the numbers of each, what can be compared and what cannot, and a page with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pacbayes.certificates import Certificate
from pacbayes.certificates.wording import last_of, percent
from pacbayes.errors import InvalidInput, RunError
from pacbayes.files import write_atomically
from pacbayes.report.decomposition import Part, comparisons, decomposition, nats
from pacbayes.report.page import render
from pacbayes.report.svg import element, picture, round_steps, share, text
from pacbayes.runs import Config, Evaluation, RunFolder
from pacbayes.runs.journal import certificates_issued, check_shown

_MOST = 50
_LEGEND = (("empirical", "empirical risk"), ("monte-carlo", "Monte-Carlo slack"), ("log", "log term"), ("kl", "KL"))
COLUMNS = (
    "run", "certified risk", "empirical risk", "KL", "plain hold-out", "test error", "m", "data", "model", "prior",
    "objective", "predictor, bound",
)  # fmt: skip


@dataclass(frozen=True)
class Compared:
    """A run whose files are those it wrote, and whose certificate holds."""

    name: str
    config: Config
    certificate: Certificate
    evaluation: Evaluation
    parts: tuple[Part, ...]
    shape: tuple[int, ...]
    issued: int
    """How many certificates the run has had."""

    def cells(self) -> tuple[str, ...]:
        """One for each of ``COLUMNS``."""
        c, config = self.certificate, self.config
        error, holdout = (value for _, value in comparisons(self.evaluation))
        return (
            self.name, f"≤ {percent(c.risk_bound)}", f"{100 * c.empirical_risk:.2f} %", nats(c.kl), holdout, error,
            f"{c.m:,}", config.data, config.model_name(self.shape), config.prior_in_words,
            f"{config.posterior.method} {c.objective}", f"{c.predictor}, {c.bound}",
        )  # fmt: skip


def compare_runs(paths: Sequence[Path]) -> list[Compared]:
    """The runs in these folders; one that is not certified, or not what it was, is refused."""
    if not 1 <= len(paths) <= _MOST:
        raise InvalidInput(f"give 1 to {_MOST} run folders, not {len(paths)}")
    return [_compared(path) for path in paths]


def _compared(path: Path) -> Compared:
    run = RunFolder.open(path)
    certificate = run.certificate()
    check_shown(run)
    try:
        parts = decomposition(certificate)
    except RunError as error:
        raise RunError(f"{path}: {error}") from None
    evaluation = run.evaluation()
    shape = tuple(run.data_record()["shape"])
    return Compared(str(path), run.config(), certificate, evaluation, parts, shape, certificates_issued(run))


def warnings(runs: Sequence[Compared]) -> Iterator[str]:
    """What the numbers alone do not say."""
    if len({run.certificate.bound_data_fingerprint for run in runs}) > 1:
        yield "The runs have different bound data: their empirical risks and bounds are not of the same examples."
    if len({(run.certificate.delta, run.certificate.mc_delta) for run in runs}) > 1:
        yield "The certificates have different confidences."
    for run in runs:
        yield from (f"{run.name}: {remark}" for remark in run.evaluation.remarks(run.certificate.risk_bound))
        if run.issued > 1:
            yield f"{run.name}: {last_of(run.issued)}."
    if len(runs) > 1:
        yield (
            "Each certificate holds at its own confidence. Whoever keeps the one with the least bound must add up the "
            "probabilities of failure of all that were tried."
        )


def write_comparison(runs: Sequence[Compared], path: Path) -> None:
    """One page: the bounds as stacked bars on one scale, and the table."""
    picture = stacked_svg(runs)
    rows = [run.cells() for run in runs]
    write_atomically(path, render("compare.html", picture=picture, columns=COLUMNS, rows=rows, notes=[*warnings(runs)]))


def stacked_svg(runs: Sequence[Compared]) -> str:
    """The certified risk of each run, from its parts."""
    top = float(round_steps(max(run.certificate.risk_bound for run in runs))[-1])
    drawn, y = [], 0
    for name, label in _LEGEND:
        drawn.append(element("rect", x=0, y=y + 2, width=12, height=12, rx=2, class_=name))
        drawn.append(text(label, x=22, y=y + 13))
        y += 22
    y += 12
    for run in runs:
        value = percent(run.certificate.risk_bound)
        drawn.append(text(_short(run.name), x=0, y=y + 14, class_="strong"))
        drawn.append(text(f"≤ {value}", x="100%", y=y + 14, text_anchor="end", class_="strong"))
        level = 0.0
        for part in run.parts:
            at, wide = share(level / top), share(part.value / top)
            drawn.append(element("rect", x=at, y=y + 22, width=wide, height=18, class_=part.name))
            level += part.value
        y += 54
    description = "; ".join(f"{_short(run.name)}: at most {percent(run.certificate.risk_bound)}" for run in runs) + "."
    return picture("runs", "Certified risks", description, drawn, width="100%", height=y)


def _short(name: str) -> str:
    """The end of a path tells runs apart."""
    return name if len(name) <= 32 else "…" + name[-31:]
