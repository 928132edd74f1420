"""Whole sweeps in real processes: the same bytes as trainings by hand, whatever is killed on the way."""

from __future__ import annotations

import errno
import json
import multiprocessing as mp
import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from pacbayes.errors import RunError
from pacbayes.runs import Config, RunFolder, train_run, verify_run
from pacbayes.runs.check import FAILED as CHECK_FAILED
from pacbayes.runs.journal import read_journal
from pacbayes.sweeps import LocalWorkers, Progress, Result, Specification, run_sweep
from pacbayes.sweeps import trial as trials
from pacbayes.sweeps.results import made_priors
from pacbayes.sweeps.trial import COMPLETE, FAILED, PRUNED, Outcome, prior_is_there, train_trial

AXES = "prior_variance = [0.001, 0.01]\nposterior.rate = [0.002, 0.02]"


def two(device: str) -> LocalWorkers:
    return LocalWorkers(2, device)


def run(file: Path, folder: Path, **options: object) -> Result:
    return run_sweep(file, folder, two, checkpoint_seconds=0, **options)


def weights(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob("trials/*/p*.safetensors"))]


def test_a_grid_from_end_to_end(sweep_file, posterior_bounds, tmp_path):
    file = sweep_file(AXES)
    result = run(file, tmp_path / "sweep")
    record = json.loads((tmp_path / "sweep" / "sweep.json").read_text())

    assert [trial.state for trial in result.trials] == [COMPLETE] * 4
    assert result.best.bound == min(trial.bound for trial in result.trials)
    made = {trial["prior_fingerprint"] for trial in record["trials"]}
    assert len(made) == record["charge"]["priors"] == 2 and record["charge"]["delta_each"] == 0.0125
    assert record["best"]["risk_bound"] == result.certificate.risk_bound
    page = (tmp_path / "sweep" / "sweep.html").read_text("utf-8")
    assert "What was charged" in page and "Plain hold-out bound: ≤" in page and "Test error: " in page

    # The training of a trial is that of its configuration by hand, its prior borrowed or not.
    sweep = Specification.read(file)
    for trial in (result.trials[0], result.trials[-1]):
        alone = train_run(sweep.config(trial.parameters), tmp_path / f"alone-{trial.number}")
        there = RunFolder(tmp_path / "sweep" / "trials" / f"{trial.number:04d}")
        for name in ("config.toml", "history.jsonl", "prior.safetensors", "posterior.safetensors", "journal.jsonl"):
            if trial != result.best or name != "journal.jsonl":
                assert there.read(name) == alone.read(name), name
        assert trial.bound == min(posterior_bounds(alone.path))

    # One certificate, charged, which verification accepts.
    issued = list((tmp_path / "sweep").glob("trials/*/certificate.json"))
    assert issued == [result.run / "certificate.json"]
    assert (result.certificate.priors, result.certificate.delta, result.certificate.confidence) == (2, 0.025, 0.965)
    checks = {check.name: check.status for check in verify_run(RunFolder(result.run), recompute=True)}
    assert CHECK_FAILED not in checks.values() and "priors" in checks

    # Cut off before its evaluation, or before its line in the journal: it is made again, and no second certificate.
    (result.run / "evaluation.json").unlink()
    run(file, tmp_path / "sweep")
    (result.run / "evaluation.json").write_text("{}")

    # Again: nothing is trained or certified twice.
    before, files = result.certificate, weights(tmp_path / "sweep")
    assert run(file, tmp_path / "sweep").certificate == before and weights(tmp_path / "sweep") == files
    assert len(read_journal(RunFolder(result.run)).risk_bounds()) == 1
    assert (tmp_path / "sweep" / "sweep.html").read_text("utf-8") == page


def by_hand(file: Path, folder: Path, result: Result) -> list[bytes]:
    """The weights of the same trainings, one after the other in this process."""
    sweep = Specification.read(file)
    for trial in result.trials:
        train_run(sweep.config(trial.parameters), folder / "trials" / f"{trial.number:04d}")
    return weights(folder)


