"""Certificates and run folders with made-up numbers; nothing is trained."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from pacbayes.certificates import Certificate
from pacbayes.certificates.evidence import Evidence
from pacbayes.data import as_data
from pacbayes.runs import Config, Evaluation, RunFolder, certify_run, certify_run_classes, train_run
from pacbayes.runs.data import SplitData
from pacbayes.runs.journal import note, start_journal
from pacbayes.training import Epoch

DATA = as_data(([[0.0], [1.0]], [0, 1]))

NewCertificate = Callable[..., Certificate]
NewRun = Callable[..., RunFolder]


def certificate_of(
    errors: int = 4185, draws: int = 150_000, kl: float = 1.66, m: int = 719, delta: float = 0.025,
    mc_delta: float = 0.01, limit: str = "two-sided", sampling: str = "independent", **words: object,
) -> Certificate:  # fmt: skip
    visits = draws if sampling == "independent" else draws * m
    counts = {
        "errors": errors, "visits": visits, "draws": draws, "kl": kl, "m": m, "delta": delta, "mc_delta": mc_delta,
        "limit": limit, "sampling": sampling,
    }  # fmt: skip
    identity = {
        "objective": "invKL",
        "bound": "invKL",
        "prior_fingerprint": "ab" * 32,
        "posterior_fingerprint": "cd" * 32,
        "bound_data_fingerprint": "ef" * 32,
        "seed": 0,
        "versions": {"pacbayes": "0.1.0", "torch": "2.6.0"},
        "time": "2025-01-02T03:04:05+00:00",
    }
    return Certificate(**counts | Evidence(**counts).derived() | identity | words)


def history_of(
    bounds: list[float], stages: tuple[str, ...] = ("pretraining", "prior", "posterior"), keep: str = "best"
) -> str:
    lines = []
    for stage in stages:
        for number, bound in enumerate(bounds):
            kept = number if keep == "last" else bounds.index(min(bounds[: number + 1]))
            epoch = Epoch(
                number, 0.01, 0.1, risk=bound / 2, kl=1.0 + number, penalty=0.01, bound=bound, kept=kept,
                kept_bound=bounds[kept],
            )  # fmt: skip
            lines.append(json.dumps({"stage": stage} | epoch.record()) + "\n")
    return "".join(lines)


EVALUATION = Evaluation(0.036, 0.0075, 1000, 360, 0.04146)


@pytest.fixture(scope="session")
def new_certificate() -> NewCertificate:
    """A certificate whose numbers follow from its counts."""
    return certificate_of


@pytest.fixture
def new_run(tmp_path: Path) -> NewRun:
    """A run folder with these pieces; None leaves one out."""

    def make(
        certificate: Certificate | None = None,
        evaluation: Evaluation | None = EVALUATION,
        history: str | None = None,
        config: Config | None = None,
        name: str = "run",
    ) -> RunFolder:
        run = RunFolder.create(tmp_path / name, config or Config(), SplitData(None, DATA))
        (certificate or certificate_of()).save(run.certificate_file)
        keep = "last" if run.config().posterior.keeps_last else "best"
        lines = history_of([0.08, 0.06, 0.07], keep=keep) if history is None else history
        run.history_file.write_text(lines, "utf-8")
        if evaluation is not None:
            (run.path / "evaluation.json").write_text(json.dumps(asdict(evaluation)), "utf-8")
        for name in ("prior", "posterior"):
            run.weights_file(name).write_bytes(b"")
        start_journal(run, "0" * 64, b"")
        note(run, "certified", min(1.0, max(0.0, run.certificate().risk_bound)))
        if evaluation is not None:
            note(run, "evaluated")
        return run

    return make


def _trained(path: Path, data: str, model: str) -> RunFolder:
    stages = {"pretraining": {"epochs": 2}, "prior_training": {"epochs": 0}, "posterior": {"epochs": 2}}
    run = train_run(Config().with_options({"data": data, "model": model, **stages}), path)
    certify_run(run, bound="best", draws=1000, test_draws=3, seed=1)
    return run


@pytest.fixture(scope="session")
def _image_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = _trained(tmp_path_factory.mktemp("images") / "run", "digits", "mlp")
    certify_run_classes(run, draws=1000, seed=1)
    return run.path


@pytest.fixture
def image_run(_image_run: Path, tmp_path: Path) -> RunFolder:
    """A real run on images, of a moment, certified with its classes; a copy of one's own."""
    return RunFolder(shutil.copytree(_image_run, tmp_path / "image-run"))


@pytest.fixture(scope="session")
def _table_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    generator = np.random.default_rng(0)
    y = np.arange(90) % 3
    np.savez(folder / "table.npz", x=np.eye(9)[y] + generator.normal(size=(90, 9)), y=y)
    return _trained(folder / "run", str(folder / "table.npz"), "mlp").path


@pytest.fixture
def table_run(_table_run: Path, tmp_path: Path) -> RunFolder:
    """A real run on a table of numbers without a test part; a copy of one's own."""
    return RunFolder(shutil.copytree(_table_run, tmp_path / "table-run"))
