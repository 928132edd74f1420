"""``compare``, ``card`` and ``train --tensorboard`` through the entry point."""

from __future__ import annotations

import json
import sys
import types

import pytest

from pacbayes.runs import RunFolder
from pacbayes.runs.journal import note


@pytest.fixture
def run(tmp_path, data_file, tiny, pacbayes_main):
    path = tmp_path / "run"
    assert pacbayes_main("train", "--data", data_file(tmp_path / "d.npz"), "--out", path, *tiny).status == 0
    assert pacbayes_main("certify", path, "--draws", 200, "--test-draws", 2).status == 0
    return path


def test_a_narrow_terminal_has_a_run_a_column(run, pacbayes_main, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, for rich
    first = {}
    for columns in (80, 350):
        monkeypatch.setenv("COLUMNS", str(columns))
        first[columns] = pacbayes_main("compare", run).out.splitlines()[0]
    assert "certified risk" not in first[80] and "certified risk" in first[350]


def test_words_of_a_stranger_command_no_terminal(run, pacbayes_main):
    record = json.loads((run / "evaluation.json").read_text()) | {"doubts": ["a\x1b[31m\nb"]}
    (run / "evaluation.json").write_text(json.dumps(record))
    note(RunFolder(run), "evaluated")
    shown = pacbayes_main("compare", run)
    assert shown.status == 0 and "b." in shown.out and "\x1b" not in shown.out


def test_a_page_is_html(run, pacbayes_main, tmp_path):
    refused = pacbayes_main("compare", run, "--out", tmp_path / "page.pdf")
    assert refused.status == 1 and "ends in .html" in refused.err and not (tmp_path / "page.pdf").exists()


def test_compare_and_card(run, pacbayes_main, tmp_path):
    shown = pacbayes_main("compare", run, run, "--out", tmp_path / "page.html")
    assert shown.status == 0 and shown.out.count("learnt on 50 %") == 2 and "certified risk" in shown.out
    assert (tmp_path / "page.html").is_file() and "Written" in shown.out
    card = pacbayes_main("card", run)
    assert card.status == 0 and card.out.startswith("# A certified classifier")
    assert pacbayes_main("card", run, "--out", tmp_path / "card.md").status == 0
    weights = (run / "posterior.safetensors").read_bytes()
    for command in ("compare", "card"):
        refused = pacbayes_main(command, run, "--out", run / "posterior.safetensors")
        assert refused.status == 1 and "name another" in refused.err
    assert (run / "posterior.safetensors").read_bytes() == weights
    assert (tmp_path / "card.md").read_text() == card.out
    # Neither leaves anything in the folder.
    assert pacbayes_main("verify", run).status == 0
    refused = pacbayes_main("compare", run, tmp_path)
    assert refused.status == 1 and "is not a run folder" in refused.err


def test_tensorboard_is_asked_for_before_any_work(tmp_path, data_file, tiny, pacbayes_main, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    data, out = data_file(tmp_path / "d.npz"), tmp_path / "run"
    result = pacbayes_main("train", "--data", data, "--out", out, "--tensorboard", tmp_path / "log", *tiny)
    assert result.status == 1 and "pip install tensorboard" in result.err and not out.exists()


def test_every_epoch_is_logged(tmp_path, data_file, tiny, pacbayes_main, monkeypatch):
    logged = []

    class Writer:
        def __init__(self, folder):
            logged.append(folder)

        def add_scalar(self, name, value, step):
            logged.append((name, step))

        def close(self):
            logged.append("closed")

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=Writer))
    data, out = data_file(tmp_path / "d.npz"), tmp_path / "run"
    assert pacbayes_main("train", "--data", data, "--out", out, "--tensorboard", tmp_path / "log", *tiny).status == 0
    assert logged[0] == str(tmp_path / "log") and logged[-1] == "closed"
    assert {("pretraining/risk", 1), ("prior/objective", 0), ("posterior/bound", 1), ("posterior/kl", 0)} <= set(logged)
