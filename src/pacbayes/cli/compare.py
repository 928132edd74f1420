"""``pacbayes compare`` and ``pacbayes card``: certified runs for the terminal, for a page, for a repository."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pacbayes.cli.terminal import WIDE, check_out, output, plain_table, print_lines
from pacbayes.errors import InvalidInput
from pacbayes.files import write_atomically
from pacbayes.report import COLUMNS, compare_runs, model_card, warnings, write_comparison
from pacbayes.runs import RunFolder


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders with certificates.")],
    out: Annotated[Path | None, typer.Option(help="Write a page with pictures to this .html file too.")] = None,
) -> None:
    """Show certified runs side by side."""
    check_out(out, *runs)
    if out is not None and out.suffix.lower() not in (".html", ".htm"):
        raise InvalidInput(f"--out writes a page: name a file that ends in .html, not {out}")
    found = compare_runs(runs)
    rows, console = [run.cells() for run in found], output()
    table = plain_table(COLUMNS, rows, COLUMNS.index("m"))
    if Console(width=WIDE).measure(table).maximum > console.width:
        # A run a column, where a run a line would be too wide.
        head, *lines = zip(COLUMNS, *rows, strict=True)
        table = plain_table(head, lines, len(found))
    console.print(table)
    for line in warnings(found):
        print()
        print_lines(line)
    if out is not None:
        write_comparison(found, out)
        print(f"\nWritten: {out}")


def card(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder with a certificate.")],
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
