from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacbayes.report.curves import Curve, curves_svg, epoch_ticks
from pacbayes.report.svg import round_steps

SVG = "{http://www.w3.org/2000/svg}"


def points(root: ET.Element) -> list[list[tuple[float, float]]]:
    return [
        [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        for line in root.iter(f"{SVG}polyline")
    ]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_curves_stay_inside_their_picture(values):
    root = ET.fromstring(curves_svg("c", "Risk", [Curve("risk", "empirical", values)], kept=len(values) - 1))
    assert root.attrib["viewBox"] == "0 0 360 230"
    (line,) = points(root)
    assert len(line) == len(values)
    assert all(62 <= x <= 344 and 34 <= y <= 188 for x, y in line)


def test_higher_values_are_drawn_higher_and_the_kept_epoch_is_marked():
    bounds = Curve("bound", "kl", [0.9, 0.3, 0.5])
    root = ET.fromstring(curves_svg("c", "Bound", [bounds], kept=1))
    (line,) = points(root)
    assert line[0][1] < line[2][1] < line[1][1]
    (dot,) = root.iter(f"{SVG}circle")
    assert (float(dot.attrib["cx"]), float(dot.attrib["cy"])) == pytest.approx(line[1], abs=0.06)
    assert "epoch 2, kept" in [words.text for words in root.iter(f"{SVG}text")]
    assert "30 % at the kept one" in root.find(f"{SVG}desc").text


def test_one_epoch_and_zeros_can_be_drawn():
    ET.fromstring(curves_svg("c", "Risk", [Curve("risk", "empirical", [0.0])]))
    root = ET.fromstring(curves_svg("c", "Penalty", [Curve("penalty", "log", [1e8, 2e8])], rate=False))
    assert "2e+08" in [words.text for words in root.iter(f"{SVG}text")]


@given(st.floats(1e-12, 1e12))
def test_axes_end_in_a_round_number_just_above_the_values(top):
    steps = round_steps(top)
    assert steps[0] == 0 and float(steps[-1]) >= top
    assert 2 <= len(steps) <= 6
    assert float(steps[-2]) < top
    assert len({b - a for a, b in pairwise(steps)}) == 1


@pytest.mark.parametrize(
    ("epochs", "ticks"),
    [(1, [1]), (2, [1, 2]), (7, [1, 2, 4, 6]), (30, [1, 10, 20, 30]), (1000, [1, 200, 400, 600, 800, 1000])],
)
def test_epoch_ticks(epochs, ticks):
    assert epoch_ticks(epochs) == ticks
