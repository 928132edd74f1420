"""What a worker does: train one trial in its run folder, or certify the best. The folder is all that it leaves."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pacbayes.errors import PacBayesError, RunError, first_line
from pacbayes.files import sha256
from pacbayes.runs import Config, RunFolder, certify_run, evaluate_run, train_run
from pacbayes.runs.journal import check_certified, check_shown
from pacbayes.runs.train import checked_data
from pacbayes.training import Epoch

COMPLETE, PRUNED, FAILED = "complete", "pruned", "failed"
HALTED = "halted"
"""By the machine, it seems: the trial is taken up again when the sweep goes on."""


@dataclass(frozen=True)
class Outcome:
    state: str
    message: str = ""


class _Stopped(Exception):
    pass


def prior_key(config: Config) -> str:
    """The same for configurations with the same prior, on the same split."""
    shaping = {name: value for name, value in asdict(config).items() if name != "posterior"}
    return sha256(json.dumps(shaping, sort_keys=True).encode())[:16]


def prior_is_there(config: Config, priors: Path) -> bool:
    """Whether the trained prior of such a configuration was kept, or there is none to train."""
    return not _prior_stages(config) or _kept(config, priors)[-1].is_file()


def train_trial(config: Config, path: Path, priors: Path, stop: Path, checkpoint_seconds: float) -> Outcome:
    """Train in a run folder, from where it stands. A file ``stop`` that appears ends it after the present epoch.

    The first trial with a prior keeps it in the folder ``priors`` for the others: one setting, one prior, to the byte,
    whatever the device does to the last digits.
    """
    run = RunFolder(path)
    stages = _prior_stages(config)

    def watch(stage: str, total: int, epoch: Epoch) -> None:
        if stages and stage == stages[-1] and epoch.epoch + 1 == total and not prior_is_there(config, priors):
            _keep_prior(run, config, priors)
        if stage == "posterior" and epoch.epoch + 1 < total and stop.exists():
            raise _Stopped

    from filelock import FileLock

    try:
        # A worker that has lost its sweep may live on for a moment; the next one waits for it.
        with FileLock(path.with_name(f".{path.name}.lock")):
            if not run.config_file.is_file():
                RunFolder.create(path, config, checked_data(config))
            if run.config() != config:
                raise RunError(f"{path} holds a run of another configuration")
            begun = run.checkpoint_file("posterior").is_file() or run.weights_file("posterior").is_file()
            if stages and not begun and prior_is_there(config, priors):
                for stage, file in zip(stages, _kept(config, priors), strict=True):
                    shutil.copyfile(file, run.checkpoint_file(stage))
            train_run(None, path, resume=True, checkpoint_seconds=checkpoint_seconds, watch=watch)
    except _Stopped:
        return Outcome(PRUNED)
    except Exception as error:
        return Outcome(HALTED if of_the_machine(error) else FAILED, _words(error))
    return Outcome(COMPLETE)


def certify_trial(path: Path, options: Mapping[str, Any]) -> Outcome:
    """Certify a finished trial, unless it has its certificate already."""
    try:
        run = RunFolder.open(path)
        if not _noted(run, "certificate.json", check_certified):
            certify_run(run, **options)
        elif not _noted(run, "evaluation.json", check_shown):
            evaluate_run(run, test_draws=options["test_draws"])
    except Exception as error:
        return Outcome(FAILED, _words(error))
    return Outcome(COMPLETE)


def _noted(run: RunFolder, name: str, check: Callable[[RunFolder], None]) -> bool:
    """Whether the run has the file, and was not cut off between its line in the journal and the file."""
    if not os.path.lexists(run.path / name):
        return False
    try:
        check(run)
    except RunError:
        return False
    return True


def _prior_stages(config: Config) -> list[str]:
    return [stage for stage in config.epochs() if stage != "posterior"]


def _kept(config: Config, priors: Path) -> list[Path]:
    """The files of the stages that make a prior; the last is the last to be written."""
    return [priors / f"{prior_key(config)}-{stage}.safetensors" for stage in _prior_stages(config)]


def _keep_prior(run: RunFolder, config: Config, priors: Path) -> None:
    priors.mkdir(parents=True, exist_ok=True)
    for stage, file in zip(_prior_stages(config), _kept(config, priors), strict=True):
        mine = priors / f".{run.path.name}-{file.name}"
        shutil.copyfile(run.checkpoint_file(stage), mine)
        mine.replace(file)


def of_the_machine(error: Exception) -> bool:
    """Whether it is about the disk or the memory; PyTorch has words of its own where a CPU's is not enough."""
    return isinstance(error, OSError | MemoryError) or "can't allocate memory" in str(error)


def _words(error: Exception) -> str:
    first = first_line(error)
    return first if isinstance(error, PacBayesError) else f"{type(error).__name__}: {first}"
