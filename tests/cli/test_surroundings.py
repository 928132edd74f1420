"""The commands where things are not as usual: paths, terminals, disks, interrupts, several processes."""

from __future__ import annotations

import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


@pytest.fixture
def run(tmp_path, data_file, pacbayes_main, tiny):
    path = tmp_path / "run"
    assert pacbayes_main("train", "--data", data_file(tmp_path / "data.npz"), "--out", path, *tiny).status == 0
    return path


@pytest.mark.parametrize("name", ["two words", "it's", "-dash", "$HOME", "mine.csv#kind"])
def test_what_is_suggested_can_be_pasted(name, data_file, pacbayes_main, tmp_path, tiny, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = data_file(tmp_path / "data.npz")
    trained = pacbayes_main("train", "--data", data, f"--out={name}", *tiny)
    command, subcommand, place = shlex.split(trained.out.rpartition("Next: ")[2])
    assert (command, subcommand) == ("pacbayes", "certify") and Path(place).resolve() == (tmp_path / name).resolve()
    assert pacbayes_main("certify", place, "--draws", 20, "--test-draws", 2).status == 0


def test_checks_go_into_a_file_though_the_bar_is_on_a_terminal(finished, command, environment, tmp_path):
    terminal, errors = pty.openpty()
    try:
        with (tmp_path / "checks.txt").open("w") as out:
            words = command("verify", finished, "--recompute")
            assert subprocess.run(words, env=environment, stdout=out, stderr=errors, check=False).returncode == 0
    finally:
        os.close(errors)
        os.close(terminal)
    assert "passed         Monte Carlo" in (tmp_path / "checks.txt").read_text("utf-8")


def test_a_terminal_without_the_characters_has_them_spelt_out(run, command, environment, pacbayes_main):
    assert pacbayes_main("certify", run, "--draws", 20, "--test-draws", 2).status == 0
    ascii_only = environment | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    card = subprocess.run(command("card", run), env=ascii_only, capture_output=True, text=True, check=True).stdout
    assert "| certified risk | <= " in card and "KL(Q||P)" in card and "?" not in card


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_output_that_is_full_is_said_and_nothing_is_lost(run, command, environment):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command("certify", run, "--draws", 20, "--test-draws", 2),
            env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1 and "Traceback" not in done.stderr and "What was written before is whole" in done.stderr
    assert (run / "certificate.json").is_file()


def test_a_file_that_cannot_be_written_has_its_name_in_the_error(run, pacbayes_main, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    done = pacbayes_main("certify", run, "--draws", 20, "--test-draws", 2)
    assert done.status == 1 and str(run) in done.err and "make room" in done.err


def test_a_folder_that_cannot_be_written_to_is_found_before_the_count(run, pacbayes_main, monkeypatch):
    def read_only(self, **_):
        raise OSError(30, "Read-only file system", str(self))

    monkeypatch.setattr(Path, "touch", read_only)
    monkeypatch.setattr("pacbayes.runs.certify.certify", lambda *args, **options: pytest.fail("counted"))
    done = pacbayes_main("certify", run)
    assert done.status == 1 and "Read-only file system" in done.err


def test_a_report_elsewhere_leaves_the_folder_as_it_is(run, pacbayes_main, tmp_path):
    assert pacbayes_main("certify", run, "--draws", 20, "--test-draws", 2).status == 0
    before = {file.name: file.read_bytes() for file in run.iterdir()}
    assert pacbayes_main("report", run, "--out", tmp_path / "mine.html").status == 0
    assert "Certified risk" in (tmp_path / "mine.html").read_text("utf-8")
    assert {file.name: file.read_bytes() for file in run.iterdir()} == before
    assert pacbayes_main("report", run, "--out", run / "certificate.json").status == 1


def test_an_interrupt_says_what_there_is_to_go_on_with(command, environment, tmp_path):
    path = tmp_path / "run"
    training = subprocess.Popen(
        command("train", "--data", "digits", "--model", "mlp", "--epochs", 10_000, "--out", path),
        env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        # Tests that run in the background may have been told to ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    history = path / "history.jsonl"
    while not (history.is_file() and history.stat().st_size):
        assert training.poll() is None, training.stderr.read()
        time.sleep(0.05)
    training.send_signal(signal.SIGINT)
    assert "interrupted; the same command with --resume goes on" in training.communicate(timeout=120)[1]
    # Before there is a run, there is nothing to go on with.
    code = "import sys; from pacbayes.cli import main; import pacbayes.cli.train as t\n" + (
        "def stop(*args, **options): raise KeyboardInterrupt\n"
        "t.train_run = stop; sys.argv = ['pacbayes', 'train', '--data', 'digits', '--out', sys.argv[1]]; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "none")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "interrupted" in done.stderr and "--resume" not in done.stderr


@pytest.mark.parametrize("start", [["-m", "pacbayes"], ["-c", "from pacbayes.__main__ import main; main()"]])
def test_an_interrupt_while_pytorch_is_imported(start, environment, tmp_path):
    # NumPy does so: it catches everything, goes on, and then fails.
    swallows = "import time\ntry: print('importing', flush=True); time.sleep(120)\nexcept BaseException: import nothing"
    (tmp_path / "torch.py").write_text(swallows)
    slow = environment | {"PYTHONPATH": os.pathsep.join([str(tmp_path), environment["PYTHONPATH"]])}
    training = subprocess.Popen(
        [sys.executable, *start, "train", "--data", "digits", "--out", str(tmp_path / "run")],
        env=slow, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert training.stdout.readline() == "importing\n", training.stderr.read()
    training.send_signal(signal.SIGINT)
    assert training.communicate(timeout=60)[1] == "interrupted\n" and training.returncode == 130


def test_commands_that_are_one_process_say_so(run, pacbayes_main, monkeypatch):
    for name, value in {"TORCHELASTIC_RUN_ID": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    done = pacbayes_main("verify", run)
    assert done.status == 1 and "run 'pacbayes verify' without torchrun" in done.err
