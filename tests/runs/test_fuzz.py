"""Thousands of spoilt files. Nothing may happen but a failed check or an error of our own; seeds are fixed."""

from __future__ import annotations

import contextlib
import io
import json
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from mutations import mangled, mutated, mutated_json, mutated_safetensors, mutated_toml

from pacbayes.data.npz import read_npz
from pacbayes.errors import PacBayesError
from pacbayes.files import strict_json
from pacbayes.report import write_report
from pacbayes.runs import Config, RunFolder, certify_run, predict_run, verify_run
from pacbayes.runs.check import FAILED
from pacbayes.runs.folder import FILES
from pacbayes.runs.weights import read_weights

# What a page leaves out because of a damaged file is said in a warning.
pytestmark = pytest.mark.filterwarnings("ignore:the page shows neither examples")


@pytest.fixture
def whole(certified) -> RunFolder:
    write_report(certified)
    return certified


def use_every_way(run: RunFolder) -> None:
    """All that opens a run folder: done, or refused in words."""
    for use in (
        verify_run,
        write_report,
        lambda run: predict_run(run, torch.zeros(2, 4)),
        lambda run: certify_run(run, draws=10, test_draws=1),
    ):
        with contextlib.suppress(PacBayesError):
            use(run)


@pytest.mark.parametrize("name", sorted(set(FILES) - {"signature.json"}))
def test_files_mangled_blindly_are_found(name, everything):
    whole = everything
    path, randomness = whole.path / name, random.Random(f"blind {name}")
    good = path.read_bytes()
    for _ in range(50):
        path.write_bytes(mangled(good, randomness))
        assert name in {check.name for check in verify_run(whole) if check.status == FAILED}


STRUCTURED = {
    "config.toml": mutated_toml,
    "data.json": mutated_json,
    "certificate.json": mutated_json,
    "evaluation.json": mutated_json,
    "prior.safetensors": mutated_safetensors,
    "posterior.safetensors": mutated_safetensors,
    "single.safetensors": mutated_safetensors,
    "classes.json": mutated_json,
}


@pytest.mark.parametrize("name", STRUCTURED)
def test_files_mutated_by_one_who_mends_every_hash(name, everything, forge):
    """History and journal agree with the mutated file, so that all that reads it comes to read it."""
    whole = everything
    path, randomness = whole.path / name, random.Random(f"mended {name}")
    folder = {p.name: p.read_bytes() for p in whole.path.iterdir()}
    promised = whole.certificate()
    for _ in range(20):
        for other, content in folder.items():
            (whole.path / other).write_bytes(content)
        path.write_bytes(STRUCTURED[name](folder[name], randomness))
        forge(whole)
        checks = verify_run(whole)
        if not any(check.status == FAILED for check in checks):
            found = whole.certificate()
            assert (found.risk_bound, found.m, found.kl) == (promised.risk_bound, promised.m, promised.kl)
            assert found.confidence == promised.confidence
        use_every_way(whole)


def test_histories_mutated_by_one_who_mends_every_hash(whole, forge):
    randomness = random.Random("history")
    good = [json.loads(line) for line in whole.history_file.read_bytes().splitlines()]
    journal = (whole.path / "journal.jsonl").read_bytes()
    for _ in range(60):
        records = list(good)
        number = randomness.randrange(len(records))
        records[number] = mutated(records[number], randomness)
        whole.history_file.write_text("".join(json.dumps(record) + "\n" for record in records))
        (whole.path / "journal.jsonl").write_bytes(journal)
        forge(whole)
        verify_run(whole)
        with contextlib.suppress(PacBayesError):
            write_report(whole)


def test_weights_of_every_kind_of_lie(whole):
    """Whatever the header says: refused, or tensors that have just the bytes of the file."""
    randomness = random.Random("weights")
    content = whole.read("posterior.safetensors")
    accepted = 0
    for number in range(3000):
        spoilt = (mutated_safetensors, mangled)[number % 2](content, randomness)
        with contextlib.suppress(PacBayesError):
            tensors = read_weights(spoilt, "weights")
            size = len(spoilt) - 8 - int.from_bytes(spoilt[:8], "little")
            assert sum(t.numel() * t.element_size() for t in tensors.values()) == size
            accepted += 1
    assert 0 < accepted < 2000


def test_configurations_of_every_kind():
    good = Config().to_toml().encode()
    randomness = random.Random("toml")
    accepted = 0
    for number in range(1500):
        spoilt = (mutated_toml, mangled)[number % 2](good, randomness)
        with contextlib.suppress(PacBayesError):
            config = Config.parse(spoilt, Path("config.toml"))
            assert Config.parse(config.to_toml().encode(), Path("again")) == config
            accepted += 1
    assert 100 < accepted < 1400


def test_json_of_every_kind():
    good = json.dumps({"a": [1, 2.5, {"b": None}], "c": "words", "d": 1e-300}).encode()
    randomness = random.Random("json")
    for number in range(5000):
        spoilt = (mutated_json, mangled)[number % 2](good, randomness)
        with contextlib.suppress(ValueError):
            # What is read has no NaN and no infinity: it can be written as plain JSON.
            json.dumps(strict_json(spoilt), allow_nan=False)


def test_archives_of_every_kind(tmp_path):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x=np.random.default_rng(0).normal(size=(20, 3)), y=np.arange(20) % 2)
    good, path = buffer.getvalue(), tmp_path / "data.npz"
    randomness = random.Random("npz")
    for number in range(1000):
        path.write_bytes(_with_mangled_member(good, randomness) if number % 2 else mangled(good, randomness))
        with contextlib.suppress(PacBayesError):
            data = read_npz(path)
            assert data.x.numel() <= 10_000


def _with_mangled_member(archive: bytes, randomness: random.Random) -> bytes:
    """A whole archive of which one array's bytes, header included, are spoilt: checksums do not catch it."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        spoilt = randomness.choice(old.namelist())
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, mangled(content[:128], randomness) + content[128:] if name == spoilt else content)
    return out.getvalue()
