"""Runs side by side, and model cards: their numbers, their warnings, and what they refuse."""

from __future__ import annotations

import json
import re

import pytest

from pacbayes.certificates.wording import percent
from pacbayes.data.catalogue import image_scaling
from pacbayes.data.scaling import IMAGES
from pacbayes.errors import InvalidInput, RunError
from pacbayes.report import COLUMNS, compare_runs, model_card, warnings, write_comparison
from pacbayes.report.card import _code, _escaped, _inputs
from pacbayes.runs import Config


def test_the_cells_are_those_of_the_run(image_run):
    (found,) = compare_runs([image_run.path])
    cells = dict(zip(COLUMNS, found.cells(), strict=True))
    certificate = image_run.certificate()
    assert cells["run"] == str(image_run.path) and cells["certified risk"] == f"≤ {percent(certificate.risk_bound)}"
    assert cells["m"] == "719" and cells["model"] == "mlp" and cells["prior"] == "learnt on 50 %"
    assert cells["predictor, bound"] == "randomised, best" and not list(warnings([found]))


def test_what_cannot_be_compared_is_said(image_run, table_run):
    different = " ".join(warnings(compare_runs([image_run.path, table_run.path])))
    assert "different bound data" in different and "probabilities of failure" in different
    same = " ".join(warnings(compare_runs([image_run.path, image_run.path])))
    assert "different bound data" not in same and "probabilities of failure" in same


def test_the_page_has_every_cell_and_loads_nothing(image_run, table_run, tmp_path):
    runs = compare_runs([image_run.path, table_run.path])
    write_comparison(runs, tmp_path / "compare.html")
    text = (tmp_path / "compare.html").read_text("utf-8")
    for run in runs:
        assert all(cell in text for cell in run.cells())
    assert text.count("<svg") == 1 and not re.search(r"<(script|link|img|iframe)|url\(|@import", text)


def test_runs_that_are_not_what_they_were_are_refused(image_run, tmp_path):
    with pytest.raises(InvalidInput, match="1 to 50 run folders"):
        compare_runs([])
    with pytest.raises(RunError, match="not a run folder"):
        compare_runs([tmp_path])
    record = json.loads(image_run.certificate_file.read_text())
    image_run.certificate_file.write_text(json.dumps(record | {"risk_bound": 0.001}))
    for use in (lambda: compare_runs([image_run.path]), lambda: model_card(image_run)):
        with pytest.raises(RunError, match="is not the file that this run wrote"):
            use()
    image_run.certificate_file.unlink()
    with pytest.raises(RunError, match="there is no certificate"):
        compare_runs([image_run.path])


def test_the_card_says_what_is_promised_and_what_is_not(image_run):
    card = model_card(image_run)
    certificate = image_run.certificate()
    assert certificate.sentence() in card and certificate.posterior_fingerprint in card
    assert "It says nothing about examples from another source" in card and "pacbayes verify RUN" in card
    assert len(re.findall(r"^\| \d \| \d+ \| ≤ [\d.]+ % \|$", card, re.M)) == 10


def test_the_card_says_how_inputs_are_given():
    scaling = image_scaling("digits")
    digits = _inputs(Config(data="digits"), [1, 8, 8], scaling)
    assert digits == "images of shape [1, 8, 8], given as pixel / 16 / 0.25 of pixels of 0 to 16"
    assert "scales them itself" in _inputs(Config(data="digits", scaling="prior-data"), [1, 8, 8], scaling)
    assert "(pixel / 255 - 0.5) / 0.25 of pixels of 0 to 255" in _inputs(Config(data="photos"), [3, 8, 8], IMAGES)
    assert _inputs(Config(data="mine.npz"), [4], None).startswith("numbers of shape [4], in the units of the data")


def test_words_of_others_stay_in_their_code_span():
    assert _escaped("a mean <b>\n# loss") == r"a mean \<b\>" + "\ufffd" + r"\# loss"
    assert _code("a`<img>`\n# b\x1b[2J") == "`a\ufffd<img>\ufffd\ufffd# b\ufffd[2J`"
