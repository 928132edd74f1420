"""The application: its commands, each of which has a file, and what holds for all of them."""

from __future__ import annotations

from typing import Annotated

import typer

from pacbayes import processes
from pacbayes.cli.bench import bench
from pacbayes.cli.certify import certify
from pacbayes.cli.compare import card, compare
from pacbayes.cli.demo import demo
from pacbayes.cli.predict import predict
from pacbayes.cli.report import report
from pacbayes.cli.reproduce import reproduce
from pacbayes.cli.sign import sign
from pacbayes.cli.store import store
from pacbayes.cli.sweep import sweep
from pacbayes.cli.train import train
from pacbayes.cli.verify import verify
from pacbayes.errors import InvalidInput
from pacbayes.versions import versions

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


app.command(short_help="Train, certify and report on embedded data.")(demo)
app.command()(train)
app.command()(certify)
app.command(short_help="Check a certificate, from its folder and the data.")(verify)
app.command(short_help="Write a page that explains a certificate.")(report)
app.command(short_help="Label new examples with the certified classifier.")(predict)
app.command()(compare)
app.command(short_help="Write a model card in Markdown.")(card)
app.command(short_help="Sign a run, or make a key.")(sign)
app.command(short_help="Write data as a folder that need not fit into memory.")(store)
app.command(short_help="Train many configurations, and certify the best.")(sweep)
app.command(short_help="Run a table or figure of the paper, or the records.")(reproduce)
app.command(short_help="Time training and certifying.")(bench)
