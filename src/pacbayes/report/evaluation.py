"""The evaluation of a run, read back from its file and checked: it may come from anywhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pacbayes.errors import RunError
from pacbayes.files import read_plain_file, strict_json
from pacbayes.runs import Evaluation
from pacbayes.runs.folder import FILES


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


def _is_evaluation(evaluation: Evaluation) -> bool:
    rates = (evaluation.test_error, evaluation.test_error_sd, evaluation.holdout_bound)
    counts = (evaluation.test_draws, evaluation.test_examples)
    return all(rate is None or _within(rate, 0, 1) for rate in rates) and all(
        type(count) is int and _within(count, 0, 1e300) for count in counts
    )


def _within(value: Any, low: float, high: float) -> bool:
    # Not true of NaN; and integers beyond all floats can still be compared.
    return type(value) in (int, float) and low <= value <= high
