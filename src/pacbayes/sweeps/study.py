"""The trials of a sweep and what became of them: an Optuna study in a file of JSON lines, which outlives a crash."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pacbayes.errors import InvalidInput, RunError
from pacbayes.seeds import derived_seed
from pacbayes.sweeps.axes import Range
from pacbayes.sweeps.specification import Specification
from pacbayes.sweeps.trial import COMPLETE, FAILED, PRUNED, Outcome

NAME = "study.jsonl"
RUNNING = "running"

# Pruning: no trial before so many are complete, and none in its first epochs.
_COMPLETE_FIRST, _EPOCHS_FIRST = 5, 2


@dataclass(frozen=True)
class Trial:
    number: int
    parameters: dict[str, Any]
    state: str = RUNNING
    bound: float | None = None
    """The training's estimate, at its share of delta: of the epoch kept, or of that it was stopped with."""
    message: str = ""


class Study:
    """Which trials there are, what to try next, and when to stop one."""

    def __init__(self, folder: Path, sweep: Specification):
        optuna = optuna_installed()
        self._states = {
            optuna.trial.TrialState.COMPLETE: COMPLETE,
            optuna.trial.TrialState.PRUNED: PRUNED,
            optuna.trial.TrialState.FAIL: FAILED,
            optuna.trial.TrialState.RUNNING: RUNNING,
        }
        self._optuna, self._sweep = optuna, sweep
        pruner = optuna.pruners.MedianPruner(_COMPLETE_FIRST, _EPOCHS_FIRST)
        try:
            self._study = optuna.create_study(
                storage=_storage(optuna, folder / NAME),
                study_name="sweep",
                pruner=pruner if sweep.prune else optuna.pruners.NopPruner(),
                load_if_exists=True,
            )
            there = len(self._study.get_trials(deepcopy=False))
            begun = self._study.user_attrs.get("sweep", sweep.fingerprint)
        except (ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
            raise RunError(f"{folder / NAME} is damaged, and the sweep cannot go on: {error}") from None
        if begun != sweep.fingerprint:
            raise RunError(
                f"the sweep in {folder} was begun with other values, or on another --device. Its priors are counted "
                f"and charged: go on with the same, or take another folder"
            )
        self._study.set_user_attr("sweep", begun)
        # Another seed after each interruption: the same one would propose the first trials again.
        self._study.sampler = optuna.samplers.TPESampler(seed=derived_seed(sweep.seed, there) % 2**32)
        if sweep.kind == "grid":
            for place, parameters in enumerate(sweep.grid()):
                if place >= there:
                    self._study.enqueue_trial(parameters)

    def unfinished(self) -> list[Trial]:
        """Trials that an earlier process had begun."""
        running = (self._optuna.trial.TrialState.RUNNING,)
        return [self._suggested(found._trial_id) for found in self._study.get_trials(deepcopy=False, states=running)]

    def ask(self) -> Trial | None:
        """Another trial, if there is one."""
        trials = self._study.get_trials(deepcopy=False)
        if self._sweep.kind == "grid":
            if not any(found.state == self._optuna.trial.TrialState.WAITING for found in trials):
                return None
        elif len(trials) >= self._sweep.trials:
            return None
        return self._suggested(self._study.ask()._trial_id)

    def report(self, number: int, bounds: list[float]) -> bool:
        """Note the bound after each epoch so far; whether the trial should be stopped."""
        found = self._study.get_trials(deepcopy=False)[number]
        trial = self._optuna.trial.Trial(self._study, found._trial_id)
        for epoch in range(len(found.intermediate_values), len(bounds)):
            trial.report(bounds[epoch], epoch)
        return bool(bounds) and trial.should_prune()

    def tell(self, number: int, outcome: Outcome, bound: float | None) -> None:
        """The end of a trial."""
        found = self._study.get_trials(deepcopy=False)[number]
        if outcome.message:
            self._optuna.trial.Trial(self._study, found._trial_id).set_user_attr("message", outcome.message[:500])
        state = next(state for state, name in self._states.items() if name == outcome.state)
        self._study.tell(number, bound if outcome.state == COMPLETE else None, state)

    def trials(self) -> Iterator[Trial]:
        """All trials begun."""
        for found in self._study.get_trials(deepcopy=False):
            if found.state in self._states:
                message = found.user_attrs.get("message", "")
                yield Trial(found.number, found.params, self._states[found.state], found.value, message)

    def _suggested(self, trial_id: int) -> Trial:
        """The trial with a value for each axis; one that was cut off in between is given those that it lacks."""
        trial = self._optuna.trial.Trial(self._study, trial_id)
        for name, axis in self._sweep.axes.items():
            if not isinstance(axis, Range):
                trial.suggest_categorical(name, axis)
            elif axis.whole:
                trial.suggest_int(name, int(axis.low), int(axis.high), log=axis.log)
            else:
                trial.suggest_float(name, axis.low, axis.high, log=axis.log)
        return Trial(trial.number, trial.params)


def optuna_installed() -> Any:
    try:
        import optuna
    except ImportError:
        raise InvalidInput("sweeps need Optuna: pip install 'pacbayes[sweep]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _storage(optuna: Any, path: Path) -> Any:
    """The journal; whoever held it is gone, for the sweep's folder is locked: what was left half done is taken away."""
    (path.parent / f"{path.name}.lock").unlink(missing_ok=True)
    if path.is_file():
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            with path.open("r+b") as file:
                file.truncate(whole)
    return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
