"""The result of a sweep: its trials, what was charged, and the certificate of the best; ``sweep.json`` and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pacbayes.certificates import Certificate
from pacbayes.certificates.wording import last_of, percent
from pacbayes.errors import RunError
from pacbayes.files import sha256, write_atomically, write_json
from pacbayes.report.decomposition import comparisons
from pacbayes.report.page import render
from pacbayes.runs import RunFolder
from pacbayes.runs.journal import certificates_issued
from pacbayes.sweeps.axes import Range
from pacbayes.sweeps.charge import Charge
from pacbayes.sweeps.figure import slice_svg
from pacbayes.sweeps.specification import Specification
from pacbayes.sweeps.study import Trial
from pacbayes.sweeps.trial import COMPLETE, FAILED


@dataclass(frozen=True)
class Result:
    """A finished sweep."""

    folder: Path
    sweep: Specification
    trials: tuple[Trial, ...]
    best: Trial
    run: Path
    """The run folder of the best trial."""
    certificate: Certificate
    charge: str
    """What was charged, and how many certificates there have been, in words."""

    def columns(self) -> tuple[str, ...]:
        return ("trial", "training's bound", *self.sweep.axes, "state")

    def rows(self) -> list[tuple[str, ...]]:
        """The trials, the best first."""
        return [
            (
                str(t.number),
                shown(t.bound),
                *(shown(t.parameters.get(name)) for name in self.sweep.axes),
                short_state(t),
            )
            for t in ranked(self.trials)
        ]

    def failures(self) -> list[str]:
        """Which trials failed, and why."""
        return [f"trial {t.number} failed: {t.message}" for t in self.trials if t.state == FAILED]


def short_state(trial: Trial) -> str:
    """For a cell of a table: what a trial failed of would make it wide."""
    return trial.state if trial.state == FAILED else trial.message or trial.state


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """Those that came to their end first, by their bounds; then those that run or were stopped."""
    bounds = {t.number: (t.state != COMPLETE, 2.0 if t.bound is None else t.bound, t.number) for t in trials}
    return sorted(trials, key=lambda t: bounds[t.number])


def made_priors(folder: Path, charge: Charge, paths: Mapping[int, Path]) -> dict[int, str | None]:
    """The hash of each trial's prior, if it has one. More than were charged, by whatever fault, are refused."""
    files = {number: RunFolder(path) for number, path in paths.items()}
    priors = {
        number: sha256(run.read("prior.safetensors")) if run.weights_file("prior").is_file() else None
        for number, run in files.items()
    }
    if (made := len(set(priors.values()) - {None})) > charge.priors:
        raise RunError(
            f"{folder}: {made} priors were made and {charge.priors} charged: no certificate of it would hold"
        )
    return priors


def write_results(
    folder: Path,
    sweep: Specification,
    trials: Sequence[Trial],
    priors: Mapping[int, str | None],
    best: Trial,
    run: Path,
) -> Result:
    """Write ``sweep.json`` and ``sweep.html``, once the best trial has its certificate in its run folder."""
    charge, certificate = sweep.charge, RunFolder(run).certificate()
    words = str(charge)
    if (issued := certificates_issued(RunFolder(run))) > 1:
        words += f" Its certificate is {last_of(issued)}."
    place = str(run.relative_to(folder.absolute()))
    result = Result(folder, sweep, tuple(trials), best, run, certificate, words)
    record = {
        "kind": sweep.kind,
        "axes": {name: asdict(axis) if isinstance(axis, Range) else list(axis) for name, axis in sweep.axes.items()},
        "charge": asdict(charge) | {"delta_each": charge.each, "certified_models": 1, "in_words": words},
        "best": {
            "trial": best.number, "run": place, "training_bound": best.bound,
            "parameters": best.parameters, "risk_bound": certificate.risk_bound, "confidence": certificate.confidence,
        },
        "trials": [{**asdict(trial), "prior_fingerprint": priors[trial.number]} for trial in trials],
    }  # fmt: skip
    write_json(folder / "sweep.json", record)
    evaluation = RunFolder(run).evaluation()
    pictures = [slice_svg(number, *axis, trials, best) for number, axis in enumerate(sweep.axes.items())]
    page = render(
        "sweep.html",
        certificate=certificate,
        risk_bound=percent(certificate.risk_bound),
        beside=comparisons(evaluation),
        remarks=evaluation.remarks(certificate.risk_bound),
        charge=words,
        pictures=pictures,
        run=place,
        config=RunFolder(run).config(),
        columns=result.columns(),
        rows=result.rows(),
        failures=result.failures(),
    )
    write_atomically(folder / "sweep.html", page)
    return result


def shown(value: Any) -> str:
    """A number with four digits that matter, or the word."""
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
