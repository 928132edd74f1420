"""A model card: a run for the page of a repository, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from pacbayes.certificates import Certificate, ClassCertificate
from pacbayes.certificates.wording import last_of, percent
from pacbayes.data.scaling import Scaling
from pacbayes.report.decomposition import comparisons, decomposition
from pacbayes.report.page import read_classes
from pacbayes.runs import Config, RunFolder
from pacbayes.runs.journal import certificates_issued, check_shown

_PREDICTORS = {
    "randomised": "Randomised: each prediction uses a fresh draw of the weights from the posterior.",
    "single": "One network, drawn once after training: `single.safetensors`.",
    "majority": "The majority vote of fresh draws of the weights for each prediction.",
}

_SCALED = ", in the units of the data: the network scales them itself, by mean and deviation of the prior data"


def model_card(run: RunFolder) -> str:
    """The card of a certified run, whose files must be those it wrote."""
    certificate, config = run.certificate(), run.config()
    check_shown(run)
    parts = decomposition(certificate)
    evaluation = run.evaluation()
    record = run.data_record()
    classes = read_classes(run, certificate)
    rows = [
        ("certified risk", f"≤ {percent(certificate.risk_bound)}"),
        *((part.label, part.percent) for part in parts),
        *comparisons(evaluation),
    ]
    if certificate.priors > 1:
        rows.insert(1, ("chosen among", f"{certificate.priors:,} priors, all charged"))
    weights = "single" if certificate.predictor == "single" else "posterior"
    fingerprint = getattr(certificate, f"{weights}_fingerprint")
    lines = [
        f"# A certified classifier of {_code(config.data)}",
        "",
        f"**{_escaped(certificate.sentence())}**",
        "",
        "## Model",
        "",
        f"- Architecture: {_code(config.model_name(tuple(record['shape'])))}",
        f"- Inputs: {_inputs(config, record['shape'], run.scaling())}",
        f"- Classes: {record['classes']}{_named(run.class_names())}",
        f"- Predictor: {_PREDICTORS[certificate.predictor]}",
        f"- Training: {_training(config, certificate)}",
        f"- Made with: {_code(', '.join(f'{name} {version}' for name, version in certificate.versions.items()))}",
        "",
        "## Use",
        "",
        "For new examples from the source that the bound data were drawn from, with inputs prepared in the same way:",
        "",
        "```sh",
        f"pacbayes predict RUN new{'.csv' if record.get('feature_names') else '.npz'}",
        "```",
        "",
        "The guarantee is for predictions made in just this way. It says nothing about examples from another source,",
        "adversarial inputs, single examples or groups, or other predictors, the network of mean weights for one.",
        "It counts errors against labels made as those of the training data were.",
        "",
        "## Guarantee",
        "",
        *_table(("quantity", "value"), rows),
        "",
        "The test error and the plain hold-out bound stand beside the certificate, and are no part of it.",
        *(f"\n**{_escaped(remark)}**" for remark in evaluation.remarks(certificate.risk_bound)),
        *(_classes(classes, run.class_names()) if classes else []),
        "",
        "## Data",
        "",
        f"- Bound data: {certificate.m:,} examples, SHA-256 {_code(certificate.bound_data_fingerprint)}",
        f"- Prior: {_prior(config)}",
        "",
        "## Verification",
        "",
        "```sh",
        "pacbayes verify RUN --recompute",
        "```",
        "",
        f"The certified weights, `{weights}.safetensors`, have SHA-256 {_code(fingerprint)}.",
        f"The certificate was issued {_code(certificate.time)}.{_others(certificates_issued(run))}",
    ]
    return "\n".join(lines) + "\n"


def _inputs(config: Config, shape: list[int], scaling: Scaling | None) -> str:
    scaled = _SCALED if config.scales(tuple(shape)) else ""
    if scaling is not None:
        return f"images of shape {shape}, given as {scaling.in_words}{scaled}"
    return f"numbers of shape {shape}{scaled}"


def _training(config: Config, certificate: Certificate) -> str:
    method = {"G": "Cond-Gauss", "S": "the standard method"}.get(config.posterior.method, config.posterior.method)
    return f"{method}, objective {_code(certificate.objective)}; the guarantee does not depend on it"


def _prior(config: Config) -> str:
    if not config.learns_prior:
        return "data-free: fixed before any data were seen"
    if config.prior_data:
        return f"learnt on other data, {_code(config.prior_data)}: all training data are bound data"
    return f"learnt on {100 * config.prior_fraction:g} % of the training data, which are none of the bound data"


def _classes(classes: ClassCertificate, names: list[str]) -> list[str]:
    rows = [(_escaped(names[y]), f"{classes.m[y]:,}", f"≤ {percent(row[y])}") for y, row in enumerate(classes.bounds)]
    return [
        "",
        f"By draws and a confidence of their own, with probability at least {classes.confidence()}, all of these hold "
        "at once:",
        "",
        *_table(("class", "bound examples", "answered wrongly"), rows),
    ]


def _others(issued: int) -> str:
    return f" It is {last_of(issued)}." if issued > 1 else ""


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    return [_row(head), _row(("---",) * len(head)), *(_row(row) for row in rows)]


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _named(classes: Sequence[str]) -> str:
    """Their names, unless they are numbers, or too many to list."""
    if len(classes) > 30 or all(name.isdigit() for name in classes):
        return ""
    return f": {', '.join(_escaped(name) for name in classes)}"


def _escaped(words: str) -> str:
    """The sentence, which may name a loss in somebody else's words: no markup, one line."""
    return "".join(
        f"\\{c}" if c in "\\`*_{}[]<>#|!&" else c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in words
    )


def _code(words: str) -> str:
    """Somebody else's words: a code span on one line, which they cannot end."""
    plain = "".join(c if c.isprintable() and c != "`" else "\N{REPLACEMENT CHARACTER}" for c in words[:500])
    return f"`{plain or ' '}`"