def test_killed_and_interrupted_a_sweep_loses_nothing(sweep_file, tmp_path, monkeypatch):
    monkeypatch.setattr("pacbayes.sweeps.runner._POLL_SECONDS", 0.03)
    file, folder = sweep_file(AXES, epochs=14), tmp_path / "sweep"
    killed: list[int] = []

    def kill(trials: Sequence[Progress]) -> None:
        """A worker while a prior is made or trained from, one in a posterior's training, then the sweep itself."""
        amid = any(each.stage == "posterior" and 2 < each.epoch < 12 for each in trials)
        if len(killed) < 2 and (amid or not killed) and (children := mp.active_children()):
            killed.append(children[0].pid)
            os.kill(children[0].pid, signal.SIGKILL)
        elif amid and len(killed) == 2 and any(each.trial.state == COMPLETE for each in trials):
            with pytest.raises(RunError, match="another process is at work"):
                run(file, folder)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(file, folder, watch=kill)
    assert len(killed) == 2 and not mp.active_children()
    finished = {path: path.stat().st_mtime_ns for path in folder.glob("trials/*/posterior.safetensors")}
    assert 0 < len(finished) < 4 and list(folder.glob("trials/*/checkpoint-posterior.safetensors"))

    result = run(folder / "sweep.toml", folder)
    assert [trial.state for trial in result.trials] == [COMPLETE] * 4
    assert finished == {path: path.stat().st_mtime_ns for path in finished}, "what is finished is not trained again"
    assert weights(folder) == by_hand(file, tmp_path / "by hand", result)


def test_a_trial_that_fails_does_not_stop_the_others(sweep_file, tmp_path):
    result = run(sweep_file("posterior.rate = [0.002, 1e30]"), tmp_path / "sweep")
    good, bad = result.trials
    assert good.state == COMPLETE and bad.state == FAILED and "not finite" in bad.message
    assert result.best == good and result.rows()[1][-1] == "failed"
    (words,) = result.failures()
    assert words == f"trial 1 failed: {bad.message}" and bad.message in (tmp_path / "sweep" / "sweep.html").read_text()


