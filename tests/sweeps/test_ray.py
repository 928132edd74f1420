"""A sweep on a local Ray cluster: one worker is killed, then the whole sweep; here it goes on, in the same bytes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import pacbayes
from pacbayes.runs import train_run
from pacbayes.sweeps import LocalWorkers, Specification, run_sweep
from pacbayes.sweeps.trial import COMPLETE

MARK = "PACBAYES_TEST_OF_RAY"


def processes(mark: str, title: str = "") -> Iterator[int]:
    """Those that descend from the test, by their environment."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            inherited = f"{MARK}={mark}\0".encode() in (folder / "environ").read_bytes()
            if inherited and (folder / "cmdline").read_bytes().startswith(title.encode()):
                yield int(folder.name)
        except OSError:
            continue


def wait_until(condition, process, seconds=120):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end and (process is None or process.poll() is None)
        time.sleep(0.05)
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it looks for processes in /proc")
def test_a_worker_is_killed_and_then_the_sweep(sweep_file, posterior_bounds, tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'pacbayes[ray]'")
    file, folder, mark = sweep_file("posterior.rate = [0.002, 0.02]", epochs=120), tmp_path / "sweep", str(tmp_path)
    command = [sys.executable, "-m", "pacbayes", "sweep", file, "--out", folder, "--ray", "--jobs", "1"]
    source = str(Path(pacbayes.__file__).parents[1])
    # A cluster of its own, with no more workers than there are tasks.
    ray = {"RAY_ADDRESS": "local", "RAY_prestart_worker_first_driver": "0"}
    environment = {**os.environ, MARK: mark, "PYTHONPATH": source, **ray}
    with (tmp_path / "output").open("w") as output:
        process = subprocess.Popen(
            [*command, "--checkpoint-seconds", "0"],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            first, second = (folder / "trials" / name for name in ("0000", "0001"))
            wait_until(lambda: len(posterior_bounds(first)) > 5, process)
            (worker,) = processes(mark, "ray::trial 0")
            os.kill(worker, signal.SIGKILL)
            # Ray repeats the task elsewhere, and it goes on from its checkpoint.
            wait_until(lambda: (first / "posterior.safetensors").is_file(), process)
            wait_until(lambda: len(posterior_bounds(second)) > 5, process)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            wait_until(lambda: not list(processes(mark, "ray::trial")), None)
        finally:
            # Ray's agents would stay for a minute.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    written = (first / "posterior.safetensors").stat().st_mtime_ns

    result = run_sweep(folder / "sweep.toml", folder, lambda device: LocalWorkers(2, device))
    assert [trial.state for trial in result.trials] == [COMPLETE] * 2
    assert (first / "posterior.safetensors").stat().st_mtime_ns == written
    for trial, path in zip(result.trials, (first, second), strict=True):
        alone = train_run(Specification.read(file).config(trial.parameters), tmp_path / path.name)
        assert alone.read("history.jsonl") == (path / "history.jsonl").read_bytes()
        assert alone.read("posterior.safetensors") == (path / "posterior.safetensors").read_bytes()
