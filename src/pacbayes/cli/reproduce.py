"""``pacbayes reproduce``: a table or figure of the paper, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pacbayes.certificates.wording import rounded_up
from pacbayes.cli.terminal import Interrupted, print_lines, tell
from pacbayes.errors import InvalidInput
from pacbayes.experiments import Experiment, Row, experiments, referred, reproduce_affine, write_tables
from pacbayes.experiments import reproduce as reproduce_rows
from pacbayes.experiments.results import read_results


def reproduce(
    experiment: Annotated[str | None, typer.Argument(metavar="ID", help="Which one; --list shows them.")] = None,
    show: Annotated[
        bool, typer.Option("--list", help="Show the experiments; with ID its rows, and which have results.")
    ] = False,
    tables: Annotated[
        bool, typer.Option("--tables", help="Write results/README.md and its figures from the result files.")
    ] = False,
    rows: Annotated[str | None, typer.Option(help="Only these rows, separated by commas. [default: all]")] = None,
    schedule: Annotated[
        str,
        typer.Option(
            help="paper (its protocol) or short (fewer epochs, with rates, batch and optimiser to match); records, "
            "hold-out rows and some of headline have one of their own."
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

    Rows with a result of the same configuration and kind of device are not run again; a row that was cut off goes on
    where it was.
    """
    known = experiments(folder)
    if tables:
        print(f"Written: {write_tables(known, results)}")
        return
    if experiment is None:
        if rows is not None:
            raise InvalidInput("--rows would be ignored: give the ID of the experiment whose rows they are, see --list")
        _list_experiments(known, results)
        return
    if experiment not in known:
        raise InvalidInput(f"there is no experiment {experiment!r}: choose one of {', '.join(known)}")
    chosen = known[experiment]
    if show:
        _list_rows(known, chosen, results)
        return
    names = list(dict.fromkeys(name.strip() for name in rows.split(","))) if rows else list(chosen.rows)

    def configured(name: str) -> Row:
        if chosen.kind in ("affine", "headline"):
            of, there = referred(known, chosen, name)
            own = chosen.entry(name)["of"].get("schedule", schedule)
        else:
            of, there, own = chosen, name, schedule
        row = of.configured(there, own, seed, device)
        return row.with_options({"data_folder": data_folder}) if data_folder else row

    if chosen.kind == "affine":
        for name in names:
            entry, realisations = chosen.entry(name), chosen.content["realisations"]
            reproduce_affine(experiment, name, configured(name), realisations, entry["paper"], work, results, tell)
        print(f"Results: {results / experiment}.jsonl")
        return
    wanted = [configured(name) for name in names]
    try:
        reproduce_rows(wanted, work, results, concurrent=concurrent, say=tell)
    except KeyboardInterrupt:
        raise Interrupted("; the same command goes on") from None
    print(f"Results: {', '.join(sorted({f'{results / row.experiment}.jsonl' for row in wanted}))}")


def _list_experiments(known: dict[str, Experiment], results: Path) -> None:
    wide = max(map(len, known), default=0)
    for item in known.values():
        print_lines(f"{item.name:<{wide}}  {item.title} ({item.source})", hanging=wide + 2)
        with_results = sum(bool(_found(known, item, row, results)) for row in item.rows)
        print(f"{'':<{wide}}  {with_results} of {len(item.rows)} rows have results")


def _list_rows(known: dict[str, Experiment], chosen: Experiment, results: Path) -> None:
    wide = max(map(len, chosen.rows))
    for row in chosen.rows:
        print(f"{row:<{wide}}  {'; '.join(_found(known, chosen, row, results)) or 'not run'}")


def _found(known: dict[str, Experiment], of: Experiment, row: str, results: Path) -> list[str]:
    """The results of a row; of one of table 3, those of the row that it is about."""
    if of.kind == "headline":
        of, row = referred(known, of, row)
    records = [record for record in read_results(results / f"{of.name}.jsonl") if record["row"] == row]
    return [f"{_value(record)} ({record['schedule']}, seed {record['seed']})" for record in records]


def _value(record: dict[str, Any]) -> str:
    return rounded_up(record["risk_bound"], 4) if "risk_bound" in record else "run"
