"""Folders made by an enemy: a clear refusal, nothing run, nothing waited for, nothing written elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from pacbayes.errors import PacBayesError, RunError
from pacbayes.files import read_plain_file, strict_json, write_atomically
from pacbayes.report import write_report
from pacbayes.runs import Config, RunFolder, certify_run, predict_run, train_run, verify_run
from pacbayes.runs.check import FAILED
from pacbayes.runs.networks import parameters_of
from pacbayes.runs.weights import read_weights

USES = {
    "verify": verify_run,
    "certify": lambda run: certify_run(run, draws=10, test_draws=1),
    "predict": lambda run: predict_run(run, torch.zeros(2, 4)),
    "report": write_report,
}
READ_BY = {
    "config.toml": USES, "data.json": ["verify", "certify", "predict"], "history.jsonl": USES,
    "prior.safetensors": ["verify", "certify", "predict"], "posterior.safetensors": ["verify", "certify", "predict"],
    "journal.jsonl": USES, "certificate.json": ["verify", "report"], "evaluation.json": ["verify", "report"],
    "report.html": ["verify"],
}  # fmt: skip


@pytest.fixture
def whole(certified) -> RunFolder:
    write_report(certified)
    return certified


def refused(run: RunFolder, name: str, uses) -> None:
    """Every use that reads the file refuses, and says which file."""
    for use in uses:
        if use == "verify":
            failed = [check for check in verify_run(run) if check.status == FAILED]
            assert any(name in f"{check.name} {check.detail}" for check in failed)
            continue
        with pytest.raises(PacBayesError) as caught:
            USES[use](run)
        assert name in str(caught.value) or name in ("config.toml", "data.json")
        assert len(str(caught.value)) < 1000


def put_link(path):
    path.symlink_to(path.rename(path.parent.parent / "elsewhere"))


PLANTED = {
    "a link to the very content": put_link,
    "a link to nowhere": lambda path: (path.unlink(), path.symlink_to("/nowhere")),
    "a link to itself": lambda path: (path.unlink(), path.symlink_to(path)),
    "an endless device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a hole of a terabyte": lambda path: os.truncate(path, 2**40),
    "nothing at all": lambda path: os.truncate(path, 0),
}


@pytest.mark.parametrize("case", PLANTED)
@pytest.mark.parametrize("name", sorted(READ_BY))
def test_what_is_no_plain_file_of_a_reasonable_size(name, case, whole):
    PLANTED[case](whole.path / name)
    # Some empty files say something: verify finds them by their hash.
    empty = case == "nothing at all" and name in ("config.toml", "history.jsonl", "evaluation.json")
    refused(whole, name, ["verify"] if empty else READ_BY[name])


def test_what_is_written_is_written_into_the_folder_and_nowhere_else(whole, tmp_path):
    """Links lie where files and their neighbours will be written."""
    precious = tmp_path / "precious"
    precious.write_text("mine")
    for name in ("report.html", ".report.html.partial", ".journal.jsonl.partial", ".certificate.json.partial"):
        (whole.path / name).unlink(missing_ok=True)
        (whole.path / name).symlink_to(precious)
    write_report(whole)
    certify_run(whole, draws=10, test_draws=1)
    assert precious.read_text() == "mine"
    assert not (whole.path / "report.html").is_symlink() and not (whole.path / "certificate.json").is_symlink()


def test_a_resumed_run_does_not_write_through_links(tiny, data_file, tmp_path):
    run = train_run(tiny(data_file(tmp_path / "data.npz")), tmp_path / "run")
    (tmp_path / "precious").write_text("mine")
    (run.path / "journal.jsonl").unlink()
    for name in ("posterior.safetensors", "history.jsonl", "prior.safetensors"):
        (run.path / name).unlink()
        (run.path / name).symlink_to(tmp_path / ("precious" if name != "posterior.safetensors" else "nowhere"))
    train_run(None, run.path, resume=True)
    assert (tmp_path / "precious").read_text() == "mine" and not (tmp_path / "nowhere").exists()
    for name in ("posterior.safetensors", "journal.jsonl"):
        (run.path / name).unlink()
    (run.path / "journal.jsonl").symlink_to(tmp_path / "precious")
    with pytest.raises(RunError, match="symbolic link"):
        train_run(None, run.path, resume=True)
    assert (tmp_path / "precious").read_text() == "mine"


SHAPES = [[2**31 - 1], [2**30, 2**30, 2**30], [1] * 3000, [5], [], [4, 1], [0], [-4], [4.0], ["4"], 4, None]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape)[:20])
def test_sizes_in_data_json_make_no_network_larger_than_its_files(shape, whole, forge):
    record = json.loads(whole.read("data.json"))
    whole.data_file.write_text(json.dumps(record | {"shape": shape}))
    forge(whole)
    for use in ("certify", "predict"):
        with pytest.raises(PacBayesError):
            USES[use](whole)
    assert "KL" in {check.name for check in verify_run(whole) if check.status == FAILED}


def test_the_size_of_a_network_is_known_before_any_memory_is_taken():
    assert parameters_of(Config().with_options({"model": "mlp"}), (2**31 - 1,), 2) == 100 * 2**31 + 202


def test_a_weight_file_of_nothing_but_names_is_refused(monkeypatch):
    content = safetensors.torch.save({f"{number:060}": torch.zeros(0) for number in range(10_000)})
    monkeypatch.setattr("safetensors.torch.load", lambda content: pytest.fail("read"))
    with pytest.raises(RunError, match="posterior is not a safetensors file of a network: its header has [0-9]+ bytes"):
        read_weights(content, "posterior")


@pytest.mark.parametrize("classes", [2**31 - 1, 2, 4, 0, 3.0, "3", None])
def test_classes_that_are_not_those_of_the_weights(classes, whole, forge):
    record = json.loads(whole.read("data.json"))
    whole.data_file.write_text(json.dumps(record | {"classes": classes}))
    forge(whole)
    with pytest.raises(PacBayesError):
        predict_run(whole, torch.zeros(2, 4))
    assert "KL" in {check.name for check in verify_run(whole) if check.status == FAILED}


@pytest.mark.parametrize("epochs", ["epochs = 100000000000", 'schedule = "100000000000@0.1"', "rate = " + "9" * 400])
def test_schedules_without_end_are_refused(epochs, whole, forge):
    text = whole.config_file.read_text()
    name = epochs.split(" = ")[0]
    head, _, tail = text.partition("[posterior]")
    lines = [epochs if line.startswith(f"{name} = ") else line for line in tail.split("\n")]
    whole.config_file.write_text(head + "[posterior]" + "\n".join(lines))
    forge(whole)
    for use in USES.values():
        if use is verify_run:
            assert any(check.status == FAILED for check in verify_run(whole))
        else:
            with pytest.raises(PacBayesError):
                use(whole)


@pytest.mark.parametrize(
    "text", ["NaN", "-Infinity", "1e999", '{"a": 1, "a": 2}', "[" * 100_000, '{"a":' * 100_000, ""]
)
def test_json_that_does_not_mean_one_thing(text):
    with pytest.raises(ValueError):
        strict_json(text)


def test_what_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "nowhere"):
        for use in USES.values():
            with pytest.raises(PacBayesError):
                use(RunFolder(path))


def test_json_in_another_encoding_is_refused():
    with pytest.raises(ValueError):
        strict_json('{"a": 1}'.encode("utf-16"))


def test_a_file_is_read_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_plain_file(path, 5) == b"12345"
    with pytest.raises(RunError, match="too large: 5 bytes, where at most 4"):
        read_plain_file(path, 4)
    with pytest.raises(RunError, match="missing"):
        read_plain_file(tmp_path / "none", 4)
    with pytest.raises(RunError, match="symbolic link"):
        (tmp_path / "link").symlink_to(path)
        read_plain_file(tmp_path / "link", 5)


def test_a_write_replaces_a_link_and_not_its_target(tmp_path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "target").read_text() == "old" and (tmp_path / "link").read_text() == "new"


def bomb(path, count: int) -> None:
    """A small archive of an array of zeros, float32 [count, 1]."""
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 1), }" % count
    header += b" " * (117 - len(header)) + b"\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
        for _ in range(count // 2**20):
            file.write(bytes(2**22))


@pytest.mark.slow
def test_memory_stays_bounded(whole, tmp_path, forge):
    """All commands on several folders, in a process that may take half a gigabyte more than it starts with."""
    bomb(tmp_path / "bomb.npz", 2**28)
    assert (tmp_path / "bomb.npz").stat().st_size < 2**21
    record, config = json.loads(whole.read("data.json")), whole.config_file.read_text()
    traps = {
        "shape": ("data.json", json.dumps(record | {"shape": [2**30]})),
        "nested": ("certificate.json", "[" * 900_000),
        "history": ("history.jsonl", "{}\n" * 2**20),
        "data": ("config.toml", config.replace("data.npz", "bomb.npz")),
        "epochs": ("config.toml", config.replace("epochs = 3", "epochs = 40000")),
    }
    program = textwrap.dedent("""
        import resource, sys, torch
        from pathlib import Path
        from pacbayes.errors import PacBayesError
        from pacbayes.data import load_inputs
        from pacbayes.report import write_report
        from pacbayes.runs import RunFolder, certify_run, predict_run, verify_run
        torch.set_num_threads(1)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**29, used + 2**29))
        uses = (verify_run, write_report, lambda run: certify_run(run, draws=10, test_draws=1),
                lambda run: predict_run(run, torch.zeros(2, 4)), lambda run: load_inputs("bomb.npz"))
        for path in sys.argv[1:]:
            for use in uses:
                try:
                    found = use(RunFolder(Path(path)))
                    failed = use is verify_run and any(check.status == "failed" for check in found)
                    print("found" if failed else "done")
                except PacBayesError as error:
                    print("refused", str(error)[:200])
    """)
    folders = []
    for name, (file, content) in traps.items():
        folders.append(RunFolder(Path(shutil.copytree(whole.path, tmp_path / name))))
        (folders[-1].path / file).write_text(content)
        if name in ("shape", "data", "epochs"):
            forge(folders[-1])
    command = [sys.executable, "-c", program, *(run.path for run in folders)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    for name, found, *_, inputs in zip(traps, *(lines[k::5] for k in range(5)), strict=True):
        assert found == "found" and inputs.startswith("refused bomb.npz"), (name, lines)


def test_data_that_compress_well_but_are_meant(tmp_path):
    """Small or uncompressed zeros are no bomb."""
    from pacbayes.data import load_inputs

    np.savez_compressed(tmp_path / "small.npz", x=np.zeros((1000, 1000), np.float32))
    assert load_inputs(tmp_path / "small.npz").shape == (1000, 1000)
