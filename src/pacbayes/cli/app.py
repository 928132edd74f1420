"""The commands, but for ``train``, which has a file of its own for its many flags."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from pacbayes.certificates import Certificate
from pacbayes.certificates.certificate import LIMITS, percent, table
from pacbayes.cli.bench import bench
from pacbayes.cli.progress import TrainingBar, errors, fraction_bar
from pacbayes.cli.reproduce import reproduce
from pacbayes.cli.train import train
from pacbayes.data import load_inputs
from pacbayes.errors import RunError
from pacbayes.files import sha256_of
from pacbayes.report import write_report
from pacbayes.runs import Config, Evaluation, RunFolder, certify_run, predict_run, train_run, verify_run
from pacbayes.runs.verify import FAILED

app = typer.Typer(
    help="Train a neural classifier and its guarantee together, and issue certificates that can be checked.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Run = Annotated[Path, typer.Argument(help="A run folder, made by 'pacbayes train'.")]
Draws = Annotated[
    int, typer.Option(min=1, help="Independent Monte-Carlo terms; more make the certificate tighter, and slower.")
]
Delta = Annotated[float, typer.Option(help="Probability that the PAC-Bayes bound may fail, over the draw of the data.")]
MCDelta = Annotated[
    float,
    typer.Option(help="Probability that the Monte-Carlo limit may fail. Confidence is 1 - delta - mc-delta."),
]
OptionalSeed = Annotated[int | None, typer.Option(min=0, help="Seed of the draws; fresh ones if not given.")]


Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1. [default: the one the run was trained on]")]


@app.command()
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
    draws: Draws = 150_000,
    delta: Delta = 0.025,
    mc_delta: MCDelta = 0.01,
    limit: Annotated[str, typer.Option(help=f"Monte-Carlo limit: {', '.join(LIMITS)}.")] = "two-sided",
    sampling: Annotated[
        str,
        typer.Option(help="independent (a draw for each visit) or shared (each draw passes over all the data)."),
    ] = "independent",
    test_draws: Annotated[
        int, typer.Option(min=1, help="Networks drawn for the test error's mean and deviation.")
    ] = 1000,
    seed: OptionalSeed = None,
    device: Device = None,
) -> None:
    """Issue a certificate for a finished run: RUN/certificate.json.

    Shows beside it the test error and, for a learnt prior, the plain hold-out bound.
    """
    _certify_and_show(
        RunFolder.open(run), draws=draws, delta=delta, mc_delta=mc_delta, limit=limit, sampling=sampling,
        test_draws=test_draws, seed=seed, device=device,
    )  # fmt: skip


@app.command()
def verify(
    run: Run,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Repeat the Monte-Carlo count, with fresh draws.")
    ] = False,
) -> None:
    """Check a certificate: its arithmetic, the fingerprints of the files and the data, the KL.

    Each check is passed, failed, or not checkable and why. Exit status 0 only if none failed.
    """
    checks = verify_run(RunFolder.open(run, finished=False), recompute=recompute)
    for check in checks:
        print(f"{check.status:<14} {check.name:<22} {check.detail}")
    counts = Counter(check.status for check in checks)
    print("; ".join(f"{count} {status}" for status, count in counts.items()))
    if counts[FAILED]:
        sys.exit(1)


@app.command()
def report(run: Run) -> None:
    """Write RUN/report.html: the certificate explained, with pictures, on one page that needs nothing else."""
    print(f"Written: {write_report(RunFolder.open(run))}")


@app.command()
def predict(
    run: Run,
    data: Annotated[
        str,
        typer.Argument(
            help="A .npz file with an array x, a .csv file with the training data's columns in their order, a folder "
            "of images (photos#64), or the name of a dataset (its test part)."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Write the labels to this CSV file, not to the screen.")] = None,
    seed: OptionalSeed = None,
    device: Device = None,
) -> None:
    """Label new examples with the certified classifier: a fresh draw of the weights for each.

    The certified risk is that of just this procedure, for examples from the same source as the training data.
    """
    folder = RunFolder.open(run)
    inputs = load_inputs(data, folder=folder.config().data_folder or None)
    labels = predict_run(folder, inputs, seed, device)
    lines = "\n".join(["index,label", *(f"{i},{label}" for i, label in enumerate(labels.tolist()))]) + "\n"
    if out is None:
        print(lines, end="")
    else:
        out.write_text(lines)
    if folder.certificate_file.is_file():
        certificate = Certificate.load(folder.certificate_file)
        if certificate.check() or certificate.posterior_fingerprint != sha256_of(folder.weights_file("posterior")):
            raise RunError(f"the certificate in {run} does not hold for these weights: see 'pacbayes verify {run}'")
        errors.print(certificate.sentence(), highlight=False)
    else:
        errors.print(f"No certificate yet: run 'pacbayes certify {run}'.", highlight=False)


app.command()(reproduce)
app.command()(bench)


def _certify_and_show(run: RunFolder, **options: Any) -> None:
    replaced = run.certificate_file.is_file()
    with fraction_bar("certifying") as progress:
        certificate, evaluation = certify_run(run, progress=progress, **options)
    print(f"{certificate}\n{_beside(evaluation)}\nWritten: {run.certificate_file}")
    if replaced:
        print("It replaces an earlier one. Of several, none may be chosen by its result.")


def _beside(evaluation: Evaluation) -> str:
    rows = []
    if evaluation.holdout_bound is not None:
        value = f"<= {percent(evaluation.holdout_bound)}"
        rows.append(("plain hold-out", value, "the prior alone, one draw for each bound example, same confidence"))
    if evaluation.test_error is not None and evaluation.test_error_sd is not None:
        spread = f"± {100 * evaluation.test_error_sd:.2f} over {evaluation.test_draws} draws"
        rows.append(
            (
                "test error",
                f"{100 * evaluation.test_error:.2f} %",
                f"{spread}; {evaluation.test_examples} test examples",
            )
        )
    return table(rows) + "\n"
