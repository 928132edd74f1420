"""Workers of a Ray cluster: one task a core, or a GPU. Ray places them, and repeats those whose process dies."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pacbayes.errors import InvalidInput, first_line
from pacbayes.sweeps.trial import FAILED, HALTED, Outcome, of_the_machine
from pacbayes.sweeps.workers import LIVES, Task


class RayWorkers:
    """The cluster that RAY_ADDRESS names or that runs here already; else one on this machine, for as long as it takes.

    All its machines must see the sweep's folder and the data at the same paths, and have this package.
    """

    def __init__(self, jobs: int | None = None, device: str = "cpu"):
        self._running: dict[Any, int] = {}
        self._ray = ray = _ray()
        self._own = not ray.is_initialized()
        if self._own:
            try:
                ray.init(include_dashboard=False, log_to_driver=False, logging_level="error")
            except (ConnectionError, ValueError) as error:
                raise InvalidInput(f"no Ray cluster: {first_line(error)}") from None
        unit = "GPU" if device == "cuda" else "CPU"
        found = int(ray.cluster_resources().get(unit, 0))
        if not found:
            self.close()
            raise InvalidInput(f"the Ray cluster has no {unit}")
        self.size = jobs or found
        needs = {"num_cpus": 1, "num_gpus": 1 if unit == "GPU" else 0, "max_retries": LIVES - 1}
        self._run: Any = ray.remote(**needs)(_work)

    def start(self, number: int, task: Task, *arguments: Any) -> None:
        run = self._run.options(name=f"trial {number}")
        self._running[run.remote(str(Path.cwd()), task, arguments)] = number

    def finished(self) -> list[tuple[int, Outcome]]:
        if not self._running:
            return []
        ready, _ = self._ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        return [(self._running.pop(reference), self._result(reference)) for reference in ready]

    def close(self) -> None:
        for reference in self._running if self._ray.is_initialized() else ():
            self._ray.cancel(reference, force=True)
        self._running = {}
        if self._own:
            self._ray.shutdown()

    def _result(self, reference: Any) -> Outcome:
        try:
            outcome: Outcome = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            return Outcome(HALTED if of_the_machine(error) else FAILED, f"Ray gave it up: {first_line(error)}")
        return outcome


def _work(folder: str, task: Callable[..., Outcome], arguments: tuple[Any, ...]) -> Outcome:
    os.chdir(folder)
    torch.set_num_threads(1)
    return task(*arguments)


def _ray() -> Any:
    # No word to anybody about who uses it.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise InvalidInput("--ray needs Ray: pip install 'pacbayes[ray]'") from None
    return ray
