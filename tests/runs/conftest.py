"""Tiny runs: a data file of one's own and a configuration that takes a moment."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pacbayes.files import sha256
from pacbayes.report import write_report
from pacbayes.runs import Config, RunFolder, certify_run, certify_run_classes, train_run
from pacbayes.runs.history import chain_start
from pacbayes.runs.journal import Line, read_journal


def write_data(path: Path, m: int = 60, seed: int = 0) -> Path:
    generator = np.random.default_rng(seed)
    y, y_test = np.arange(m) % 3, np.arange(30) % 3
    noise, noise_test = (generator.normal(size=(n, 4)) for n in (m, 30))
    np.savez(path, x=np.eye(4)[y] * 2 + noise, y=y, x_test=np.eye(4)[y_test] * 2 + noise_test, y_test=y_test)
    return path


@pytest.fixture(scope="session")
def data_file() -> Callable[..., Path]:
    """Writes a .npz file of three classes in four dimensions."""
    return write_data


def tiny_config(data: Path, **options: object) -> Config:
    stages = {
        "pretraining": {"epochs": 2, "rate": 0.1},
        "prior_training": {"epochs": 2},
        "posterior": {"epochs": 3, "batch_size": 16},
    }
    return Config().with_options({"data": str(data), "model": "mlp", **stages, **options})


@pytest.fixture(scope="session")
def tiny() -> Callable[..., Config]:
    """A configuration of a few epochs on a data file."""
    return tiny_config


@pytest.fixture(scope="session")
def _certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certified")
    write_data(folder / "data.npz")
    with contextlib.chdir(folder):
        run = train_run(tiny_config(Path("data.npz")), folder / "run")
        certify_run(run, draws=300, test_draws=5, seed=1)
    return folder


@pytest.fixture
def certified(_certified: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A certified run of one's own to spoil, with its data file beside it, which is where we are."""
    shutil.copytree(_certified, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return RunFolder(tmp_path / "run")


@pytest.fixture(scope="session")
def _single(_certified: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("single")
    shutil.copytree(_certified, folder, dirs_exist_ok=True)
    with contextlib.chdir(folder):
        run = RunFolder(folder / "run")
        certify_run(run, predictor="single", bound="best", test_draws=5, seed=2)
        certify_run_classes(run, draws=200, seed=3)
        write_report(run)
    return folder


@pytest.fixture
def everything(_single: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run certified twice, the second time for a single network and for each class: it has every file but one."""
    shutil.copytree(_single, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return RunFolder(tmp_path / "run")


def _agree(run: RunFolder, history_end: str | None = None) -> None:
    lines: list[Line] = []
    for line in read_journal(run).lines:
        wrote = {
            name: sha256(run.read(name)) if (run.path / name).is_file() else old for name, old in line.wrote.items()
        }
        lines.append(replace(line, wrote=wrote, previous=lines[-1].hash if lines else history_end or line.previous))
    (run.path / "journal.jsonl").write_text("".join(line.text() for line in lines))


@pytest.fixture(scope="session")
def agree() -> Callable[[RunFolder], None]:
    """What a careful forger does: the journal is written anew, so that it agrees with the files as they are now."""
    return _agree


def _forge(run: RunFolder) -> None:
    lines: list[bytes] = []
    end = chain_start(run.read("config.toml"), run.read("data.json"))
    for line in run.read("history.jsonl").splitlines():
        record = json.loads(line)
        if "prior_fingerprint" in record:
            record["prior_fingerprint"] = sha256(run.read("prior.safetensors"))
        lines.append(json.dumps({**record, "previous": end}).encode())
        end = sha256(lines[-1])
    run.history_file.write_bytes(b"".join(line + b"\n" for line in lines))
    _agree(run, end)


@pytest.fixture(scope="session")
def forge() -> Callable[[RunFolder], None]:
    """What the most careful forger does: history and journal are both written anew, and all hashes agree."""
    return _forge
