"""The history and the evaluation of a run, read back from their files and checked: they may come from anywhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from pacbayes.errors import RunError
from pacbayes.files import read_plain_file, strict_json
from pacbayes.runs import Evaluation
from pacbayes.runs.config import STAGES
from pacbayes.runs.folder import FILES
from pacbayes.training import Epoch, Settings


def read_history(path: Path) -> dict[str, list[Epoch]]:
    """The epochs of each stage; no stage at all if there is no such file."""
    stages: dict[str, list[Epoch]] = {}
    for number, line in enumerate(_content(path).splitlines(), 1):
        try:
            record = strict_json(line)
            stage = stages.setdefault(record.pop("stage"), [])
            for name in ("prior_fingerprint", "previous"):
                record.pop(name, None)
            stage.append(Epoch(**record))
            whole = stages.keys() <= set(STAGES) and _is_epoch(stage[-1], len(stage) - 1)
        except (ValueError, TypeError, KeyError, AttributeError):
            whole = False
        if not whole:
            raise RunError(f"{path} is damaged: line {number} is not an epoch of a stage")
    return {name: stages[name] for name in STAGES if name in stages}


def read_evaluation(path: Path) -> Evaluation:
    """The evaluation; one in which nothing was measured if there is no such file."""
    content = _content(path)
    if not content:
        return Evaluation(None, None, 0, 0, None)
    try:
        evaluation = Evaluation(**strict_json(content))
        whole = _is_evaluation(evaluation)
    except (ValueError, TypeError):
        whole = False
    if not whole:
        raise RunError(f"{path} is damaged: it is not an evaluation. Make it again with 'pacbayes certify'")
    return evaluation


def _content(path: Path) -> str:
    if not os.path.lexists(path):
        return ""
    try:
        return read_plain_file(path, FILES[path.name]).decode("utf-8")
    except ValueError as error:
        raise RunError(f"{path} cannot be read: {error}") from None


def _is_epoch(epoch: Epoch, number: int) -> bool:
    values = (getattr(epoch, f.name) for f in fields(epoch) if f.name != "lam")
    return epoch.epoch == number and all(_within(value, -1e300, 1e300) for value in values)


def _is_evaluation(evaluation: Evaluation) -> bool:
    rates = (evaluation.test_error, evaluation.test_error_sd, evaluation.holdout_bound)
    counts = (evaluation.test_draws, evaluation.test_examples)
    return all(rate is None or _within(rate, 0, 1) for rate in rates) and all(
        type(count) is int and _within(count, 0, 1e300) for count in counts
    )


def _within(value: Any, low: float, high: float) -> bool:
    # Not true of NaN; and integers beyond all floats can still be compared.
    return type(value) in (int, float) and low <= value <= high


def kept_epoch(epochs: Sequence[Epoch], settings: Settings) -> int:
    """The number of the one whose weights were kept: the first of the smallest bound, or the last."""
    if settings.keeps_last:
        return len(epochs) - 1
    return min(range(len(epochs)), key=lambda number: epochs[number].bound)
