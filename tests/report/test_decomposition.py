from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacbayes.bounds import kl_inverse
from pacbayes.bounds.pac_bayes import penalty
from pacbayes.certificates.evidence import LIMITS
from pacbayes.certificates.wording import percent
from pacbayes.errors import RunError
from pacbayes.report import decomposition, write_picture
from pacbayes.report.decomposition import comparisons, decomposition_svg
from pacbayes.runs import Evaluation

SVG = "{http://www.w3.org/2000/svg}"


@st.composite
def counts(draw: st.DrawFn) -> dict[str, object]:
    draws = draw(st.integers(1, 10**6))
    sampling = draw(st.sampled_from(["independent", "shared"]))
    m = draw(st.integers(8, 10**6))
    visits = draws if sampling == "independent" else draws * m
    limits = list(LIMITS)[: 3 if sampling == "independent" else 2]
    return {
        "draws": draws,
        "sampling": sampling,
        "m": m,
        "errors": draw(st.integers(0, visits)),
        "kl": draw(st.one_of(st.just(0.0), st.floats(1e-12, 1e9))),
        "delta": draw(st.floats(1e-6, 0.4)),
        "mc_delta": draw(st.floats(1e-6, 0.4)),
        "limit": draw(st.sampled_from(limits)),
    }


def shares(bars: list[ET.Element], what: str) -> list[float]:
    return [float(bar.attrib[what].removesuffix("%")) for bar in bars]


def test_a_vote_is_taken_apart_by_the_formula_that_gave_its_bound(new_certificate):
    counts = {"errors": 1000, "draws": 20_000, "m": 2000, "kl": 100.0}
    vote = {"predictor": "majority", "voters": 11, "pair_errors": 300, "vote_errors": 100, "bound": "invKL"}
    certificate = new_certificate(**counts, **vote)
    certificate = replace(certificate, **certificate.evidence().derived())
    parts = decomposition(certificate)
    assert not certificate.part.startswith("vote"), "the KL counts eleven times there"
    assert min(part.value for part in parts) >= 0
    assert sum(part.value for part in parts) == pytest.approx(certificate.risk_bound, abs=1e-9)


@given(counts())
@settings(max_examples=150, deadline=None)
def test_the_parts_add_up_to_the_bound(new_certificate, values):
    certificate = new_certificate(**values)
    parts = decomposition(certificate)
    assert all(part.value >= 0 for part in parts)
    assert sum(part.value for part in parts) == pytest.approx(certificate.risk_bound, rel=1e-12)
    # As shown, they add up to the last digit; a part that is too small to show counts as nothing.
    shown = [Decimal(part.percent.removesuffix(" %")) for part in parts if not part.percent.startswith("<")]
    assert f"{sum(shown):f} %" == percent(certificate.risk_bound)

    root = ET.fromstring(decomposition_svg(certificate))
    bars = [bar for bar in root.iter(f"{SVG}rect") if bar.attrib["height"] == "34"]
    assert len(bars) == 4
    for bar, after in zip(shares(bars, "x")[1:], [sum(shares(bars, "width")[: i + 1]) for i in range(3)], strict=True):
        assert bar == pytest.approx(after, abs=0.01)
    assert sum(shares(bars, "width")) <= 100.01


def test_each_part_is_what_it_says(new_certificate):
    certificate = new_certificate()
    empirical, slack, log, kl = decomposition(certificate)
    limit = certificate.empirical_risk_bound
    assert empirical.value == 4185 / 150_000
    assert empirical.value + slack.value == pytest.approx(limit, rel=1e-14)
    alone = kl_inverse(limit, penalty(0.0, 719, 0.025))
    assert limit + log.value == pytest.approx(alone, rel=1e-12)
    assert alone + kl.value == pytest.approx(certificate.risk_bound, rel=1e-12)


def test_a_kl_of_zero_adds_nothing(new_certificate):
    kl = decomposition(new_certificate(kl=0.0))[-1]
    assert (kl.value, kl.percent) == (0.0, "0.00 %")


def test_a_certificate_that_does_not_hold_is_not_pictured(new_certificate, tmp_path: Path):
    false = replace(new_certificate(), risk_bound=0.01)
    with pytest.raises(RunError, match="risk_bound is 0.01"):
        write_picture(false, tmp_path / "picture.svg")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "extreme",
    [
        {"errors": 40, "kl": 0.0, "m": 10**6},
        {"errors": 400, "kl": 30.0, "m": 60_000},
        {"errors": 110_000, "kl": 2e5, "m": 600_000},
        {"errors": 150_000},
        {"errors": 0, "kl": 1e300},
        {"errors": 0, "kl": 0.0, "m": 8},
    ],
)
def test_extremes_stay_in_the_picture(new_certificate, extreme):
    certificate = new_certificate(**extreme)
    evaluation = Evaluation(1.0, 0.5, 1, 1, 1.0)
    for picture in (decomposition_svg(certificate), decomposition_svg(certificate, evaluation)):
        root = ET.fromstring(picture)
        height = float(root.attrib["height"])
        for item in root.iter():
            places = [item.attrib[name] for name in ("x", "x1", "x2") if name in item.attrib]
            assert all(0 <= float(place.removesuffix("%")) <= 100 for place in places)
            assert all(float(item.attrib[name]) < height for name in ("y", "y1", "y2") if name in item.attrib)
        assert "nan" not in picture and "inf" not in picture
        assert all(len(words.text or "") < 40 for words in root.iter(f"{SVG}text"))


def test_lines_of_text_do_not_meet(new_certificate):
    """Each line of text has at most a label at the left and a value at the right, but for the axis."""
    root = ET.fromstring(decomposition_svg(new_certificate(), Evaluation(0.0, 0.0, 1, 1, None)))
    lines = sorted({float(words.attrib["y"]) for words in root.iter(f"{SVG}text")})
    assert min(b - a for a, b in zip(lines, lines[1:], strict=False)) >= 18
    for line in lines:
        words = [w for w in root.iter(f"{SVG}text") if float(w.attrib["y"]) == line]
        assert len(words) == 2 or all(w.attrib["class"] == "tick" for w in words)


def test_comparisons_may_be_missing(new_certificate):
    assert [value for _, value in comparisons(Evaluation(None, None, 0, 0, None))] == ["not measured"] * 2
    assert comparisons(Evaluation(0.036, None, 9, 9, None))[0] == ("Test error", "3.60 %")
    measured = comparisons(Evaluation(0.0004, 0.0001, 9, 9, 0.5))
    assert [value for _, value in measured] == ["0.0400 ± 0.0100 %", "≤ 50.00 %"]
    assert decomposition_svg(new_certificate(), Evaluation(None, None, 0, 0, None)).count(">not measured<") == 2


def test_the_picture_for_elsewhere_stands_alone(new_certificate, tmp_path: Path):
    path = tmp_path / "picture.svg"
    write_picture(new_certificate(), path)
    text = path.read_text("utf-8")
    root = ET.fromstring(text)
    assert root.attrib["viewBox"] == f"0 0 {root.attrib['width']} {root.attrib['height']}"
    assert root.find(f"{SVG}title").text == "Certified risk: at most 6.50 %"
    assert "2.79 %" in root.find(f"{SVG}desc").text
    assert root.find(f"{SVG}rect").attrib["fill"] == "#ffffff"
    assert "var(" not in text and not re.search(r"(href|src|url)\s*[=(]", text)
