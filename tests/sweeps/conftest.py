"""Sweeps of a moment: a small data file, an MLP, a few epochs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("optuna", reason="sweeps need Optuna: pip install 'pacbayes[sweep]'")

BASE = """
[base]
data = "{data}"
model = "mlp"
pretraining = {{ epochs = 2, rate = 0.1 }}
prior_training = {{ epochs = 2 }}
posterior = {{ epochs = {epochs}, batch_size = 16 }}

[certify]
draws = 300
test_draws = 2
"""


@pytest.fixture(scope="session")
def data_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes in four dimensions."""
    path = tmp_path_factory.mktemp("data") / "data.npz"
    y = np.arange(60) % 3
    np.savez(path, x=np.eye(4)[y] * 2 + np.random.default_rng(0).normal(size=(60, 4)), y=y)
    return path


@pytest.fixture
def sweep_file(data_file: Path, tmp_path: Path) -> Callable[..., Path]:
    """Writes the file of a sweep: its first lines, then a base with so many epochs, then [axes]."""

    def write(axes: str, head: str = "", epochs: int = 3, name: str = "sweep.toml") -> Path:
        path = tmp_path / name
        path.write_text(f"{head}\n{BASE.format(data=data_file, epochs=epochs)}\n[axes]\n{axes}\n")
        return path

    return write


def _posterior_bounds(path: Path) -> list[float]:
    history = path / "history.jsonl"
    lines = history.read_text().split("\n")[:-1] if history.is_file() else []
    records = [json.loads(line) for line in lines]
    return [record["bound"] for record in records if record["stage"] == "posterior"]


@pytest.fixture(scope="session")
def posterior_bounds() -> Callable[[Path], list[float]]:
    """The bound after each epoch of the posterior in a run folder, so far."""
    return _posterior_bounds
