"""``pacbayes compare`` and ``pacbayes card``: certified runs for the terminal, for a page, for a repository."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pacbayes.cli.progress import check_out, printable
from pacbayes.files import write_atomically
from pacbayes.report import COLUMNS, compare_runs, model_card, warnings, write_comparison
from pacbayes.runs import RunFolder


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders with certificates.")],
    out: Annotated[Path | None, typer.Option(help="Write a page with pictures to this .html file too.")] = None,
) -> None:
    """Show certified runs side by side."""
    check_out(out, *runs)
    found = compare_runs(runs)
    table = Table(show_edge=False, pad_edge=False)
    numbers = COLUMNS.index("m")
    for place, column in enumerate(COLUMNS):
        table.add_column(column, justify="right" if 0 < place <= numbers else "left", overflow="fold")
    for run in found:
        table.add_row(*(Text(printable(cell)) for cell in run.cells()))
    console = Console()
    # Lines for another program are not broken.
    (console if console.is_terminal else Console(width=400)).print(table)
    for line in warnings(found):
        print(f"\n{line}")
    if out is not None:
        write_comparison(found, out)
        print(f"\nWritten: {out}")


def card(
    run: Annotated[Path, typer.Argument(help="A run folder with a certificate.")],
    out: Annotated[Path | None, typer.Option(help="Write to this file, not to the screen.")] = None,
) -> None:
    """Write a model card in Markdown: what the model is, what is promised of it, and what is not."""
    check_out(out, run)
    text = model_card(RunFolder.open(run))
    if out is None:
        print(text, end="")
    else:
        write_atomically(out, text.encode("utf-8", "replace"))
        print(f"Written: {out}")
