"""Workers on this machine: one process a task, with one thread, and a GPU where there are any."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

import torch

from pacbayes.errors import InvalidInput
from pacbayes.sweeps.trial import FAILED, Outcome

LIVES = 3
"""How often a task is tried whose process dies; it goes on from its last checkpoint."""

# What data and optimisers import when they are first used, which takes seconds.
_IMPORTED_LATER = ("torch._dynamo", "sklearn.datasets")

_VISIBLE = "CUDA_VISIBLE_DEVICES"

Task = Callable[..., Outcome]


class Workers(Protocol):
    """Where tasks run: functions of a module, with arguments that can be pickled."""

    size: int

    def start(self, number: int, task: Task, *arguments: Any) -> None:
        """Begin a task; there is room for ``size`` of them."""

    def finished(self) -> list[tuple[int, Outcome]]:
        """The tasks that have ended since the last call, without waiting."""

    def close(self) -> None:
        """End all that still runs."""


@dataclass
class _Running:
    task: Task
    arguments: tuple[Any, ...]
    place: int
    process: Any
    results: Connection
    lives: int


class LocalWorkers:
    """Processes of this machine; tasks on GPUs are dealt out in turn."""

    def __init__(self, jobs: int | None = None, device: str = "cpu"):
        self.gpus = _gpus() if device == "cuda" else []
        if device == "cuda" and not self.gpus:
            raise InvalidInput("device 'cuda' cannot be used: no GPU was found")
        self.size = jobs or len(self.gpus) or (_cores() if device == "cpu" else 1)
        # Processes from a server that has imported everything start in no time; but none with a GPU may be forked.
        served = device == "cpu" and "forkserver" in mp.get_all_start_methods()
        method = "forkserver" if served else "spawn"
        self._context: Any = mp.get_context(method)
        if method == "forkserver":
            self._context.set_forkserver_preload(["pacbayes.sweeps.trial", *_IMPORTED_LATER])
        self._running: dict[int, _Running] = {}

    def start(self, number: int, task: Task, *arguments: Any) -> None:
        taken = {running.place for running in self._running.values()}
        place = next(place for place in range(self.size) if place not in taken)
        self._running[number] = self._begin(task, arguments, place, LIVES)

    def finished(self) -> list[tuple[int, Outcome]]:
        ended = []
        for number, running in list(self._running.items()):
            alive = running.process.is_alive()
            outcome = _received(running.results)
            if outcome is None and alive:
                continue
            _end(running)
            del self._running[number]
            if outcome is None and running.lives > 1:
                self._running[number] = self._begin(running.task, running.arguments, running.place, running.lives - 1)
                continue
            died = f"its process died {LIVES} times, at last with exit status {running.process.exitcode}"
            ended.append((number, outcome or Outcome(FAILED, died)))
        return ended

    def close(self) -> None:
        for running in self._running.values():
            running.process.terminate()
        for running in self._running.values():
            _end(running)
        self._running = {}

    def _begin(self, task: Task, arguments: tuple[Any, ...], place: int, lives: int) -> _Running:
        results, end = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(end, task, arguments), daemon=True)
        with _seeing(self.gpus[place % len(self.gpus)] if self.gpus else None):
            process.start()
        end.close()
        return _Running(task, arguments, place, process, results, lives)


@contextmanager
def _seeing(gpu: str | None) -> Iterator[None]:
    """Processes started meanwhile see this GPU alone: it must be so before they import anything."""
    if gpu is None:
        yield
        return
    before = os.environ.get(_VISIBLE)
    os.environ[_VISIBLE] = gpu
    try:
        yield
    finally:
        os.environ.pop(_VISIBLE)
        if before is not None:
            os.environ[_VISIBLE] = before


def _end(running: _Running) -> None:
    """Wait for a process that has nothing left to do, and not for ever."""
    running.process.join(10)
    if running.process.is_alive():
        running.process.kill()
        running.process.join()
    running.results.close()


def _work(results: Connection, task: Task, arguments: tuple[Any, ...]) -> None:
    """In the process: do the task and send what came of it."""
    # An interrupt is for the parent, which ends its workers; and none outlives a parent that was killed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    results.send(task(*arguments))


def _end_with_parent() -> None:
    parent = mp.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _received(results: Connection) -> Outcome | None:
    try:
        return results.recv() if results.poll() else None
    except (EOFError, OSError):
        return None


def _gpus() -> list[str]:
    visible = os.environ.get(_VISIBLE)
    count = torch.cuda.device_count()
    return visible.split(",")[:count] if visible else [str(place) for place in range(count)]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
