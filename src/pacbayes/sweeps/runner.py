"""Running a sweep: trials are asked for, trained in run folders by workers, watched by their histories, and told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pacbayes.data import load
from pacbayes.errors import InvalidInput, RunError
from pacbayes.files import in_shell, write_atomically
from pacbayes.runs import Config, RunFolder
from pacbayes.sweeps.results import Result, made_priors, ranked, write_results
from pacbayes.sweeps.specification import Specification
from pacbayes.sweeps.study import Study, Trial, optuna_installed
from pacbayes.sweeps.trial import (
    COMPLETE,
    FAILED,
    HALTED,
    Outcome,
    certify_trial,
    prior_is_there,
    prior_key,
    train_trial,
)
from pacbayes.sweeps.workers import Workers
from pacbayes.training import Epoch

FILE = "sweep.toml"
_LOCK = ".lock"
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Progress:
    """A trial for those who watch: its stage and epoch while it runs."""

    trial: Trial
    stage: str = ""
    epoch: int = 0


Watch = Callable[[Sequence[Progress]], None]
"""Called again and again with the trials so far."""


def run_sweep(
    file: Path,
    folder: Path,
    workers: Callable[[str], Workers],
    *,
    device: str | None = None,
    checkpoint_seconds: float = 10.0,
    watch: Watch | None = None,
) -> Result:
    """Run the sweep of this file in a folder, or go on with it, and certify the trial with the least bound.

    ``workers`` makes the workers for a device. What an earlier process finished is not done again; trials that were
    running go on from their last checkpoint. A script calls it under ``if __name__ == "__main__":``, for its workers
    import the script.
    """
    optuna_installed()  # refused before anything is made
    sweep, content = Specification.read(file), file.read_bytes()
    if device is not None:
        sweep = sweep.with_device(device)
    # Data that are missing show before anything is made, and are fetched once.
    names = filter(None, (sweep.base.data, sweep.base.prior_data))
    data = [f"{load(name, folder=sweep.base.data_folder).fingerprint()}  {name}\n" for name in names]
    with _locked(folder):
        _begin(folder, content, "".join(data).encode())
        study = Study(folder, sweep)
        pool = workers(sweep.base.device)
        try:
            run = _Run(sweep, folder, study, pool, checkpoint_seconds, watch)
            run.train()
            return run.certified()
        finally:
            pool.close()


class _Run:
    def __init__(
        self, sweep: Specification, folder: Path, study: Study, pool: Workers, seconds: float, watch: Watch | None
    ):
        self.sweep, self.folder, self.study, self.pool = sweep, folder, study, pool
        self.seconds, self.watch = seconds, watch
        self.waiting = study.unfinished()
        self.running: dict[int, Config] = {}
        self.seen: dict[int, tuple[int, dict[str, list[Epoch]]]] = {}

    def train(self) -> None:
        """All trials that there are."""
        while True:
            while len(self.running) < self.pool.size and (trial := self._next()) is not None:
                self._start(trial)
            for number, outcome in self.pool.finished():
                if outcome.state == HALTED:
                    outcome = self._halted(number, outcome)
                self._look(number)
                bounds = self._bounds(number)
                self.study.tell(number, outcome, bounds[-1] if outcome.state == COMPLETE else None)
                self._stop_file(number).unlink(missing_ok=True)
                del self.running[number], self.seen[number]
            for number in self.running:
                self._look(number)
            if self.watch is not None:
                self.watch([self._progress(trial) for trial in self.study.trials()])
            if not self.running and not self.waiting and not self._refill():
                return
            time.sleep(_POLL_SECONDS)

    def _halted(self, number: int, outcome: Outcome) -> Outcome:
        """The second time it is the trial's own fault; the first time, the machine's, and the sweep ends."""
        mark = self._stop_file(number).with_suffix(".halted")
        if mark.is_file():
            mark.unlink()
            return replace(outcome, state=FAILED)
        with suppress(OSError):  # on a full disk none is left, and the trial is none the worse for it
            write_atomically(mark, outcome.message.encode("utf-8", "backslashreplace"))
        raise RunError(
            f"trial {number} cannot go on here: {outcome.message}. Mend that, then go on with 'pacbayes sweep "
            f"{in_shell(self.folder)}': should it end so again, it has failed, and the others go on"
        )

    def certified(self) -> Result:
        """The result, once the best trial has its certificate."""
        trials = list(self.study.trials())
        complete = [trial for trial in trials if trial.state == COMPLETE]
        if not complete:
            message = next((trial.message for trial in trials if trial.message), "all were stopped")
            raise RunError(f"no trial of {self.folder} came to its end; the first: {message}")
        priors = made_priors(self.folder, self.sweep.charge, {t.number: self._path(t.number) for t in trials})
        # One that was told the outcome of another, its like, has no run of its own.
        best = ranked([trial for trial in complete if not trial.message])[0]
        self.pool.start(best.number, certify_trial, self._path(best.number), asdict(self.sweep.certify))
        while not (ended := self.pool.finished()):
            time.sleep(_POLL_SECONDS)
        if ended[0][1].state != COMPLETE:
            raise RunError(f"trial {best.number} could not be certified: {ended[0][1].message}")
        return write_results(self.folder, self.sweep, trials, priors, best, self._path(best.number))

    def _look(self, number: int) -> None:
        """Read a history that has grown, note the bounds, and stop a trial whose bounds are bad."""
        path = self._path(number)
        size = _size(path / "history.jsonl")
        if size == self.seen[number][0]:
            return
        try:
            self.seen[number] = (size, RunFolder(path).epochs())
        except RunError:
            return  # it grew while it was read
        if self.study.report(number, self._bounds(number)):
            self._stop_file(number).touch()

    def _bounds(self, number: int) -> list[float]:
        """After each epoch of a running trial, the bound of the weights that would be kept."""
        epochs = self.seen[number][1].get("posterior", [])
        return [epoch.bound if epoch.kept_bound is None else epoch.kept_bound for epoch in epochs]

    def _next(self) -> Trial | None:
        """A trial to start now. Those whose prior is being made by another wait for it."""
        while True:
            for trial in self.waiting:
                if not self._prior_is_being_made(trial):
                    self.waiting.remove(trial)
                    return trial
            # Few wait: a search should know as much as it can before it proposes.
            if len(self.waiting) >= self.pool.size or not self._refill():
                return None

    def _refill(self) -> bool:
        trial = self.study.ask()
        if trial is None:
            return False
        self.waiting.append(trial)
        return True

    def _prior_is_being_made(self, trial: Trial) -> bool:
        try:
            config = self.sweep.config(trial.parameters)
        except InvalidInput:
            return False
        others = {prior_key(other) for other in self.running.values()}
        return prior_key(config) in others and not prior_is_there(config, self._priors)

    def _start(self, trial: Trial) -> None:
        number = trial.number
        try:
            config = self.sweep.config(trial.parameters)
        except InvalidInput as error:
            # Each value was checked alone; some do not go together.
            self.study.tell(number, Outcome(FAILED, str(error)), None)
            return
        for other in self.study.trials():
            if other.state == COMPLETE and other.parameters == trial.parameters:
                self.study.tell(number, Outcome(COMPLETE, f"as trial {other.number}"), other.bound)
                return
        self.running[number], self.seen[number] = config, (0, {})
        path = self._path(number)
        path.parent.mkdir(exist_ok=True)
        self.pool.start(number, train_trial, config, path, self._priors, self._stop_file(number), self.seconds)

    def _progress(self, trial: Trial) -> Progress:
        number = trial.number
        if number not in self.running or not (stages := self.seen[number][1]):
            return Progress(trial)
        bounds = self._bounds(number)
        stage, epochs = list(stages.items())[-1]
        return Progress(replace(trial, bound=bounds[-1] if bounds else None), stage, len(epochs))

    def _path(self, number: int) -> Path:
        return self.folder.absolute() / "trials" / f"{number:04d}"

    def _stop_file(self, number: int) -> Path:
        return self.folder.absolute() / "trials" / f"{number:04d}.stop"

    @property
    def _priors(self) -> Path:
        return self.folder.absolute() / "priors"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _begin(folder: Path, content: bytes, fingerprints: bytes) -> None:
    """Leave the sweep's file and its data's fingerprints in the folder; what is there already must be the same."""
    file, data = folder / FILE, folder / "data.txt"
    if not file.is_file():
        write_atomically(file, content)
    elif file.read_bytes() != content:
        raise RunError(
            f"{folder} holds the sweep of another file. Its priors are counted and charged: name another folder, or go "
            f"on with 'pacbayes sweep {in_shell(folder)}'"
        )
    if not data.is_file():
        write_atomically(data, fingerprints)
    elif data.read_bytes() != fingerprints:
        # Which trial is the best would then depend on more data than any of them has paid for.
        raise RunError(f"the data of the sweep in {folder} have changed: put them back, or begin in another folder")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time; the system lets go of the lock when it dies."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is not a folder: name another")
    if folder.exists() and not (folder / FILE).is_file() and {path.name for path in folder.iterdir()} - {_LOCK}:
        raise RunError(f"{folder} exists and holds no sweep: name another folder, nothing was written")
    folder.mkdir(parents=True, exist_ok=True)
    from filelock import FileLock, Timeout

    try:
        with FileLock(folder / _LOCK, timeout=0):
            yield
    except Timeout:
        raise RunError(f"another process is at work on the sweep in {folder}") from None
