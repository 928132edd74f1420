"""The paper's tables as data files: each row a configuration, beside the paper's own numbers for it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pacbayes.errors import InvalidInput
from pacbayes.runs import Config

SCHEDULES = ("paper", "short")


@dataclass(frozen=True)
class Row:
    """One training: its name in the table, its configuration, and what the paper has for it."""

    experiment: str
    row: str
    schedule: str
    config: Config
    paper: dict[str, float]

    def with_options(self, options: dict[str, Any]) -> Row:
        return replace(self, config=self.config.with_options(options))


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    source: str
    rows: tuple[str, ...]
    _content: dict[str, Any]

    def configured(self, row: str, schedule: str, seed: int, device: str) -> Row:
        """A row with a schedule: base, then schedule, then the row's own values."""
        if row not in self.rows:
            raise InvalidInput(f"{self.name} has no row {row!r}: choose from {', '.join(self.rows)}")
        if schedule not in SCHEDULES:
            raise InvalidInput(f"unknown schedule {schedule!r}: choose one of {', '.join(SCHEDULES)}")
        values = dict(next(r for r in self._content["rows"] if r["row"] == row))
        values.pop("row")
        paper = values.pop("paper", {})
        config = Config()
        if device.startswith("cuda"):
            # What a GPU is fast at; the results stay the same within their noise.
            fast = {"precision": "bf16", "evaluate": "running"}
            config = config.with_options(dict.fromkeys(("pretraining", "prior_training", "posterior"), fast))
        for options in (self._content["base"], self._content["schedules"][schedule], values):
            config = config.with_options(options)
        config = config.with_options({"seed": seed, "device": device})
        return Row(self.name, row, schedule, config, paper)


def experiments(folder: Path) -> dict[str, Experiment]:
    """All experiments of a folder, by name."""
    if not folder.is_dir():
        raise InvalidInput(
            f"there is no folder {folder} with experiments: run this in a checkout, or name it with --folder"
        )
    return {path.stem: _read(path) for path in sorted(folder.glob("*.toml"))}


def _read(path: Path) -> Experiment:
    try:
        content = tomllib.loads(path.read_text("utf-8"))
        rows = tuple(row["row"] for row in content["rows"])
        if not {"base", "schedules"} <= content.keys() or not set(SCHEDULES) <= content["schedules"].keys():
            raise ValueError("it needs [base], [schedules.paper] and [schedules.short]")
        return Experiment(path.stem, content["title"], content["source"], rows, content)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{path} is not an experiment: {error}") from None
