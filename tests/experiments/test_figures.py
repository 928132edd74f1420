"""Figures 1, SM1 and SM2, and the others that are drawn from results."""

import xml.etree.ElementTree as ET

import pytest

from pacbayes.errors import InvalidInput
from pacbayes.experiments import experiments, read_results, referred, reproduce_affine, write_tables
from pacbayes.experiments.figures import HIGHEST, grid_figure
from pacbayes.networks import StochasticNetwork

AFFINE = """
title = "Affine"
source = "figure 0"
kind = "affine"
realisations = 30
[[rows]]
row = "one"
of = { experiment = "tiny", row = "G invKL" }
paper = { slope_variation = 0.02 }
"""
HEADLINE = """
title = "Best"
source = "table 9"
kind = "headline"
[[rows]]
row = "digits"
of = { experiment = "tiny", row = "G invKL" }
among = "G"
paper = { risk_bound = 0.25, perez_ortiz = 0.75 }
"""


@pytest.fixture
def known(tmp_path, tiny_text):
    for name, text in (("tiny", tiny_text), ("affine", AFFINE), ("headline", HEADLINE)):
        (tmp_path / f"{name}.toml").write_text(text)
    return experiments(tmp_path)


def test_a_row_is_trained_looked_at_and_shown(known, tmp_path, monkeypatch):
    of = referred(known, known["affine"], "one")[0].configured("G invKL", "short", 0, "cpu")
    arguments = ("affine", "one", of, 30, {"slope_variation": 0.02}, tmp_path / "work", tmp_path, lambda _: None)
    reproduce_affine(*arguments)
    (record,) = read_results(tmp_path / "affine.jsonl")
    assert record["of"] == {"experiment": "tiny", "row": "G invKL"} and record["realisations"] == 30
    monkeypatch.setattr(StochasticNetwork, "kl", None)
    reproduce_affine(*arguments)
    assert len(read_results(tmp_path / "affine.jsonl")) == 1, "a finished row is not run again"

    page = write_tables(known, tmp_path).read_text()
    assert f"±{100 * record['slope_variation']:.1f} % / ±2.0 %" in page and "affine-one.svg" in page
    assert ET.parse(tmp_path / "affine-one.svg").getroot().tag.endswith("svg")
    assert "| digits | not run | – | .2500 | .7500 |" in page


def test_a_row_of_nothing_is_refused(tmp_path):
    (tmp_path / "affine.toml").write_text(AFFINE)
    with pytest.raises(InvalidInput, match="no row 'G invKL' in 'tiny'"):
        experiments(tmp_path)


def test_the_figure_has_a_mark_for_every_bound_but_the_largest():
    records = [
        {"method": method, "objective": objective, "momentum": 0.9, "kappa": kappa, "prior_variance": 0.01,
         "risk_bound": bound}
        for method in "SG" for objective in ("McAll", "lbd", "quad", "invKL")
        for kappa, bound in ((0.5, 0.2), (1.0, HIGHEST + 0.01))
    ]  # fmt: skip
    text = grid_figure(records).decode()
    assert text == grid_figure(records).decode()
    assert "8 of 16 trainings lie above" in text
