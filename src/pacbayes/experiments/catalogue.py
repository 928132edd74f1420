"""The paper's tables and figures as data files: each row a configuration, beside the paper's own numbers for it."""

from __future__ import annotations

import itertools
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pacbayes.checks import check_one_of
from pacbayes.errors import InvalidInput
from pacbayes.runs import Config
from pacbayes.runs.config import nested

SCHEDULES = ("paper", "short")
KINDS = {
    "training": "each row is trained and certified",
    "affine": "each row names a row of another experiment, whose bound is looked at around its estimated risk",
    "headline": "each row names a row of another experiment, the best of its kind so far",
    "records": "each row is trained and certified by a protocol of its own, to go below a bar",
    "holdout": "each row is trained and certified, and compared with the plain hold-out bound of its prior",
}


@dataclass(frozen=True)
class Row:
    """One training: its name in the table, its configuration, and what the paper has for it."""

    experiment: str
    row: str
    schedule: str
    config: Config
    paper: dict[str, float]
    """For a record: the bar, and the best that was published."""
    draws: int = 150_000
    """Monte-Carlo terms of the certificate, the paper's N."""
    test_draws: int = 1000
    """Drawn networks whose error on the test data is averaged."""
    certificate: dict[str, Any] = field(default_factory=dict)
    """Other options of the certificate than the paper's: bound, sampling, delta."""

    def with_options(self, options: dict[str, Any]) -> Row:
        return replace(self, config=self.config.with_options(options))


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    source: str
    rows: tuple[str, ...]
    content: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.content.get("kind", "training"))

    def entry(self, row: str) -> dict[str, Any]:
        """What the file has for a row."""
        if row not in self.rows:
            raise InvalidInput(f"{self.name} has no row {row!r}: choose from {', '.join(self.rows)}")
        return dict(next(entry for entry in self.content["rows"] if entry["row"] == row))

    def configured(self, row: str, schedule: str, seed: int, device: str) -> Row:
        """A row with a schedule: base, then schedule, then the row's own values. A record has its own schedule."""
        check_one_of("schedule", schedule, SCHEDULES)
        values = self.entry(row)
        values.pop("row")
        paper = values.pop("paper", {})
        if self.kind in ("records", "holdout"):
            schedule, of_schedule = "record", {}
        else:
            of_schedule = dict(self.content["schedules"][schedule])
        counts = {}
        for name in ("draws", "test_draws", "certificate"):
            value = values.pop(name, of_schedule.pop(name, self.content.get(name)))
            if value is not None:
                counts[name] = value
        config = Config()
        if device.startswith("cuda"):
            # What a GPU is fast at; the results stay the same within their noise.
            fast = {"precision": "bf16", "evaluate": "running"}
            config = config.with_options(dict.fromkeys(("pretraining", "prior_training", "posterior"), fast))
        for options in (self.content["base"], of_schedule, values):
            config = config.with_options(options)
        if config.ordinary is not None and device.startswith("cuda"):
            config = config.with_options({"ordinary": {"precision": "bf16"}})
        config = config.with_options({"seed": seed, "device": device})
        return Row(self.name, row, schedule, config, paper, **counts)


def experiments(folder: Path) -> dict[str, Experiment]:
    """All experiments of a folder, by name."""
    if not folder.is_dir():
        raise InvalidInput(
            f"there is no folder {folder} with experiments: run this in a checkout, or name it with --folder"
        )
    known = {path.stem: _read(path) for path in sorted(folder.glob("*.toml"))}
    for experiment in known.values():
        for entry in experiment.content["rows"]:
            if "of" in entry:
                referred(known, experiment, entry["row"])
            if entry.get("table", experiment.name) not in known:
                raise InvalidInput(f"{experiment.name}, {entry['row']}: there is no experiment {entry['table']!r}")
    return known


def referred(known: dict[str, Experiment], experiment: Experiment, row: str) -> tuple[Experiment, str]:
    """The experiment and the row there that a row of an affine or headline experiment is about."""
    of = experiment.entry(row)["of"]
    if of["experiment"] not in known or of["row"] not in known[of["experiment"]].rows:
        raise InvalidInput(f"{experiment.name}, {row}: there is no row {of['row']!r} in {of['experiment']!r}")
    return known[of["experiment"]], str(of["row"])


def _read(path: Path) -> Experiment:
    try:
        content = tomllib.loads(path.read_text("utf-8"))
        if "grid" in content:
            content["rows"] = _grid_rows(content.pop("grid"))
        rows = tuple(row["row"] for row in content["rows"])
        if any("," in row for row in rows):
            raise ValueError("a row's name may have no comma: --rows separates names by commas")
        kind = content.get("kind", "training")
        if kind not in KINDS:
            raise ValueError(f"unknown kind {kind!r}: choose one of {', '.join(KINDS)}")
        if kind in ("affine", "headline") and not all(
            {"experiment", "row"} <= row["of"].keys() for row in content["rows"]
        ):
            raise ValueError("each row needs of = { experiment = ..., row = ... }")
        if kind == "training" and not set(SCHEDULES) <= content["schedules"].keys():
            raise ValueError("it needs [base], [schedules.paper] and [schedules.short]")
        if kind == "records" and not all({"bar", "published"} <= row["paper"].keys() for row in content["rows"]):
            raise ValueError("each row needs paper = { bar = ..., published = ... }")
        return Experiment(path.stem, content["title"], content["source"], rows, content)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{path} is not an experiment: {error}") from None


def _grid_rows(grid: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values of each option; an option of a stage is written ``"posterior.kappa"``."""
    rows = []
    for values in itertools.product(*grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        words = (
            value if isinstance(value, str) else f"{option.rpartition('.')[2]} {value:g}"
            for option, value in chosen.items()
        )
        rows.append({"row": " ".join(words), **nested(chosen)})
    return rows
