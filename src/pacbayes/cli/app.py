"""The commands, but for ``train``, which has a file of its own for its many flags."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from pacbayes import processes
from pacbayes.certificates import BOUNDS, Certificate, comparison_table
from pacbayes.certificates.certify import versions
from pacbayes.certificates.wording import percent
from pacbayes.certificates.wording import table as lines_of
from pacbayes.cli.bench import bench
from pacbayes.cli.compare import card, compare
from pacbayes.cli.progress import TrainingBar, check_out, fraction_bar, print_lines, printable, tell, together
from pacbayes.cli.reproduce import reproduce
from pacbayes.cli.sign import sign
from pacbayes.cli.store import store
from pacbayes.cli.sweep import sweep
from pacbayes.cli.train import train
from pacbayes.errors import InvalidInput, RunError
from pacbayes.files import in_shell, write_atomically
from pacbayes.report import write_report
from pacbayes.runs import (
    Config,
    Evaluation,
    RunFolder,
    certify_run,
    certify_run_classes,
    predict_run,
    train_run,
    verify_run,
)
from pacbayes.runs.check import FAILED, PASSED
from pacbayes.runs.journal import read_journal
from pacbayes.runs.predict import inputs_for, valid_certificate

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_OTHERS = [name for name in BOUNDS if name not in ("invKL", "best")]

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, made by 'pacbayes train'.")]
Delta = Annotated[float, typer.Option(help="Probability that the PAC-Bayes bound may fail, over the draw of the data.")]
MCDelta = Annotated[
    float | None,
    typer.Option(
        help="Probability that the Monte-Carlo limit may fail. Confidence is 1 - delta - mc-delta. [default: 0.01]"
    ),
]
OptionalSeed = Annotated[int | None, typer.Option(min=0, help="Seed of the draws; fresh ones if not given.")]


Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1. [default: the one the run was trained on]")]


DataPlace = Annotated[
    str | None,
    typer.Option(
        help="Where the data are now: a .npz or .csv file, or a folder with the dataset. [default: as trained]"
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"pacbayes {versions()['pacbayes']}")
        raise typer.Exit


_TOGETHER = ("train", "certify")


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version, and nothing else.")
    ] = False,
) -> None:
    """Train a neural classifier and its guarantee together, and issue certificates that can be checked."""
    if processes.several() and context.invoked_subcommand not in _TOGETHER:
        raise InvalidInput(
            f"several processes work together for {' and '.join(_TOGETHER)} alone: run "
            f"'pacbayes {context.invoked_subcommand}' without torchrun"
        )


@app.command(short_help="Train, certify and report on embedded data.")
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the run; a run that is there is replaced.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the whole demonstration.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1.")] = "cpu",
) -> None:
    """Train, certify and report on embedded data (8x8 digits): about a minute on a laptop."""
    print("Data: 1,437 images of digits, half of them for the prior, half for the bound.\n", flush=True)
    with TrainingBar() as bar:
        run = train_run(Config(seed=seed, device=device), out, overwrite=True, watch=bar)
    _certify_and_show(run, seed=seed)
    print(f"Written: {write_report(run)}")


app.command()(train)


@app.command()
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
    test_draws: Annotated[
        int, typer.Option(min=1, help="Networks drawn for the test error's mean and deviation.")
    ] = 1000,
    seed: OptionalSeed = None,
    device: Device = None,
    data: DataPlace = None,
) -> None:
    """Issue a certificate for a finished run: RUN/certificate.json.

    Shows beside it the test error and, for a learnt prior, the plain hold-out bound.
    """
    with together():
        folder = RunFolder.open(run)
        if table and predictor != "randomised":
            raise InvalidInput("--table compares bounds of the randomised classifier: leave out --predictor")
        if classes and predictor != "randomised":
            raise InvalidInput("--classes certifies the randomised classifier: leave out --predictor")
        # An exact risk takes no draws; those of the classes are their own.
        apart = classes and sampling == "exact"
        certificate, evaluation = _certify_and_show(
            folder, bound=bound or "invKL", predictor=predictor, voters=voters, draws=None if apart else draws,
            budget=_seconds(budget), delta=delta, mc_delta=None if apart else mc_delta, limit=limit, sampling=sampling,
            test_draws=test_draws, seed=seed, device=device, data=data,
        )  # fmt: skip
        if table:
            print("\nFor the same counts; only the certificate is a promise:\n")
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


@app.command(short_help="Check a certificate, from its folder and the data.")
def verify(
    run: Run,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Repeat the Monte-Carlo count, with fresh draws.")
    ] = False,
    data: DataPlace = None,
    key: Annotated[Path | None, typer.Option(help="The issuer's public key, which must have signed the run.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1.")] = "cpu",
) -> None:
    """Check a certificate: all that can be proved from the folder and the data.

    Every file is what the run wrote; numbers, fingerprints, split, history and KL follow from each other. Each check
    is passed, failed, or not checkable and why. Exit status 0 only if none failed, and with --recompute only if the
    count was repeated.
    """
    checks = verify_run(RunFolder.open(run, finished=False), recompute=recompute, data=data, key=key, device=device)
    for check in checks:
        print_lines(f"{check.status:<14} {check.name:<22} {check.detail}", hanging=38)
    counts = Counter(check.status for check in checks)
    print("; ".join(f"{count} {status}" for status, count in counts.items()))
    if counts[FAILED]:
        sys.exit(1)
    print_lines(f"What is certified: {RunFolder(run).certificate().sentence()}")
    if recompute and not any((check.name, check.status) == ("Monte Carlo", PASSED) for check in checks):
        raise RunError("the count was not repeated, as --recompute asks: see above why")


@app.command(short_help="Write a page that explains a certificate.")
def report(
    run: Run,
    data: DataPlace = None,
    examples: Annotated[
        bool, typer.Option("--examples/--no-examples", help="Show examples of the data that the network errs on.")
    ] = True,
    out: Annotated[Path | None, typer.Option(help="Write the page to this file. [default: RUN/report.html]")] = None,
) -> None:
    """Write RUN/report.html: the certificate explained, with pictures, on one page that needs nothing else.

    Where the data are at hand, it shows examples that the network errs on; leave them out if the page is for others
    and the data are not.
    """
    check_out(out, run)
    print(f"Written: {write_report(RunFolder.open(run), data=data, examples=examples, out=out)}")


@app.command(short_help="Label new examples with the certified classifier.")
def predict(
    run: Run,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A .npz file with an array x or a folder with x.npy, a .csv file with the training data's columns, an "
            "image or a folder of images, or the name of a dataset (its test part).",
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Write the labels to this CSV file, not to the screen.")] = None,
    seed: OptionalSeed = None,
    device: Device = None,
) -> None:
    """Label new examples with the certified classifier: by the names of the classes, if the training data had any.

    By default it is the randomised one: a fresh draw of the weights for each example. After 'certify --predictor
    single' it is that one network, and after 'majority' the vote of fresh draws.

    The certified risk is that of just this procedure, for examples from the same source as the training data.
    """
    folder = RunFolder.open(run)
    check_out(out, run, Path(data.partition("#")[0]))
    inputs, files = inputs_for(folder, data)
    labels = predict_run(folder, inputs, seed, device)
    names = [printable(name) for name in folder.class_names()]
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(
        [
            ("file" if files else "index", "label"),
            *((printable(files[i]) if files else i, names[label]) for i, label in enumerate(labels.tolist())),
        ]
    )
    if out is None:
        print(table.getvalue(), end="")
    else:
        write_atomically(out, table.getvalue().encode())
        tell(f"Written: {out}")
    if (certificate := valid_certificate(folder)) is not None:
        tell(certificate.sentence())
    else:
        tell(f"No certificate yet: run 'pacbayes certify {in_shell(run)}'.")


app.command()(compare)
app.command(short_help="Write a model card in Markdown.")(card)
app.command(short_help="Sign a run, or make a key.")(sign)
app.command(short_help="Write data as a folder that need not fit into memory.")(store)
app.command(short_help="Train many configurations, and certify the best.")(sweep)
app.command(short_help="Run a table or figure of the paper, or the records.")(reproduce)
app.command(short_help="Time training and certifying.")(bench)


def _seconds(text: str | None) -> float | None:
    """A time such as 60s, 1.5m or 2h."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d*)?)\s*([smh]?)", text.strip())
    if not found:
        raise InvalidInput(f"a time such as 60s, 5m or 1h is needed, not {text!r}")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def _certify_and_show(run: RunFolder, **options: Any) -> tuple[Certificate, Evaluation]:
    before = {path.name for path in run.own_files()}
    issued = len(read_journal(run).risk_bounds())
    try:
        with fraction_bar("certifying") as progress:
            certificate, evaluation = certify_run(run, progress=progress, **options)
    except KeyboardInterrupt:
        if len(read_journal(run).risk_bounds()) > issued:
            tell(f"but a certificate was issued, and counts: {run.certificate_file}")
        raise
    sentence, _, numbers = str(certificate).partition("\n")
    print_lines(sentence)
    print_lines(f"{numbers}\n{_beside(evaluation)}", hanging=34)
    print(f"\nWritten: {run.certificate_file}")
    if run.certificate_file.name in before:
        gone = sorted(before - {path.name for path in run.own_files()})
        more = f", and {', '.join(gone)}, made from that one, is gone" if gone else ""
        print(f"It replaces an earlier one{more}. Of several, none may be chosen by its result.")
    return certificate, evaluation


def _beside(evaluation: Evaluation) -> str:
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
        rows.append(("test error", "–", "there are no test data that can be used"))
    return lines_of(rows) + "\n"
