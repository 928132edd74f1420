from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pacbayes.errors import RunError
from pacbayes.runs import Evaluation, RunFolder


def test_an_evaluation_may_be_missing_or_partial(tmp_path: Path):
    path = tmp_path / "evaluation.json"
    missing = RunFolder(tmp_path).evaluation()
    assert replace(missing, doubts=[]) == Evaluation(None, None, 0, 0, None) and len(missing.remarks(0.1)) == 1
    partial = {"test_error": None, "test_error_sd": None, "test_draws": 0, "test_examples": 0, "holdout_bound": 0.1}
    path.write_text(json.dumps(partial))
    assert RunFolder(tmp_path).evaluation() == Evaluation(None, None, 0, 0, 0.1)


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "{}",
        "null",
        '{"test_error": 2, "test_error_sd": 0, "test_draws": 1, "test_examples": 1, "holdout_bound": null}',
        '{"test_error": NaN, "test_error_sd": 0, "test_draws": 1, "test_examples": 1, "holdout_bound": null}',
        '{"test_error": 0, "test_error_sd": 0, "test_draws": -1, "test_examples": 1, "holdout_bound": null}',
        f'{{"test_error": 0, "test_error_sd": 0, "test_draws": {10**400}, "test_examples": 1, "holdout_bound": null}}',
        '{"test_error": "<b>", "test_error_sd": 0, "test_draws": 1, "test_examples": 1, "holdout_bound": null}',
        '{"test_error": 0, "test_error_sd": 0, "test_draws": "1", "test_examples": 1, "holdout_bound": null}',
    ],
)
def test_a_damaged_evaluation_is_refused(tmp_path: Path, content: str):
    (tmp_path / "evaluation.json").write_text(content)
    with pytest.raises(RunError, match=r"evaluation\.json is damaged"):
        RunFolder(tmp_path).evaluation()
