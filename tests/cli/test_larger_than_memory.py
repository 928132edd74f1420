"""Data that are read from disk as they are needed: the same files as from memory, and memory that stays small."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def places(data_file, tmp_path):
    """The same arrays in one file, and unpacked in a folder."""
    file = data_file(tmp_path / "data.npz")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(tmp_path / "data")
    return file, tmp_path / "data"


def test_the_same_run_from_memory_and_from_disk(pacbayes_main, places, tmp_path, tiny):
    found = []
    for number, place in enumerate(places):
        run = tmp_path / f"run-{number}"
        trained = pacbayes_main("train", "--data", place, "--out", run, *tiny)
        assert trained.status == 0, trained.err
        options = ("--draws", 100, "--test-draws", 3, "--seed", 5, "--classes")
        assert pacbayes_main("certify", run, *options).status == 0
        certificate = json.loads((run / "certificate.json").read_bytes())
        assert certificate.pop("time")
        names = ("data.json", "prior.safetensors", "posterior.safetensors", "evaluation.json", "classes.json")
        labels = pacbayes_main("predict", run, place, "--seed", 1)
        assert labels.status == 0 and len(labels.out.splitlines()) == 61, labels.err
        verified = pacbayes_main("verify", run, "--recompute")
        assert verified.status == 0 and "not at hand" not in verified.out, verified.out
        assert pacbayes_main("report", run).status == 0
        files = [(run / name).read_bytes() for name in names]
        mistakes = (run / "report.html").read_text().partition("drawn networks get wrong")[2].partition("</section>")[0]
        assert mistakes
        found.append((certificate, files, labels.out, trained.out.splitlines()[:2], mistakes))
    assert found[0] == found[1]
    # Verified from the other place, too; and not from data that have changed.
    assert pacbayes_main("verify", tmp_path / "run-0", "--data", places[1]).status == 0
    shutil.copy(places[1] / "x_test.npy", places[1] / "x.npy")
    assert pacbayes_main("verify", tmp_path / "run-1").status == 1


def test_a_folder_without_its_files_is_one_line(pacbayes_main, places, tmp_path, tiny):
    (places[1] / "y.npy").unlink()
    result = pacbayes_main("train", "--data", places[1], "--out", tmp_path / "run", *tiny)
    assert result.status == 1 and result.out == "" and not (tmp_path / "run").exists()
    assert result.err == f"error: {places[1]}: has no train part: there is no y.npy in it\n"


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_memory_stays_small(environment, tmp_path):
    """512 MiB of inputs, in a file with holes, and 96 MiB of memory for all that is made after the imports."""
    m, features = 2**18, 2**9
    with (tmp_path / "x.npy").open("wb") as file:
        form = {"descr": "<f4", "fortran_order": False, "shape": (m, features)}
        np.lib.format.write_array_header_1_0(file, form)
        file.truncate(file.tell() + 4 * m * features)
    np.save(tmp_path / "y.npy", np.arange(m) % 2)
    command = [sys.executable, Path(__file__).with_name("small_memory.py"), tmp_path, "96"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{m - round(0.02 * m)}\ntoo large for memory\n"
