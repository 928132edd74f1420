"""Certificates and run folders with made-up numbers; nothing is trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from pacbayes.certificates import Certificate
from pacbayes.certificates.evidence import derived_numbers
from pacbayes.data import as_data
from pacbayes.runs import Config, Evaluation, RunFolder
from pacbayes.runs.folder import SplitData
from pacbayes.runs.journal import start_journal
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
    return Certificate.from_record(counts | derived_numbers(**counts) | identity | words)


def history_of(bounds: list[float], stages: tuple[str, ...] = ("pretraining", "prior", "posterior")) -> str:
    lines = []
    for stage in stages:
        for number, bound in enumerate(bounds):
            epoch = Epoch(number, 0.01, 0.1, risk=bound / 2, kl=1.0 + number, penalty=0.01, bound=bound)
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
        run.history_file.write_text(history_of([0.08, 0.06, 0.07]) if history is None else history, "utf-8")
        if evaluation is not None:
            (run.path / "evaluation.json").write_text(json.dumps(asdict(evaluation)), "utf-8")
        (run.path / "prior.safetensors").write_bytes(b"")
        start_journal(run, "0" * 64, b"")
        return run

    return make
