"""A run that is killed, again and again, and resumed ends in the bytes of one that never was."""

from __future__ import annotations

import random
import signal
import subprocess
import time

import pytest

FILES = ("config.toml", "data.json", "history.jsonl", "prior.safetensors", "posterior.safetensors", "journal.jsonl")
STAGES = ("--pretraining-epochs", 8, "--prior-epochs", 8, "--epochs", 14)
LINES = 8 + 8 + 14


@pytest.fixture(scope="module")
def flags(data_file, tmp_path_factory):
    data = data_file(tmp_path_factory.mktemp("data") / "data.npz", m=1200)
    return (
        "--data", data, "--model", "mlp", "--batch-size", 8, "--seed", 2, "--objective", "quad", *STAGES,
        "--checkpoint-seconds", 0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def whole(process, flags, tmp_path_factory):
    """The run that is never interrupted."""
    path = tmp_path_factory.mktemp("whole") / "run"
    result = process("train", "--out", path, *flags)
    assert result.status == 0, result.err
    return path


def lines(path) -> int:
    history = path / "history.jsonl"
    return history.read_bytes().count(b"\n") if history.exists() else 0


@pytest.mark.slow
def test_killed_at_random_moments(command, environment, process, flags, whole, tmp_path):
    """Each process is killed outright as soon as it has written a random number of epochs more, and a bit."""
    path, randomness = tmp_path / "run", random.Random(7)
    kills, priors = 0, set()
    for target in sorted(randomness.sample(range(1, LINES - 2), 4)):
        first = not (path / "config.toml").exists()
        arguments = ("train", "--out", path, *(flags if first else ("--resume", "--checkpoint-seconds", 0)))
        training = subprocess.Popen(
            command(*arguments), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while training.poll() is None and lines(path) < target:
            time.sleep(0.001)
        for _ in range(randomness.randrange(20)):
            time.sleep(0.001)
        training.send_signal(signal.SIGKILL)
        kills += training.wait() == -signal.SIGKILL
        if (path / "prior.safetensors").exists():
            priors.add((path / "prior.safetensors").read_bytes())
    assert kills >= 3, "the runs ended before they could be killed"
    assert not (path / "posterior.safetensors").exists()
    result = process("train", "--resume", "--out", path)
    assert result.status == 0, result.err
    for name in FILES:
        assert (path / name).read_bytes() == (whole / name).read_bytes(), name
    assert priors <= {(whole / "prior.safetensors").read_bytes()}
    assert not list(path.glob("checkpoint-*"))


def test_resuming_the_finished_run_changes_nothing(pacbayes_main, whole):
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in whole.iterdir()}
    assert pacbayes_main("train", "--resume", "--out", whole).status == 0
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in whole.iterdir()} == before


def test_interrupted_from_the_keyboard(pacbayes_main, flags, whole, tmp_path, monkeypatch):
    """Ctrl-C: a line that says how to go on, status 130, and nothing lost."""
    seen = []

    def interrupt(bar, stage, total, epoch):
        seen.append(stage)
        if len(seen) == 20:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pacbayes.cli.progress.TrainingBar.__call__", interrupt)
        result = pacbayes_main("train", "--out", tmp_path / "run", *flags)
    assert result.status == 130 and "--resume" in result.err and "Traceback" not in result.err
    assert seen[-1] == "posterior"
    assert pacbayes_main("train", "--resume", "--out", tmp_path / "run").status == 0
    for name in FILES:
        assert (tmp_path / "run" / name).read_bytes() == (whole / name).read_bytes(), name
