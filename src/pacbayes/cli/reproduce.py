"""``pacbayes reproduce``: a table of the paper, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pacbayes.cli.progress import errors
from pacbayes.errors import InvalidInput
from pacbayes.experiments import experiments, write_tables
from pacbayes.experiments import reproduce as reproduce_rows


def reproduce(
    experiment: Annotated[str | None, typer.Argument(help="Which one; --list shows them.")] = None,
    show: Annotated[bool, typer.Option("--list", help="Show the experiments and their rows.")] = False,
    tables: Annotated[bool, typer.Option("--tables", help="Write results/README.md from the result files.")] = False,
    rows: Annotated[str | None, typer.Option(help="Only these rows, separated by commas. [default: all]")] = None,
    schedule: Annotated[
        str, typer.Option(help="paper (its protocol) or short (fewer epochs, nothing else).")
    ] = "paper",
    concurrent: Annotated[int, typer.Option(min=1, help="Trainings at a time on the device.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of every row.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1.")] = "cpu",
    data_folder: Annotated[
        str, typer.Option(help="Where datasets are; else $PACBAYES_DATA, then a cache folder.")
    ] = "",
    folder: Annotated[Path, typer.Option(help="The folder with the experiments' files.")] = Path("experiments"),
    results: Annotated[Path, typer.Option(help="The folder for the results.")] = Path("results"),
    work: Annotated[Path, typer.Option(help="The folder for the runs; interrupted ones go on.")] = Path(
        "runs/reproduce"
    ),
    draws: Annotated[int, typer.Option(min=1, help="Independent Monte-Carlo terms of each certificate.")] = 150_000,
) -> None:
    """Run a table of the paper, and append each finished row to results/ID.jsonl.

    Rows that are there already are not run again; a row that was cut off goes on where it was.
    """
    known = experiments(folder)
    if tables:
        print(f"Written: {write_tables(known, results)}")
        return
    if show or experiment is None:
        for item in known.values():
            print(f"{item.name}: {item.title} ({item.source})")
            print(f"    {', '.join(item.rows)}")
        return
    if experiment not in known:
        raise InvalidInput(f"there is no experiment {experiment!r}: choose one of {', '.join(known)}")
    chosen = known[experiment]
    names = [name.strip() for name in rows.split(",")] if rows else list(chosen.rows)
    configured = [chosen.configured(name, schedule, seed, device) for name in names]
    if data_folder:
        configured = [row.with_options({"data_folder": data_folder}) for row in configured]
    path = results / f"{experiment}.jsonl"
    reproduce_rows(
        configured, work, path, concurrent=concurrent, draws=draws, say=lambda line: errors.print(line, highlight=False)
    )
    print(f"Results: {path}")
