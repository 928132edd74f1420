"""``pacbayes certify``: a certificate, and what it can be compared with."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from pacbayes.certificates import BOUNDS, Certificate, comparison_table
from pacbayes.certificates.wording import percent
from pacbayes.certificates.wording import table as lines_of
from pacbayes.cli.options import DataPlace, Device, OptionalSeed, Run
from pacbayes.cli.progress import fraction_bar
from pacbayes.cli.terminal import Interrupted, print_lines, together
from pacbayes.errors import InvalidInput
from pacbayes.files import in_shell
from pacbayes.runs import Evaluation, RunFolder, certify_run, certify_run_classes, evaluate_run
from pacbayes.runs.journal import read_journal

_OTHERS = [name for name in BOUNDS if name not in ("invKL", "best")]

Delta = Annotated[float, typer.Option(help="Probability that the PAC-Bayes bound may fail, over the draw of the data.")]
MCDelta = Annotated[
    float | None,
    typer.Option(
        help="Probability that the Monte-Carlo limit may fail. Confidence is 1 - delta - mc-delta. [default: 0.01]"
    ),
]


def certify(
    run: Run,
    bound: Annotated[
        str | None,
        typer.Option(
            help=f"invKL (the paper's), best (the least of a few, charged for), or {', '.join(_OTHERS)}; for a single "
            "network also binomial. [default: invKL; for --classes best]"
        ),
    ] = None,
    predictor: Annotated[
        str,
        typer.Option(
            help="What is certified: randomised (a fresh draw for each prediction), single (one network, drawn now and "
            "written to RUN/single.safetensors) or majority (the vote of fresh draws)."
        ),
    ] = "randomised",
    voters: Annotated[
        int | None, typer.Option(min=1, help="Draws that vote on each prediction, for majority. [default: 11]")
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Independent Monte-Carlo terms; more make the certificate tighter, and slower. [default: 150000]",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Time for the draws, such as 60s or 5m, in place of --draws; their number is fixed first. "
            "--classes takes about as long again."
        ),
    ] = None,
    delta: Delta = 0.025,
    mc_delta: MCDelta = None,
    limit: Annotated[
        str | None,
        typer.Option(
            help="Monte-Carlo limit: two-sided, one-sided or clopper-pearson. [default: two-sided for invKL, else the "
            "tightest]"
        ),
    ] = None,
    sampling: Annotated[
        str | None,
        typer.Option(
            help="independent (a draw for each visit), shared (each draw passes over all the data), or exact (no "
            "draws; only where the last layer alone is stochastic). [default: independent]"
        ),
    ] = None,
    table: Annotated[
        bool, typer.Option("--table", help="Show every bound for the same counts, beside the certificate.")
    ] = False,
    classes: Annotated[
        bool,
        typer.Option(
            "--classes",
            help="Certify each class and the confusions too, by independent draws of their own: RUN/classes.json.",
        ),
    ] = False,
    evaluate: Annotated[
        bool,
        typer.Option(
            "--evaluate",
            help="Issue nothing: measure what is shown beside a certificate that was issued, where an interruption "
            "came before it.",
        ),
    ] = False,
    test_draws: Annotated[
        int | None,
        typer.Option(min=1, help="Networks drawn for the test error's mean and deviation. [default: 1000]"),
    ] = None,
    seed: OptionalSeed = None,
    device: Device = None,
    data: DataPlace = None,
) -> None:
    """Issue a certificate for a finished run: RUN/certificate.json.

    Shows beside it the test error and, for a learnt prior, the plain hold-out bound.
    """
    with together():
        folder = RunFolder.open(run)
        if evaluate:
            given = (bound, voters, draws, budget, mc_delta, limit, sampling, seed, table or None, classes or None)
            if any(value is not None for value in given) or (predictor, delta) != ("randomised", 0.025):
                raise InvalidInput("--evaluate issues no certificate: it goes with --test-draws, --device and --data")
            certificate = folder.certificate()
            _refuse_test_draws(certificate.predictor, test_draws)
            evaluation = evaluate_run(folder, test_draws=test_draws or 1000, device=device, data=data)
            print_lines(beside(certificate, evaluation), hanging=34)
            return
        if table and predictor != "randomised":
            raise InvalidInput("--table compares bounds of the randomised classifier: leave out --predictor")
        if classes and predictor != "randomised":
            raise InvalidInput("--classes certifies the randomised classifier: leave out --predictor")
        _refuse_test_draws(predictor, test_draws)
        # An exact risk takes no draws; those of the classes are their own.
        apart = classes and sampling == "exact"
        certificate, evaluation = certify_and_show(
            folder, bound=bound or "invKL", predictor=predictor, voters=voters, draws=None if apart else draws,
            budget=_seconds(budget), delta=delta, mc_delta=None if apart else mc_delta, limit=limit, sampling=sampling,
            test_draws=test_draws or 1000, seed=seed, device=device, data=data,
        )  # fmt: skip
        if table:
            print(
                "\nFor the same counts; only the certificate is a promise. On the right, what each takes away from the"
            )
            print("paper's bound, or adds to it, as a share of that; 'best' pays for its choice among several.\n")
            print(comparison_table(certificate, evaluation.holdout_bound))
        if classes:
            # As many as there was time for.
            draws = certificate.draws if budget is not None else draws
            options = {"bound": bound, "draws": draws, "delta": delta, "mc_delta": mc_delta, "seed": seed}
            options = {name: value for name, value in options.items() if value is not None}
            with fraction_bar("classes") as progress:
                issued = certify_run_classes(folder, device=device, data=data, progress=progress, **options)
            print_lines(f"\n{issued.text(folder.class_names())}")
            print(f"\nWritten: {folder.path / 'classes.json'}")


def _refuse_test_draws(predictor: str, test_draws: int | None) -> None:
    if test_draws is not None and predictor != "randomised":
        raise InvalidInput("--test-draws would be ignored: it is for the randomised classifier")


def _seconds(text: str | None) -> float | None:
    """A time such as 60s, 1.5m or 2h."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d*)?)\s*([smh]?)", text.strip())
    if not found:
        raise InvalidInput(f"a time such as 60s, 5m or 1h is needed, not {text!r}")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def certify_and_show(run: RunFolder, **options: Any) -> tuple[Certificate, Evaluation]:
    """Certify with a bar, and print what was issued."""
    before = {path.name for path in run.own_files()}
    issued = len(read_journal(run).risk_bounds())
    try:
        with fraction_bar("certifying") as progress:
            certificate, evaluation = certify_run(run, progress=progress, **options)
    except KeyboardInterrupt:
        if len(read_journal(run).risk_bounds()) > issued:
            raise Interrupted(
                f"; but a certificate was issued, and counts: {run.certificate_file}. 'pacbayes certify "
                f"{in_shell(run.path)} --evaluate' measures what is shown beside it"
            ) from None
        raise
    sentence, _, numbers = str(certificate).partition("\n")
    print_lines(sentence)
    print_lines(f"{numbers}\n{beside(certificate, evaluation)}", hanging=34)
    print(f"\nWritten: {run.certificate_file}")
    if run.certificate_file.name in before:
        gone = sorted(before - {path.name for path in run.own_files()})
        more = f", and {', '.join(gone)}, made from that one, {'are' if len(gone) > 1 else 'is'} gone" if gone else ""
        print(f"It replaces an earlier one{more}. {_choice(certificate.draw)}")
    return certificate, evaluation


