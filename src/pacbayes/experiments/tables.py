"""``results/README.md``: the result files as tables beside the paper's numbers. Nothing in it is written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pacbayes.experiments.catalogue import Experiment
from pacbayes.experiments.runner import read_results
from pacbayes.files import write_atomically

_HEADINGS = (
    "row", "schedule, seed", "empirical risk", "test error", "penalty", "bound", "training", "certifying", "device",
    "commit",
)  # fmt: skip
_COLUMNS = ("empirical_risk", "test_error", "penalty", "risk_bound")


def write_tables(known: dict[str, Experiment], results: Path) -> Path:
    """Write the page for all experiments; rows that were not run are shown as not run."""
    parts = [
        "# Results",
        "Made by `pacbayes reproduce --tables` from the `.jsonl` files in this folder, which hold every number with "
        "its configuration, seed, machine, time and commit. Each cell is ours, then the paper's. Bounds hold with "
        "probability at least 96.5 % over the draw of the data (delta = .025, delta' = .01), by equation (final_bound) "
        "of the paper.",
    ]
    for experiment in known.values():
        parts += [f"## {experiment.name}: {experiment.title} ({experiment.source})", _table(experiment, results)]
    path = results / "README.md"
    write_atomically(path, ("\n\n".join(parts) + "\n").encode())
    return path


def _table(experiment: Experiment, results: Path) -> str:
    records = read_results(results / f"{experiment.name}.jsonl")
    lines = [
        f"| {' | '.join(_HEADINGS)} |",
        f"| {' | '.join('---' for _ in _HEADINGS)} |",
    ]
    for row in experiment.rows:
        found = [record for record in records if record["row"] == row]
        lines += [_line(record) for record in found] or [f"| {row} | not run |" + " |" * 8]
    shared = "Training times are of rows that shared the device where several ran at a time."
    return "\n".join(lines) + (f"\n\n{shared}" if records else "")


def _line(record: dict[str, Any]) -> str:
    cells = [f"{_number(record[name])} / {_number(record['paper'].get(name))}" for name in _COLUMNS]
    if record["test_error_sd"] is not None:
        cells[1] += f" (± {_number(record['test_error_sd'])})"
    times = [f"{record['train_seconds']:.0f} s", f"{record['certify_seconds']:.0f} s"]
    start = [record["row"], f"{record['schedule']}, {record['seed']}"]
    return "| " + " | ".join([*start, *cells, *times, record["device"], record["commit"][:7]]) + " |"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}".lstrip("0")
