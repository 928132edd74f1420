"""The report of a run: one HTML page that needs nothing else, made from its folder, and its data if at hand."""

from __future__ import annotations

import os
import warnings
from importlib import resources
from pathlib import Path
from typing import Any

from pacbayes.certificates import Certificate, ClassCertificate
from pacbayes.certificates.wording import class_titles, last_of, percent
from pacbayes.errors import PacBayesError, RunError
from pacbayes.files import in_shell, write_atomically
from pacbayes.report.affine import affine_svgs
from pacbayes.report.bars import bars_svg, bounds_bars, class_bars
from pacbayes.report.curves import Curve, curves_svg
from pacbayes.report.decomposition import decomposition_svg
from pacbayes.report.examination import Examination, examine
from pacbayes.report.explanations import explained
from pacbayes.report.svg import BY_VARIABLE, DARK, FONT, LIGHT, style
from pacbayes.runs import RunFolder
from pacbayes.runs.journal import certificates_issued, check_shown, note
from pacbayes.training import Epoch


def write_report(run: RunFolder, *, data: str | None = None, examples: bool = True, out: Path | None = None) -> Path:
    """Write ``report.html`` into the run folder; the same folder and data give the same bytes on one machine.

    With ``out`` the page is written there, and the folder stays as it is.

    ``data`` is where the data are now, if not where config.toml says. Without ``examples`` no example of the data
    stands in the page, which may be for others to read.
    """
    path = out or run.path / "report.html"
    with run.alone():
        check_shown(run)
        write_atomically(path, _page(run, data, examples))
        if out is None:
            note(run, "reported")
    return path


def _page(run: RunFolder, data: str | None, examples: bool) -> bytes:
    certificate = run.certificate()
    evaluation = run.evaluation()
    config = run.config()
    stages = run.epochs()
    kept = _kept(stages.get("posterior", []))
    decomposed = decomposition_svg(certificate, evaluation)
    classes = read_classes(run, certificate)
    seen = _examined(run, certificate, data, examples)
    names = class_titles(run.class_names() if classes else ())
    compared = bounds_bars(certificate, evaluation)
    return render(
        "page.html",
        certificate=certificate,
        others=last_of(issued) if (issued := certificates_issued(run)) > 1 else "",
        risk_bound=percent(certificate.risk_bound),
        decomposition=decomposed,
        bounds=bars_svg("bounds", "Bounds for the same counts", compared),
        other_formulas=len(compared) > 2,
        remarks=evaluation.remarks(certificate.risk_bound),
        classes=classes,
        class_names=names,
        class_bars=bars_svg("classes", "Certified risk of each class", class_bars(classes, names)) if classes else "",
        mistakes=seen.mistakes if seen else None,
        affine=seen.affine if seen else None,
        affine_pictures=affine_svgs(seen.affine) if seen and seen.affine else [],
        evaluation=evaluation,
        config=config,
        config_text=config.to_toml(),
        curves=_curves(stages, kept),
        epochs=len(stages.get("posterior", ())),
        kept=kept,
        groups=explained(certificate),
    )


def render(template: str, **values: Any) -> bytes:
    """A page from its template, in the colours of the pictures."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(lambda name: resources.files("pacbayes.report").joinpath(name).read_text("utf-8")),
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    look = {"light": LIGHT, "dark": DARK, "font": FONT, "figure_style": style(BY_VARIABLE)}
    # JSON may hold halves of characters, which UTF-8 may not.
    return environment.get_template(template).render(**look, **values).encode("utf-8", "xmlcharrefreplace")


def read_classes(run: RunFolder, certificate: Certificate) -> ClassCertificate | None:
    """The certificate of the classes, if there is one for this predictor; one that does not hold is refused."""
    path = run.path / "classes.json"
    if certificate.predictor != "randomised":
        return None  # it is for the randomised classifier
    if not os.path.lexists(path):
        return None
    classes = run.classes()
    others = classes.posterior_fingerprint != certificate.posterior_fingerprint
    # The arithmetic last: of many classes it takes a while.
    if others or len(classes.m) != run.data_record()["classes"] or classes.check():
        raise RunError(
            f"{path} does not hold for this network, and is not reported: see 'pacbayes verify {in_shell(run.path)}'"
        )
    return classes


def _examined(run: RunFolder, certificate: Certificate, data: str | None, examples: bool) -> Examination | None:
    """None where the data are not at hand, unless their place was named."""
    try:
        return examine(run, certificate, data, examples=examples)
    except PacBayesError as error:
        if data is not None:
            raise
        missing = "neither examples nor the affine check" if examples else "no affine check"
        warnings.warn(f"the page shows {missing}: {error}", stacklevel=4)
        return None


def _kept(epochs: list[Epoch]) -> int | None:
    """The epoch whose weights are the posterior; -1, if these are the prior's; None, if that was not recorded."""
    return epochs[-1].kept if epochs else None


def _curves(stages: dict[str, list[Epoch]], kept: int | None) -> list[tuple[str, str]]:
    """(caption, picture) of each stage; the posterior has two, for its penalty is not a rate."""
    titles = {
        "ordinary": "Ordinary training, on the prior data",
        "pretraining": "Pretraining, on the prior data",
        "prior": "Prior, on the prior data",
        "posterior": "Posterior, on the bound data",
    }
    kept = None if kept == -1 else kept
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