def _choice(singles: int) -> str:
    """What may be chosen among the certificates of a run, of which some are for single networks."""
    if singles < 2:
        return "Of several, none may be chosen by its result."
    return (
        f"What is charged is the choice among the {singles} single networks drawn for this run, and no other: between "
        "certificates of single networks and of other predictors none may be chosen by its result."
    )


def beside(certificate: Certificate, evaluation: Evaluation) -> str:
    """What is set beside a certificate, in lines like its own."""
    rows = []
    if evaluation.holdout_bound is not None:
        value = f"<= {percent(evaluation.holdout_bound)}"
        rows.append(("plain hold-out", value, "the prior alone, one draw for each bound example, same confidence"))
    if evaluation.test_error is not None:
        spread = ""
        if evaluation.test_error_sd is not None:
            spread = f"± {100 * evaluation.test_error_sd:.2f} over {evaluation.test_draws} draws; "
        value = f"{100 * evaluation.test_error:.2f} %"
        rows.append(("test error", value, f"{spread}{evaluation.test_examples} test examples"))
    else:
        rows.append(("test error", "–", "not measured: there are no test data that can be used"))
    if evaluation.near_constant(certificate.risk_bound):
        value = f"{100 * (evaluation.constant_error or 0):.2f} %"
        rows.append(("one answer always", value, "the error of the most frequent class, on the bound data"))
    return lines_of(rows) + "\n"
