"""The report of a run: one HTML page that needs nothing else, made from the files of its folder alone."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from pacbayes.certificates.certificate import percent
from pacbayes.files import write_atomically
from pacbayes.report.curves import Curve, curves_svg
from pacbayes.report.decomposition import decomposition_svg
from pacbayes.report.explanations import explained
from pacbayes.report.records import read_evaluation, read_history
from pacbayes.report.svg import BY_VARIABLE, DARK, FONT, LIGHT, style
from pacbayes.runs import Config, RunFolder
from pacbayes.runs.journal import note
from pacbayes.training import Epoch


def write_report(run: RunFolder) -> Path:
    """Write ``report.html`` into the run folder; the same folder gives the same bytes."""
    certificate = run.certificate()
    evaluation = read_evaluation(run.path / "evaluation.json")
    config = run.config()
    stages = read_history(run.history_file)
    kept = _kept(stages["posterior"], config) if "posterior" in stages else None
    page = _render(
        certificate=certificate,
        risk_bound=percent(certificate.risk_bound),
        decomposition=decomposition_svg(certificate, evaluation),
        evaluation=evaluation,
        config=config,
        config_text=config.to_toml(),
        curves=_curves(stages, kept),
        epochs=len(stages.get("posterior", ())),
        kept=kept,
        groups=explained(certificate),
        light=LIGHT,
        dark=DARK,
        font=FONT,
        figure_style=style(BY_VARIABLE),
    )
    path = run.path / "report.html"
    # JSON may hold halves of characters, which UTF-8 may not.
    write_atomically(path, page.encode("utf-8", "xmlcharrefreplace"))
    note(run, "reported")
    return path


def _render(**values: Any) -> str:
    from jinja2 import Environment, StrictUndefined

    template = resources.files("pacbayes.report").joinpath("page.html").read_text("utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(template).render(**values)


def _kept(epochs: list[Epoch], config: Config) -> int:
    """The epoch whose weights are the posterior: the first of the smallest bound, or the last."""
    if config.posterior.keep == "last":
        return len(epochs) - 1
    return min(range(len(epochs)), key=lambda number: epochs[number].bound)


def _curves(stages: dict[str, list[Epoch]], kept: int | None) -> list[tuple[str, str]]:
    """(caption, picture) of each stage; the posterior has two, for its penalty is not a rate."""
    titles = {
        "pretraining": "Pretraining, on the prior data",
        "prior": "Prior, on the prior data",
        "posterior": "Posterior, on the bound data",
    }
    drawn = []
    for stage, epochs in stages.items():
        curves = [Curve("risk", "empirical", [epoch.risk for epoch in epochs])]
        if stage == "posterior":
            curves.append(Curve("bound", "kl", [epoch.bound for epoch in epochs]))
        mark = kept if stage == "posterior" else None
        drawn.append((titles[stage], curves_svg(f"curves-{stage}", titles[stage], curves, kept=mark)))
    if "posterior" in stages:
        penalty = Curve("penalty", "log", [epoch.penalty for epoch in stages["posterior"]])
        title = "Posterior, penalty in nats per example"
        drawn.append((title, curves_svg("curves-penalty", title, [penalty], kept=kept, rate=False)))
    return drawn
