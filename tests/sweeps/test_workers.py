"""Workers on this machine: what they send back, deaths, and that none outlives its parent."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from pacbayes.errors import InvalidInput
from pacbayes.sweeps import LocalWorkers, RayWorkers
from pacbayes.sweeps.trial import COMPLETE, FAILED, Outcome
from pacbayes.sweeps.workers import LIVES, _work


def note_and_die(path: Path, deaths: int) -> Outcome:
    with path.open("a") as file:
        file.write(f"{os.getpid()}\n")
    if len(path.read_text().splitlines()) <= deaths:
        os.kill(os.getpid(), signal.SIGKILL)
    return Outcome(COMPLETE)


def wait_for(workers: LocalWorkers, count: int) -> dict[int, Outcome]:
    ended: dict[int, Outcome] = {}
    end = time.monotonic() + 60
    while len(ended) < count and time.monotonic() < end:
        ended |= dict(workers.finished())
        time.sleep(0.02)
    return ended


def test_a_process_that_dies_is_replaced_and_the_others_go_on(tmp_path):
    workers = LocalWorkers(3)
    try:
        for number, deaths in enumerate((0, LIVES - 1, LIVES)):
            workers.start(number, note_and_die, tmp_path / str(number), deaths)
        ended = wait_for(workers, 3)
    finally:
        workers.close()
    assert (ended[0].state, ended[1].state) == (COMPLETE, COMPLETE)
    assert ended[2].state == FAILED and f"died {LIVES} times, at last with exit status -9" in ended[2].message
    tries = [len((tmp_path / str(number)).read_text().splitlines()) for number in range(3)]
    assert tries == [1, LIVES, LIVES]


def say_and_sleep(path: Path) -> Outcome:
    path.write_text(str(os.getpid()))
    time.sleep(60)
    return Outcome(COMPLETE)


def parent(path: Path) -> None:
    _, end = mp.Pipe(duplex=False)
    mp.get_context("fork").Process(target=_work, args=(end, say_and_sleep, (path,))).start()
    time.sleep(60)


def test_no_worker_outlives_a_parent_that_is_killed(tmp_path):
    process = mp.get_context("forkserver").Process(target=parent, args=(tmp_path / "pid",))
    process.start()
    end = time.monotonic() + 60
    while not (tmp_path / "pid").is_file() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < end
        time.sleep(0.02)
    worker = int((tmp_path / "pid").read_text())
    os.kill(worker, 0)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    while time.monotonic() < end:
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    pytest.fail("it lives")


class Started:
    """A process that notes which GPUs it would see."""

    seen: ClassVar[list[str]] = []

    def __init__(self, **options: object):
        pass

    def start(self) -> None:
        self.seen.append(os.environ["CUDA_VISIBLE_DEVICES"])


def test_gpus_are_dealt_out_in_turn(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert LocalWorkers(device="cuda").size == 2
    workers = LocalWorkers(3, "cuda")
    assert workers._context.get_start_method() == "spawn", "no process with a GPU is forked"
    workers._context = SimpleNamespace(Pipe=mp.Pipe, Process=Started)
    for number in range(3):
        workers.start(number, note_and_die)
    assert Started.seen == ["4", "7", "4"] and os.environ["CUDA_VISIBLE_DEVICES"] == "4,7"


def test_no_gpu_is_said_so(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(InvalidInput, match="no GPU was found"):
        LocalWorkers(device="cuda")


def test_what_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InvalidInput, match=r"pip install 'pacbayes\[ray\]'"):
        RayWorkers()


def test_a_cluster_without_a_gpu_is_said_so(monkeypatch):
    ended = []
    cluster = SimpleNamespace(
        is_initialized=lambda: False,
        init=lambda **_: None,
        cluster_resources=lambda: {"CPU": 2.0},
        shutdown=lambda: ended.append(True),
    )
    monkeypatch.setitem(sys.modules, "ray", cluster)
    with pytest.raises(InvalidInput, match="has no GPU"):
        RayWorkers(device="cuda")
    assert ended
