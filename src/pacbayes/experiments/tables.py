"""``results/README.md``: the result files as tables and figures beside the paper's. Nothing in it is by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pacbayes.bounds import kl_inverse, penalty
from pacbayes.certificates.wording import rounded_up
from pacbayes.experiments.catalogue import Experiment, referred
from pacbayes.experiments.figures import affine_figure, grid_figure
from pacbayes.experiments.results import read_results
from pacbayes.files import write_atomically

_HEADINGS = (
    "row", "schedule, seed", "empirical risk", "test error", "penalty", "bound", "training", "certifying", "device",
    "commit",
)  # fmt: skip
_COLUMNS = ("empirical_risk", "test_error", "penalty")
_INTRODUCTION = (
    "Made by `pacbayes reproduce --tables` from the `.jsonl` files in this folder, which hold every number with its "
    "seed, machine, time and commit, all but the oldest also with their whole configuration. Bounds hold with "
    "probability at least 96.5 % over the draw of the data and of the Monte-Carlo samples, and are rounded up. In the "
    "paper's tables a cell is ours, then the paper's, and bounds are those of its section 3.5 (delta = .025, delta' = "
    ".01); records and hold-out rows have other bounds, also at 96.5 % or more."
)


# Rows of table 3 whose schedules were set with bounds in view are also shown as one of so many priors.
_PRIORS_CHARGED = 100


def write_tables(known: dict[str, Experiment], results: Path) -> Path:
    """Write the page for all experiments; rows that were not run are shown as not run."""
    parts = ["# Results", _INTRODUCTION]
    # What sums up the others comes first.
    for experiment in sorted(known.values(), key=lambda e: (e.kind != "headline", e.name)):
        parts += [
            f"## {experiment.name}: {experiment.title} ({experiment.source})",
            _section(experiment, known, results),
        ]
    parts += _speed(read_results(results / "speed.jsonl"))
    path = results / "README.md"
    write_atomically(path, ("\n\n".join(parts) + "\n").encode())
    return path


def _section(experiment: Experiment, known: dict[str, Experiment], results: Path) -> str:
    if experiment.kind == "headline":
        return headline_table(experiment, known, results)
    records = read_results(results / f"{experiment.name}.jsonl")
    if experiment.kind == "affine":
        return _affine(experiment, records, results)
    if experiment.kind == "records":
        return _records(experiment, records)
    if experiment.kind == "holdout":
        return _holdout(experiment, records)
    if len(experiment.rows) > 50:
        return _grid(experiment, records, results)
    return _table(experiment, records)


def headline_table(experiment: Experiment, known: dict[str, Experiment], results: Path) -> str:
    """Table 3: for each row the best bound there is among its like, whatever the schedule and seed."""
    lines = _heading("data, network, prior", "ours", "row, schedule, seed", "the paper", "Pérez-Ortiz et al. 2021")
    charged = []
    for row in experiment.rows:
        entry, (other, _) = experiment.entry(row), referred(known, experiment, row)
        table = entry.get("table", other.name)
        files = {name: results / f"{name}.jsonl" for name in (table, other.name)}
        found = [
            (name, record)
            for name, file in files.items()
            for record in read_results(file)
            if record["row"].startswith(entry["among"])
        ]
        name, best = min(found, key=lambda pair: float(pair[1]["risk_bound"]), default=("", None))
        ours = ["not run", "–"]
        if best is not None:
            bound = _bound(best["risk_bound"])
            ahead = best["risk_bound"] <= entry["paper"]["risk_bound"]
            of = "" if name == table else f" of {name}"
            ours = [f"**{bound}**" if ahead else bound, f"{best['row']}{of}, {best['schedule']}, {best['seed']}"]
            if of:
                level = penalty(best["kl"], best["m"], best["delta"] / _PRIORS_CHARGED)
                charged.append(f"{row} {_bound(kl_inverse(best['empirical_risk_bound'], level))}")
        paper = entry["paper"]
        cells = [row, *ours, _number(paper["risk_bound"]), _number(paper["perez_ortiz"])]
        lines.append(f"| {' | '.join(cells)} |")
    note = "Each is the best of all finished rows, as in the paper: the choice among them is not paid for."
    if charged:
        note += (
            " Nor is that of the schedules of rows that name another experiment, which were set when bounds on the "
            f"same data had been seen. As one of {_PRIORS_CHARGED} priors: {', '.join(charged)}."
        )
    return "\n".join([*lines, "", note])


def _affine(experiment: Experiment, records: list[dict[str, Any]], results: Path) -> str:
    def cells(record: dict[str, Any]) -> list[str]:
        of, paper = record["of"], record["paper"]["slope_variation"]
        return [
            f"{of['experiment']}, {of['row']}, {record['schedule']}", str(record["realisations"]),
            f"{record['mean']:.5f}", f"{record['sd']:.5f}",
            f"±{100 * record['slope_variation']:.1f} % / ±{100 * paper:.1f} %", f"{record['seconds']:.0f}",
            record["device"], record["commit"][:7],
        ]  # fmt: skip

    headings = ("row", "of", "realisations", "mean", "sd", "variation of the slope", "seconds", "device", "commit")
    newest = {record["row"]: record for record in records if record["row"] in experiment.rows}
    for row, record in newest.items():
        write_atomically(results / f"affine-{row}.svg", affine_figure(record))
    pictures = [f"![{row}](affine-{row}.svg)" for row in newest]
    return "\n\n".join([_listing(experiment, records, headings, cells), *pictures])


def _grid(experiment: Experiment, records: list[dict[str, Any]], results: Path) -> str:
    """The figure, and of each method and objective the best setting."""
    if not records:
        return f"None of {len(experiment.rows)} rows was run."
    write_atomically(results / f"{experiment.name}.svg", grid_figure(records))
    total = sum(r["train_seconds"] + r["certify_seconds"] for r in records)
    sources = sorted({f"{r['device']}, commit {r['commit'][:7]}, {r['schedule']} schedule" for r in records})
    text = (
        f"{len(records)} of {len(experiment.rows)} rows were run ({'; '.join(sources)}; {total:.0f} s, "
        f"rows side by side counted apart). The best setting of each method and objective:"
    )
    lines = _heading("method", "objective", "bound", "momentum", "kappa", "initial variance")
    for method, objective in sorted({(r["method"], r["objective"]) for r in records}):
        best = min(
            (r for r in records if (r["method"], r["objective"]) == (method, objective)), key=lambda r: r["risk_bound"]
        )
        setting = (f"{best[name]:g}" for name in ("momentum", "kappa", "prior_variance"))
        lines.append(f"| {' | '.join([method, objective, _bound(best['risk_bound']), *setting])} |")
    return "\n\n".join([f"![bounds]({experiment.name}.svg)", text, "\n".join(lines)])


def _records(experiment: Experiment, records: list[dict[str, Any]]) -> str:
    """Each row's bar, the best that was published, and every seed's bound; the record is that of seed 0."""

    def known(row: str) -> list[str]:
        paper = experiment.entry(row)["paper"]
        return [_number(paper["published"]), _number(paper["bar"])]

    def cells(record: dict[str, Any]) -> list[str]:
        return [
            str(record["seed"]), f"**{_bound(record['risk_bound'])}**",
            f"{100 * (1 - record['delta'] - record['mc_delta']):.4g} %", _priors(record["priors"]),
            _number(record["empirical_risk"]),
            _divergence(record), _bound(record["holdout_bound"]), _number(record["test_error"]),
            *_origin(record),
        ]  # fmt: skip

    headings = (
        "record", "published", "bar", "seed", "bound", "confidence", "one of", "empirical risk", "KL", "hold-out",
        "test error", "training", "certifying", "verified", "device", "commit",
    )  # fmt: skip
    return _listing(experiment, records, headings, cells, known)


def _holdout(experiment: Experiment, records: list[dict[str, Any]]) -> str:
    """The posterior's bound beside Clopper and Pearson's for the prior: its mean network, and its draws."""

    def cells(record: dict[str, Any]) -> list[str]:
        return [
            str(record["seed"]), *(_bound(record[name]) for name in ("risk_bound", "holdout_mean", "holdout_bound")),
            _number(record["empirical_risk"]), _divergence(record), _number(record["test_error"]),
            *_origin(record),
        ]  # fmt: skip

    headings = (
        "row", "seed", "posterior's bound", "hold-out bound of the prior's mean", "of its draws", "empirical risk",
        "KL", "test error", "training", "certifying", "verified", "device", "commit",
    )  # fmt: skip
    return _listing(experiment, records, headings, cells)


def _table(experiment: Experiment, records: list[dict[str, Any]]) -> str:
    def cells(record: dict[str, Any]) -> list[str]:
        pairs = [f"{_number(record[name])} / {_number(record['paper'].get(name))}" for name in _COLUMNS]
        pairs.append(f"{_bound(record['risk_bound'])} / {_number(record['paper'].get('risk_bound'))}")
        if record["test_error_sd"] is not None:
            pairs[1] += f" (± {_number(record['test_error_sd'])})"
        times = [f"{record['train_seconds']:.0f} s", f"{record['certify_seconds']:.0f} s"]
        return [f"{record['schedule']}, {record['seed']}", *pairs, *times, record["device"], record["commit"][:7]]

    shared = "Training times are of rows that shared the device where several ran at a time."
    return _listing(experiment, records, _HEADINGS, cells) + (f"\n\n{shared}" if records else "")


def _speed(records: list[dict[str, Any]]) -> list[str]:
    """What ``pacbayes bench`` measured on each device: the newest table, and of older ones what it does not have."""
    parts = []
    seen: set[tuple[str, str]] = set()
    for record in reversed(records):
        device = record["device"]
        new = [line for line in record["lines"] if (device, line["what"]) not in seen]
        if not new:
            continue
        seen |= {(device, line["what"]) for line in new}
        lines = _heading("what", "value", "remark")
        lines += [f"| {line['what']} | {line['value']:.4g} {line['unit']} | {line['remark']} |" for line in new]
        parts += [f"## speed: {device}", "\n".join([f"`pacbayes bench`, commit {record['commit'][:7]}.", "", *lines])]
    return parts


def _heading(*names: str) -> list[str]:
    return [f"| {' | '.join(names)} |", f"| {' | '.join('---' for _ in names)} |"]


def _listing(
    experiment: Experiment, records: list[dict[str, Any]], headings: Sequence[str],
    cells: Callable[[dict[str, Any]], list[str]], known: Callable[[str], list[str]] = lambda row: [],
) -> str:  # fmt: skip
    """For each row a line for each of its records, or one that says that it was not run."""
    lines = _heading(*headings)
    for row in experiment.rows:
        start = [row, *known(row)]
        found = [cells(record) for record in records if record["row"] == row]
        missing = ["not run"] + [""] * (len(headings) - len(start) - 1)
        lines += [f"| {' | '.join(start + line)} |" for line in found or [missing]]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}".lstrip("0")


def _bound(value: float | None) -> str:
    """Rounded up, as a bound must be."""
    return "–" if value is None else rounded_up(value, 4).removeprefix("0")


def _priors(count: int) -> str:
    """Among how many priors this one was, and is charged for."""
    return f"{count:,} priors" if count > 1 else "1 prior"


def _divergence(record: dict[str, Any]) -> str:
    """The divergence that is in the bound: where the prior's scale was chosen afterwards, the one that pays for it."""
    profile = str(record.get("part", "")).endswith("profile")
    return f"{record['profile_kl' if profile else 'kl']:.1f}"


def _origin(record: dict[str, Any]) -> list[str]:
    """How long a row took, what of it was verified, and where and by which code it was made."""
    checks = record.get("verification")
    times = [f"{record[name]:.0f} s" for name in ("train_seconds", "certify_seconds")]
    return [*times, "–" if checks is None else f"{checks['passed']} checks", record["device"], record["commit"][:7]]
