"""``pacbayes reproduce``: a table or figure of the paper, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pacbayes.cli.terminal import tell
from pacbayes.errors import InvalidInput
from pacbayes.experiments import Experiment, Row, experiments, referred, reproduce_affine, write_tables
from pacbayes.experiments import reproduce as reproduce_rows


def reproduce(
    experiment: Annotated[str | None, typer.Argument(metavar="ID", help="Which one; --list shows them.")] = None,
    show: Annotated[bool, typer.Option("--list", help="Show the experiments and their rows.")] = False,
    tables: Annotated[
        bool, typer.Option("--tables", help="Write results/README.md and its figures from the result files.")
    ] = False,
    rows: Annotated[str | None, typer.Option(help="Only these rows, separated by commas. [default: all]")] = None,
    schedule: Annotated[
        str,
        typer.Option(
            help="paper (its protocol) or short (fewer epochs, with rates, batch and optimiser to match); records and "
            "hold-out rows have one of their own."
        ),
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
) -> None:
    """Run a table or figure of the paper, or records, and append each finished row to results/ID.jsonl.

    Rows that are there already are not run again; a row that was cut off goes on where it was.
    """
    known = experiments(folder)
    if tables:
        print(f"Written: {write_tables(known, results)}")
        return
    if show or experiment is None:
        for item in known.values():
            print(f"{item.name}: {item.title} ({item.source}), {len(item.rows)} rows")
            print(f"    {', '.join(item.rows[:20])}{', …' if len(item.rows) > 20 else ''}")
        return
    if experiment not in known:
        raise InvalidInput(f"there is no experiment {experiment!r}: choose one of {', '.join(known)}")
    chosen = known[experiment]
    names = list(dict.fromkeys(name.strip() for name in rows.split(","))) if rows else list(chosen.rows)

    def configured(of: Experiment, name: str) -> Row:
        row = of.configured(name, schedule, seed, device)
        return row.with_options({"data_folder": data_folder}) if data_folder else row

    if chosen.kind == "affine":
        for name in names:
            entry, of = chosen.entry(name), configured(*referred(known, chosen, name))
            realisations = chosen.content["realisations"]
            reproduce_affine(experiment, name, of, realisations, entry["paper"], work, results, tell)
        print(f"Results: {results / experiment}.jsonl")
        return
    pairs = [referred(known, chosen, name) if chosen.kind == "headline" else (chosen, name) for name in names]
    wanted = [configured(*pair) for pair in pairs]
    reproduce_rows(wanted, work, results, concurrent=concurrent, say=tell)
    print(f"Results: {', '.join(sorted({f'{results / row.experiment}.jsonl' for row in wanted}))}")
