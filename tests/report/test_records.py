from __future__ import annotations

import json
from pathlib import Path

import pytest

from pacbayes.errors import RunError
from pacbayes.report.records import read_evaluation, read_history
from pacbayes.runs import Evaluation

GOOD = {"stage": "posterior", "epoch": 0, "rate": 0.1, "objective": 0.2, "risk": 0.1, "kl": 1, "penalty": 0.1}
GOOD |= {"bound": 0.3}


def test_a_history_is_read_in_the_order_of_the_stages(tmp_path: Path):
    path = tmp_path / "history.jsonl"
    lines = [GOOD, GOOD | {"stage": "prior", "lam": 0.5}, GOOD | {"epoch": 1, "bound": 0.2}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    stages = read_history(path)
    assert list(stages) == ["prior", "posterior"]
    assert [epoch.bound for epoch in stages["posterior"]] == [0.3, 0.2]
    assert read_history(tmp_path / "none.jsonl") == {}


@pytest.mark.parametrize(
    "line",
    [
        '{"stage": "posterior", "epoch": 1, "ra',
        "",
        "3",
        "[]",
        "{}",
        json.dumps(GOOD | {"stage": "<script>"}),
        json.dumps(GOOD | {"stage": ["posterior"]}),
        json.dumps(GOOD | {"epoch": 3}),
        json.dumps(GOOD | {"epoch": True}),
        json.dumps(GOOD | {"epoch": 1, "risk": float("nan")}),
        json.dumps(GOOD | {"epoch": 1, "bound": 10**400}),
        json.dumps(GOOD | {"epoch": 1, "penalty": None}),
        json.dumps(GOOD | {"epoch": 1, "penalty": "0.1"}),
        json.dumps(GOOD | {"epoch": 1, "unknown": 1}),
        "[" * 100_000,
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str):
    path = tmp_path / "history.jsonl"
    path.write_text(json.dumps(GOOD) + "\n" + line + "\n")
    with pytest.raises(RunError, match=r"history\.jsonl is damaged: line 2 ") as caught:
        read_history(path)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path):
    path = tmp_path / "history.jsonl"
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(RunError, match="cannot be read"):
        read_history(path)


def test_an_evaluation_may_be_missing_or_partial(tmp_path: Path):
    path = tmp_path / "evaluation.json"
    assert read_evaluation(path) == Evaluation(None, None, 0, 0, None)
    partial = {"test_error": None, "test_error_sd": None, "test_draws": 0, "test_examples": 0, "holdout_bound": 0.1}
    path.write_text(json.dumps(partial))
    assert read_evaluation(path) == Evaluation(None, None, 0, 0, 0.1)


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "{}",
        "null",
        '{"test_error": 2, "test_error_sd": 0, "test_draws": 1, "test_examples": 1, "holdout_bound": null}',
        '{"test_error": NaN, "test_error_sd": 0, "test_draws": 1, "test_examples": 1, "holdout_bound": null}',
        '{"test_error": "<b>", "test_error_sd": 0, "test_draws": 1, "test_examples": 1, "holdout_bound": null}',
        '{"test_error": 0, "test_error_sd": 0, "test_draws": "1", "test_examples": 1, "holdout_bound": null}',
    ],
)
def test_a_damaged_evaluation_is_refused(tmp_path: Path, content: str):
    path = tmp_path / "evaluation.json"
    path.write_text(content)
    with pytest.raises(RunError, match=r"evaluation\.json is damaged"):
        read_evaluation(path)
