"""The study: proposals, pruning by the bound, and a file that any crash leaves usable."""

from __future__ import annotations

import json
import sys

import pytest

from pacbayes.errors import InvalidInput, RunError
from pacbayes.sweeps import Specification
from pacbayes.sweeps.study import NAME, RUNNING, Study
from pacbayes.sweeps.trial import COMPLETE, FAILED, PRUNED, Outcome

SEARCH = """
kind = "search"
trials = {trials}
[axes]
prior_variance = [0.001, 0.01]
posterior.rate = {{ low = 0.001, high = 0.1, log = true }}
posterior.epochs = {{ low = 2, high = 9 }}
posterior.objective = ["invKL", "quad"]
"""


def search(trials: int) -> Specification:
    return Specification.parse(SEARCH.format(trials=trials).encode())


def test_a_search_learns_from_its_results(tmp_path):
    study = Study(tmp_path, search(40))
    for _ in range(40):
        trial = study.ask()
        rate = trial.parameters["posterior.rate"]
        study.tell(
            trial.number, Outcome(COMPLETE), abs(rate - 0.02) + 0.1 * (trial.parameters["prior_variance"] == 0.01)
        )
    assert study.ask() is None
    trials = list(study.trials())
    assert [trial.number for trial in trials] == list(range(40))
    for trial in trials:
        values = trial.parameters
        assert values["prior_variance"] in (0.001, 0.01) and 0.001 <= values["posterior.rate"] <= 0.1
        assert type(values["posterior.epochs"]) is int and 2 <= values["posterior.epochs"] <= 9
    late = [trial.bound for trial in trials[-15:]]
    assert sum(late) / 15 < sum(trial.bound for trial in trials[:10]) / 10


def test_a_trial_that_is_worse_than_most_is_stopped(tmp_path):
    study = Study(tmp_path, search(9))
    for number in range(5):
        assert study.ask().number == number
        curve = [0.5, 0.4, 0.3 + number / 100]
        assert not study.report(number, curve[:2]) and not study.report(number, curve), "the first ones are never"
        study.tell(number, Outcome(COMPLETE), curve[-1])
    bad, good = study.ask().number, study.ask().number
    assert not study.report(bad, [0.9, 0.8]), "nor is any in its first epochs"
    assert study.report(bad, [0.9, 0.8, 0.7]) and not study.report(good, [0.5, 0.4, 0.29])
    study.tell(bad, Outcome(PRUNED), None)
    assert list(study.trials())[bad].state == PRUNED and list(study.trials())[bad].bound == 0.7


def test_it_goes_on_after_a_crash_in_the_middle_of_a_line(tmp_path):
    study = Study(tmp_path, search(4))
    first, second = study.ask(), study.ask()
    study.report(first.number, [0.5])
    study.tell(first.number, Outcome(FAILED, "it is no good"), None)
    (tmp_path / f"{NAME}.lock").symlink_to(tmp_path / NAME)
    with (tmp_path / NAME).open("a") as file:
        file.write('{"op_code":5,"trial_id":')
    study = Study(tmp_path, search(4))
    assert study.unfinished() == [second]
    assert [(trial.state, trial.message) for trial in study.trials()] == [(FAILED, "it is no good"), (RUNNING, "")]
    third = study.ask()
    assert third.number == 2 and third.parameters not in (first.parameters, second.parameters)
    # No pickle: each line is JSON.
    assert all(json.loads(line) for line in (tmp_path / NAME).read_text().splitlines())


def test_a_trial_cut_off_while_it_was_asked_for_gets_its_other_values(tmp_path):
    grid = Specification.parse(b"[axes]\nseed = [0, 1]\nposterior.rate = [0.1, 0.2]")
    Study(tmp_path, grid).ask()
    lines = (tmp_path / NAME).read_text().splitlines(keepends=True)
    last = max(place for place, line in enumerate(lines) if '"param_name"' in line)
    (tmp_path / NAME).write_text("".join(lines[:last]))
    study = Study(tmp_path, grid)
    asked = [*study.unfinished(), *iter(study.ask, None)]
    assert [trial.parameters for trial in asked] == list(grid.grid())


def test_what_was_counted_stays_as_it_was(tmp_path):
    Study(tmp_path, search(2))
    Study(tmp_path, search(2))
    other = SEARCH.format(trials=2).replace("[0.001, 0.01]", "[0.001, 0.01, 0.1]")
    for changed in (search(2).with_device("cuda"), Specification.parse(other.encode())):
        with pytest.raises(RunError, match="counted and charged"):
            Study(tmp_path, changed)


def test_a_damaged_file_is_said_to_be_one(tmp_path):
    for text in ("so it goes\n", '{"op_code": 77}\n', "[]\n", '{"op_code":5,"trial_id":9}\n'):
        (tmp_path / NAME).write_text(text + text)
        with pytest.raises(RunError, match="is damaged"):
            Study(tmp_path, search(2))


def test_what_is_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InvalidInput, match=r"pip install 'pacbayes\[sweep\]'"):
        Study(tmp_path, search(2))
