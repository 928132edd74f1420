"""The command line, run in this process through its entry point, or as a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import pacbayes
from pacbayes import cli

SOURCE = Path(pacbayes.__file__).parents[1]


class Result(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def no_datasets_at_hand(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.delenv("PACBAYES_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def pacbayes_main(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """``pacbayes ARGUMENTS`` in this process; an exception that would be a traceback comes through."""

    def run(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["pacbayes", *map(str, arguments)])
        capsys.readouterr()
        status = 0
        try:
            cli.main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        return Result(status, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def command() -> Callable[..., list[str]]:
    return lambda *arguments: [sys.executable, "-m", "pacbayes", *map(str, arguments)]


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One thread, this source, and nobody's datasets."""
    others = {name: value for name, value in os.environ.items() if name != "PACBAYES_DATA"}
    cache = str(tmp_path_factory.mktemp("cache"))
    return {**others, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": cache}


@pytest.fixture(scope="session")
def process(command: Callable[..., list[str]], environment: dict[str, str]) -> Callable[..., Result]:
    """``python -m pacbayes ARGUMENTS`` as a process."""

    def run(*arguments: object) -> Result:
        done = subprocess.run(command(*arguments), env=environment, capture_output=True, text=True, check=False)
        return Result(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def data_file() -> Callable[..., Path]:
    """Writes a .npz file of three classes in four dimensions; arrays may be replaced."""

    def write(path: Path, m: int = 60, **arrays: np.ndarray) -> Path:
        generator = np.random.default_rng(0)
        y, y_test = np.arange(m) % 3, np.arange(30) % 3
        x, x_test = (np.eye(4)[labels] * 2 + generator.normal(size=(len(labels), 4)) for labels in (y, y_test))
        np.savez(path, **{"x": x, "y": y, "x_test": x_test, "y_test": y_test, **arrays})
        return path

    return write


OF_PRIOR = ("--pretraining-epochs", 2, "--prior-epochs", 1)
OF_POSTERIOR = ("--model", "mlp", "--epochs", 2, "--batch-size", 16, "--checkpoint-seconds", 0)


@pytest.fixture(scope="session")
def tiny() -> tuple[object, ...]:
    """Flags for a run of a moment."""
    return OF_PRIOR + OF_POSTERIOR


@pytest.fixture(scope="session")
def tiny_with() -> Callable[[str], tuple[object, ...]]:
    """The same for either kind of prior."""
    return lambda prior: ("--prior", prior, *(OF_PRIOR if prior == "learnt" else ()), *OF_POSTERIOR)


@pytest.fixture(scope="session")
def finished(tmp_path_factory, process, data_file, tiny):
    """A finished, certified run on a file of its own."""
    folder = tmp_path_factory.mktemp("finished")
    data = data_file(folder / "data.npz")
    assert process("train", "--data", data, "--out", folder / "run", *tiny).status == 0
    assert process("certify", folder / "run", "--draws", 50, "--test-draws", 2).status == 0
    return folder / "run"


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")
