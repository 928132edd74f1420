"""The affine check of figures 1, SM1 and SM2, and the figures drawn from results."""

import xml.etree.ElementTree as ET

import pytest
import torch
from torch import nn

from pacbayes import build, load, stochastic
from pacbayes.bounds import kl_inverse
from pacbayes.data import Data
from pacbayes.errors import InvalidInput
from pacbayes.experiments import experiments, read_results, referred, reproduce_affine, write_tables
from pacbayes.experiments.figures import HIGHEST, grid_figure
from pacbayes.networks import StochasticNetwork
from pacbayes.report.affine import affine_check, risk_realisations, slope

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


@pytest.mark.parametrize("risk", [0.003, 0.02, 0.3])
@pytest.mark.parametrize("pen", [0.0004, 0.05])
def test_the_slope_is_the_derivative_of_the_bound(risk, pen):
    step = 1e-6
    assert slope(risk, pen) == pytest.approx(
        (kl_inverse(risk + step, pen) - kl_inverse(risk - step, pen)) / (2 * step), rel=1e-5
    )


def test_each_realisation_is_one_hidden_draw_for_all_the_data():
    data = load("digits")
    net = stochastic(build("mlp", data.shape, data.classes), 0.01)
    risks = risk_realisations(net, data, 200, seed=1)
    assert torch.equal(risks[:5], risk_realisations(net, data, 5, seed=1))
    # The same draw for all: data that repeat ten times, in more than one chunk, change nothing.
    repeated = Data(torch.cat([data.x] * 10), torch.cat([data.y] * 10), data.classes)
    torch.testing.assert_close(risk_realisations(net, repeated, 5, seed=1), risks[:5], rtol=0, atol=1e-6)
    # The mean is the risk of independent draws.
    with torch.no_grad():
        outputs = net(torch.cat([data.x] * 20), "independent", torch.Generator().manual_seed(0))
    risk = (outputs.argmax(-1) != data.y.repeat(20)).double().mean()
    assert abs(risks.mean() - risk) < 5 * risks.std() / 200**0.5 + 5 * (0.25 / (20 * 1437)) ** 0.5


def test_without_hidden_layers_the_estimate_is_exact_and_the_slope_constant():
    data = load("digits")
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    record = affine_check(stochastic(model, 0.01), data, 3, 0, 0.025)
    assert record["sd"] < 1e-9 and record["slope_variation"] < 1e-6
    assert record["m"] == 1437 and sum(record["histogram"]["counts"]) == 3


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