@pytest.mark.parametrize(
    "fault",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_a_full_disk_or_memory_ends_the_sweep_and_not_the_trial(fault, sweep_file, tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise fault

    folder = tmp_path / "sweep"
    file = sweep_file("posterior.rate = [0.002, 0.02]")
    with monkeypatch.context() as patch, pytest.raises(RunError, match="trial 0 cannot go on here: .*pacbayes sweep"):
        patch.setattr("pacbayes.sweeps.trial.train_run", full)
        run_sweep(file, folder, InThisProcess)
    result = run_sweep(file, folder, InThisProcess)
    assert [trial.state for trial in result.trials] == [COMPLETE] * 2


def test_a_trial_that_no_machine_has_room_for_fails_in_the_end(sweep_file, tmp_path, monkeypatch):
    """And the others go on."""
    train = trials.train_run

    def with_little_memory(config, path, **options):
        if path.name == "0000":
            raise MemoryError
        return train(config, path, **options)

    monkeypatch.setattr(trials, "train_run", with_little_memory)
    file = sweep_file("posterior.rate = [0.002, 0.02]")
    with pytest.raises(RunError, match="trial 0 cannot go on here"):
        run_sweep(file, tmp_path / "sweep", InThisProcess)
    result = run_sweep(file, tmp_path / "sweep", InThisProcess)
    assert [one.state for one in result.trials] == [FAILED, COMPLETE] and not list(tmp_path.rglob("*.halted"))


def test_a_best_trial_that_cannot_be_certified_says_why(sweep_file, tmp_path):
    class Halts(InThisProcess):
        def start(self, number, task, *arguments):
            super().start(number, task, *arguments)
            if task is trials.certify_trial:
                self.ended = [(number, Outcome(trials.HALTED, "Ray gave it up"))]

    with pytest.raises(RunError, match="trial 0 could not be certified: Ray gave it up"):
        run_sweep(sweep_file("posterior.rate = [0.002]"), tmp_path / "sweep", Halts)


class InThisProcess:
    """A worker that does each task at once."""

    size = 1

    def __init__(self, device: str):
        self.ended: list[tuple[int, Outcome]] = []

    def start(self, number: int, task: Callable[..., Outcome], *arguments: object) -> None:
        self.ended.append((number, task(*arguments)))

    def finished(self) -> list[tuple[int, Outcome]]:
        ended, self.ended = self.ended, []
        return ended

    def close(self) -> None:
        pass


def test_a_trial_is_checked_like_any_run_before_it_is_trained(data_file, tmp_path):
    config = Config().with_options({"data": str(data_file), "prior_data": str(data_file), "model": "mlp"})
    outcome = train_trial(config, tmp_path / "trial", tmp_path / "priors", tmp_path / "stop", 10.0)
    assert outcome.state == FAILED and "are among the training data" in outcome.message
    assert not (tmp_path / "trial").exists()


def test_what_a_search_proposes_again_is_not_trained_again(sweep_file, tmp_path):
    file = sweep_file("posterior.rate = [0.002, 0.02]", head='kind = "search"\ntrials = 4')
    result = run_sweep(file, tmp_path / "sweep", partial(LocalWorkers, 1))
    first = {trial.parameters["posterior.rate"]: trial for trial in reversed(result.trials)}
    assert len(result.trials) == 4 and len(list(tmp_path.glob("sweep/trials/*/data.json"))) == len(first) <= 2
    for trial in result.trials:
        same = first[trial.parameters["posterior.rate"]]
        assert trial.bound == same.bound and (trial == same or trial.message == f"as trial {same.number}")
    assert result.run.is_dir()


def test_no_trial_at_all_is_said_so(sweep_file, tmp_path):
    with pytest.raises(RunError, match="came to its end; the first: .*not finite"):
        run(sweep_file("posterior.rate = [1e30]"), tmp_path / "sweep")


def test_another_file_or_folder_is_refused(sweep_file, tmp_path):
    folder = tmp_path / "sweep"
    folder.mkdir()
    (folder / "sweep.toml").write_bytes(sweep_file("seed = [0]").read_bytes())
    with pytest.raises(RunError, match="sweep of another file. Its priors are counted"):
        run(sweep_file("seed = [0, 1]", name="other.toml"), folder)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "letter.txt").touch()
    with pytest.raises(RunError, match="holds no sweep"):
        run(sweep_file("seed = [0]"), tmp_path / "letters")
    assert [path.name for path in (tmp_path / "letters").iterdir()] == ["letter.txt"]


def test_a_sweep_does_not_go_on_with_other_data(sweep_file, data_file, tmp_path):
    file, own = sweep_file("posterior.rate = [0.01, 0.02]"), tmp_path / "own.npz"
    file.write_text(file.read_text().replace(str(data_file), str(own)))
    shutil.copy(data_file, own)
    run(file, tmp_path / "sweep")
    arrays = dict(np.load(own))
    np.savez(own, x=arrays["x"][:40], y=arrays["y"][:40])
    with pytest.raises(RunError, match="the data of the sweep in .* have changed"):
        run(file, tmp_path / "sweep")


def test_more_priors_than_charged_are_refused(tmp_path):
    """A guard against faults of the sweep itself, before anything is certified."""
    paths = {number: tmp_path / str(number) for number in range(3)}
    for number, path in paths.items():
        path.mkdir()
        (path / "prior.safetensors").write_bytes(bytes([number]))
    three = Specification.parse(b"[axes]\nseed = [0, 1, 2]").charge
    assert len(set(made_priors(tmp_path, three, paths).values())) == 3
    two = Specification.parse(b"[axes]\nseed = [0, 1]\nposterior.rate = [0.1, 0.2]").charge
    with pytest.raises(RunError, match="3 priors were made and 2 charged"):
        made_priors(tmp_path, two, paths)


def test_a_trial_that_ends_where_it_began_has_the_bound_of_its_start(sweep_file, posterior_bounds, tmp_path):
    result = run(sweep_file("posterior.rate = [50.0]"), tmp_path / "sweep")
    epochs = RunFolder(result.run).epochs()["posterior"]
    assert epochs[-1].kept == -1 and result.certificate.kl == 0
    assert result.best.bound == epochs[-1].kept_bound < min(posterior_bounds(result.run))


def test_a_trial_is_stopped_after_the_present_epoch(sweep_file, posterior_bounds, tmp_path):
    config = Specification.read(sweep_file("seed = [0]", epochs=5)).config({"seed": 0})
    train = partial(train_trial, config, tmp_path / "run", tmp_path / "priors", tmp_path / "stop", 0)
    (tmp_path / "stop").touch()
    assert train().state == PRUNED and len(posterior_bounds(tmp_path / "run")) == 1
    assert prior_is_there(config, tmp_path / "priors")
    # It could still be gone on with.
    (tmp_path / "stop").unlink()
    assert train().state == COMPLETE and len(posterior_bounds(tmp_path / "run")) == 5


def test_two_workers_never_write_to_one_folder(sweep_file, tmp_path):
    config = Specification.read(sweep_file("seed = [0]")).config({"seed": 0})
    train = partial(train_trial, config, tmp_path / "run", tmp_path / "priors", tmp_path / "stop", 0)
    with ThreadPoolExecutor(1) as other, FileLock(tmp_path / ".run.lock"):
        waiting = other.submit(train)
        time.sleep(0.3)
        assert not waiting.done() and not (tmp_path / "run").exists()
    assert waiting.result().state == COMPLETE


def test_a_folder_of_another_configuration_is_left_alone(sweep_file, tmp_path):
    config = Specification.read(sweep_file("seed = [0]")).config({"seed": 0})
    train_run(config, tmp_path / "run")
    other = config.with_options({"seed": 1})
    outcome = train_trial(other, tmp_path / "run", tmp_path / "priors", tmp_path / "stop", 0)
    assert outcome.state == FAILED and "another configuration" in outcome.message
