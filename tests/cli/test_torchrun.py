"""Runs of several processes: the same certificates, one voice, and nothing lost when one of them dies."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import safetensors.torch
import torch

FILES = ("config.toml", "data.json", "history.jsonl", "prior.safetensors", "posterior.safetensors", "journal.jsonl")
LINES = 4 + 4 + 12

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")


@pytest.fixture(scope="module")
def flags(data_file, tmp_path_factory):
    # Read from disk, so that each process has its share of every batch and no more.
    data = tmp_path_factory.mktemp("data")
    with zipfile.ZipFile(data_file(data / "data.npz", m=300)) as archive:
        archive.extractall(data)
    return (
        "--data", data, "--model", "mlp", "--batch-size", 8, "--seed", 2, "--pretraining-epochs", 4,
        "--prior-epochs", 4, "--epochs", 12, "--checkpoint-seconds", 0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def whole(torchrun, flags, tmp_path_factory):
    """Trained by two processes that are left in peace."""
    path = tmp_path_factory.mktemp("whole") / "run"
    done = torchrun(2, "-m", "pacbayes", "train", "--out", path, *flags)
    assert done.status == 0, done.err
    assert done.out.count("Trained:") == 1 and done.err.count("posterior     12/12") == 1
    assert {file.name for file in path.iterdir()} == set(FILES)
    return path


def lines(path: Path) -> list[bytes]:
    history = path / "history.jsonl"
    return history.read_bytes().splitlines() if history.exists() else []


def kill_the_second(agent: subprocess.Popen, path: Path, epochs: int) -> float:
    """Kill the second process outright once so many epochs are over; the time of its end."""
    while len(lines(path)) < epochs:
        assert agent.poll() is None, agent.communicate()
        time.sleep(0.002)
    for child in Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split():
        if b"RANK=1" in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            os.kill(int(child), signal.SIGKILL)
            return time.monotonic()
    raise AssertionError("there is no second process")


@pytest.fixture
def started(torchrun_command, torchrun_environment):
    agents = []

    def start(*arguments: object, restarts: int = 0) -> subprocess.Popen:
        command = torchrun_command(2, *arguments, restarts=restarts)
        agents.append(
            subprocess.Popen(
                command, env=torchrun_environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
        return agents[-1]

    yield start
    for agent in agents:
        agent.terminate()  # it ends its processes, too
        agent.communicate()


def test_trained_as_by_one_process(pacbayes_main, flags, whole, tmp_path):
    """In float32, some 200 steps: the order of summation is all that differs."""
    assert pacbayes_main("train", "--out", tmp_path / "run", *flags).status == 0
    for which in ("prior", "posterior"):
        alone, together = (safetensors.torch.load_file(p / f"{which}.safetensors") for p in (tmp_path / "run", whole))
        for name, value in alone.items():
            torch.testing.assert_close(together[name], value, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", [("--classes", "--test-draws", 50), ("--predictor", "majority", "--voters", 3)])
def test_certificates_do_not_depend_on_the_number_of_processes(kind, pacbayes_main, torchrun, whole, tmp_path):
    """Whole visits and picked ones, votes, drawn networks, and classes: all files but for the time of issue."""
    found = []
    options = ("--seed", 7, "--draws", 1234, *kind)
    written = {"evaluation.json": ["trained", "certified", "evaluated"], "classes.json": ["classes certified"]}
    if "--classes" not in kind:
        del written["classes.json"]
    for count in (1, 2, 4):
        path = tmp_path / str(count)
        shutil.copytree(whole, path)
        if count == 1:
            assert pacbayes_main("certify", path, *options).status == 0
        else:
            done = torchrun(count, "-m", "pacbayes", "certify", path, *options)
            assert done.status == 0, done.err
            assert done.out.count("Written:") == 1 + ("--classes" in kind)
        certificate = json.loads((path / "certificate.json").read_bytes())
        assert certificate.pop("time")
        others = [(path / name).read_bytes() for name in written]
        found.append((certificate, others))
        events = [json.loads(line)["event"] for line in (path / "journal.jsonl").read_bytes().splitlines()]
        assert events == sum(written.values(), [])
        assert pacbayes_main("verify", path, "--recompute").status == 0
    assert found[0] == found[1] == found[2]
    assert found[0][0]["errors"] > 0 and (found[0][0]["vote_errors"] > 0) == ("majority" in kind)


def test_a_process_that_dies_ends_the_run_and_another_number_goes_on(started, pacbayes_main, flags, whole, tmp_path):
    path = tmp_path / "run"
    agent = started("-m", "pacbayes", "train", "--out", path, *flags)
    killed = kill_the_second(agent, path, 6)
    out, err = agent.communicate(timeout=60)
    assert time.monotonic() - killed < 10
    assert agent.returncode != 0 and "SIGKILL" in err and "Trained" not in out
    before = lines(path)
    assert 6 <= len(before) < LINES
    assert pacbayes_main("train", "--resume", "--out", path).status == 0
    # What was checkpointed was not done again: with one process it would have other last digits.
    kept = [a == b for a, b in zip(lines(path), lines(whole), strict=True)]
    assert all(kept[: len(before) - 1])
    assert pacbayes_main("certify", path, "--draws", 300, "--test-draws", 2).status == 0
    assert pacbayes_main("verify", path).status == 0


def test_torchrun_starts_a_dead_process_again(started, flags, whole, tmp_path):
    """The same command goes on where the run stood, and ends in the bytes of a run in which nobody died."""
    path = tmp_path / "run"
    agent = started("-m", "pacbayes", "train", "--out", path, *flags, restarts=1)
    kill_the_second(agent, path, 6)
    out, err = agent.communicate(timeout=120)
    assert agent.returncode == 0, err
    assert out.count("Trained:") == 1
    assert {file.name for file in path.iterdir()} == set(FILES)
    for name in FILES:
        assert (path / name).read_bytes() == (whole / name).read_bytes(), name


def test_the_message_of_a_process_that_fails_alone(torchrun, flags, tmp_path):
    done = torchrun(2, Path(__file__).with_name("one_fails.py"), "train", "--out", tmp_path / "run", *flags)
    assert done.status != 0
    assert done.err.count("error: process 1: the disk of this machine is broken") == 1


def test_what_is_wrong_for_all_is_said_once(torchrun, tmp_path):
    done = torchrun(2, "-m", "pacbayes", "train", "--out", tmp_path / "run", "--objective", "nonsense")
    assert done.status != 0 and not (tmp_path / "run").exists()
    assert done.err.count("unknown objective 'nonsense'") == 1
