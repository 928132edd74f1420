"""The journal: any changed byte in any file of the folder is found, and the line says which file."""

from __future__ import annotations

import json
import os
import random

import pytest

from pacbayes.certificates.wording import rounded_up
from pacbayes.errors import RunError
from pacbayes.files import sha256
from pacbayes.report import write_report
from pacbayes.runs import RunFolder, certify_run, certify_run_classes, predict_run, train_run, verify_run
from pacbayes.runs.check import FAILED, OPEN, PASSED
from pacbayes.runs.folder import FILES
from pacbayes.runs.journal import EVENTS, Line, read_journal


def failed(run: RunFolder) -> set[str]:
    return {check.name for check in verify_run(run) if check.status == FAILED}


def detail(run: RunFolder, name: str) -> tuple[str, str]:
    (check,) = (check for check in verify_run(run) if check.name == name)
    return check.status, check.detail


@pytest.fixture
def whole(certified) -> RunFolder:
    """A run with every file that a run makes."""
    write_report(certified)
    return certified


def test_the_journal_names_every_file_with_its_hash(whole):
    journal = read_journal(whole)
    assert [line.event for line in journal.lines] == ["trained", "certified", "evaluated", "reported"]
    assert journal.lines[0].previous == whole.history().end
    assert [line.previous for line in journal.lines[1:]] == [line.hash for line in journal.lines[:-1]]
    names = {path.name for path in whole.path.iterdir()}
    assert journal.files() == {name: sha256(whole.read(name)) for name in names - {"journal.jsonl"}}
    assert names <= set(FILES)
    assert {name for names in EVENTS.values() for name in names} == set(FILES) - {"journal.jsonl"}


@pytest.mark.parametrize("name", sorted(set(FILES) - {"signature.json"}))
def test_one_changed_byte_in_any_file_is_found_and_the_file_is_named(name, everything):
    whole = everything
    path = whole.path / name
    good = path.read_bytes()
    randomness = random.Random(name)
    places = sorted({0, len(good) - 1, *randomness.sample(range(len(good)), min(25, len(good)))})
    for place in places:
        bad = bytearray(good)
        bad[place] ^= 1 << randomness.randrange(8)
        path.write_bytes(bad)
        assert name in failed(whole), f"byte {place}: {good[place]} became {bad[place]}"
    for bad in (good[:-1], good + b"\n", good + b" ", b""):
        path.write_bytes(bad)
        assert name in failed(whole)
    path.unlink()
    if name == "evaluation.json":  # which no certificate needs
        assert detail(whole, name)[0] == OPEN and not failed(whole)
    else:
        assert name in failed(whole)
    path.write_bytes(good)
    assert not failed(whole)


def test_the_time_and_the_versions_of_a_certificate_count_too(whole):
    text = whole.certificate_file.read_text()
    for old, new in ((whole.certificate().time, "2001-01-01T00:00:00+00:00"), ("torch", "Torch")):
        whole.certificate_file.write_text(text.replace(old, new))
        assert failed(whole) == {"certificate.json"}


def test_other_files_are_reported_and_not_looked_at(whole):
    assert "other files" not in {check.name for check in verify_run(whole)}
    (whole.path / "notes.txt").write_text("mine")
    os.mkfifo(whole.path / "pipe")
    (whole.path / "link").symlink_to("/dev/zero")
    status, words = detail(whole, "other files")
    assert status == OPEN and all(name in words for name in ("notes.txt", "pipe", "link"))
    assert not failed(whole)


@pytest.mark.parametrize("name", ["evaluation.json", "report.html", "signature.json"])
def test_a_file_of_a_run_that_the_run_did_not_write(name, certified):
    """All of these come after a certificate; here one comes without the journal's knowledge."""
    lines = (certified.path / "journal.jsonl").read_text().splitlines(keepends=True)
    (certified.path / "journal.jsonl").write_text("".join(lines[:2]))
    (certified.path / "evaluation.json").unlink()
    assert not failed(certified)
    (certified.path / name).write_text("{}")
    assert failed(certified) - {"signature"} == {name}


def test_every_certificate_stays_on_record(whole):
    assert detail(whole, "issued")[0] == PASSED
    bounds = [whole.certificate().risk_bound]
    for seed in (2, 3):
        bounds.append(certify_run(whole, draws=100, test_draws=2, seed=seed)[0].risk_bound)
    assert read_journal(whole).risk_bounds() == bounds
    status, words = detail(whole, "issued")
    assert status == OPEN and words.startswith("3 certificates") and rounded_up(bounds[0], 4) in words
    assert not failed(whole)
    # The report was that of a certificate that is no longer there.
    assert not (whole.path / "report.html").exists()


def test_certificates_of_classes_are_counted_too(whole):
    for seed in (1, 2):
        assert detail(whole, "issued")[0] == PASSED
        certify_run_classes(whole, draws=300, seed=seed)
    status, words = detail(whole, "issued")
    assert status == OPEN and "1 certificate for this run" in words and "2 for its classes" in words


def test_an_older_certificate_cannot_be_put_back(whole):
    old = whole.certificate_file.read_bytes()
    certify_run(whole, draws=100, test_draws=2)
    whole.certificate_file.write_bytes(old)
    assert failed(whole) == {"certificate.json"}


def test_lines_cannot_be_left_out_or_exchanged(whole):
    certify_run(whole, draws=100, test_draws=2)
    path = whole.path / "journal.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    for bad in (lines[1:], lines[:1] + lines[2:], [lines[0], lines[2], lines[1], *lines[3:]], lines * 2, lines[:-1]):
        path.write_text("".join(bad))
        assert failed(whole)


@pytest.mark.parametrize("name", EVENTS["trained"])
def test_nothing_is_certified_or_predicted_from_changed_files(name, certified):
    before = certified.certificate_file.read_bytes()
    path = certified.path / name
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(RunError, match=name):
        certify_run(certified, draws=10, test_draws=2)
    assert certified.certificate_file.read_bytes() == before
    with pytest.raises(RunError):
        predict_run(certified, None)


def test_a_run_without_a_journal_is_refused(certified):
    (certified.path / "journal.jsonl").unlink()
    assert "journal.jsonl" in failed(certified)
    with pytest.raises(RunError, match=r"journal\.jsonl is missing"):
        certify_run(certified, draws=10)


def test_a_run_interrupted_before_its_last_file_goes_on(tiny, data_file, tmp_path, monkeypatch):
    config = tiny(data_file(tmp_path / "data.npz"))
    whole = train_run(config, tmp_path / "whole")
    monkeypatch.setattr("pacbayes.runs.train.write_atomically", _only_the_prior)
    with pytest.raises(KeyboardInterrupt):
        train_run(config, tmp_path / "run")
    monkeypatch.undo()
    run = train_run(None, tmp_path / "run", resume=True)
    assert {p.name: p.read_bytes() for p in run.path.iterdir()} == {
        p.name: p.read_bytes() for p in whole.path.iterdir()
    }


def test_what_was_issued_stays_on_record_when_the_posterior_has_gone(whole):
    """Training goes on to the same weights, and begins no journal of its own."""
    before = whole.read("journal.jsonl")
    posterior = whole.read("posterior.safetensors")
    for name in ("posterior.safetensors", "certificate.json"):
        (whole.path / name).unlink()
    checks = verify_run(whole)
    assert {"posterior.safetensors", "certificate.json"} <= {check.name for check in checks if check.status == FAILED}
    train_run(None, whole.path, resume=True)
    assert whole.read("journal.jsonl") == before and whole.read("posterior.safetensors") == posterior
    # Nor does it take the place of another's.
    (whole.path / "posterior.safetensors").unlink()
    lines = before.decode().splitlines()
    first = json.loads(lines[0])
    first["wrote"]["posterior.safetensors"] = "0" * 64
    del first["sha256"]
    (whole.path / "journal.jsonl").write_text(Line(**first).text())
    with pytest.raises(RunError, match="that of another training"):
        train_run(None, whole.path, resume=True)


def _only_the_prior(path, content):
    if path.name != "prior.safetensors":
        raise KeyboardInterrupt
    path.write_bytes(content)
