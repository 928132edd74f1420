"""docs/validity.md names files that exist, and its figure is that of its counts, which keep to what is allowed."""

import importlib.util
import json
import re
from pathlib import Path

from scipy import stats

from pacbayes.bounds import CATONI_GRID
from pacbayes.bounds.single import LEVELS
from pacbayes.certificates.evidence import BEST, BEST_SINGLE

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "validity.md").read_text()


def test_the_files_it_names_exist():
    named = set(re.findall(r"`((?:bounds|certificates|networks)/\w+\.py)`", PAGE))
    assert len(named) >= 9 and all((ROOT / "src" / "pacbayes" / name).is_file() for name in named)
    tests = set(re.findall(r"`(tests/[\w/]+\.py)`", PAGE))
    assert len(tests) >= 8 and all((ROOT / name).is_file() for name in tests)


def test_its_numbers_are_those_of_the_code():
    assert ", ".join(f"{c:g}".removeprefix("0") for c in CATONI_GRID) in PAGE.replace("\n", " ")
    assert BEST == {"catoni": 0.9, "exact": 0.05, "exact+profile": 0.05}
    assert BEST_SINGLE == {"binomial": 0.5, "catoni": 0.4, "exact": 0.05, "exact+profile": 0.05}
    assert LEVELS == {0.05: 0.8, 1.0: 0.2}


def test_the_figure_is_that_of_its_counts():
    spec = importlib.util.spec_from_file_location("coverage_figure", ROOT / "docs" / "coverage.py")
    figure = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figure)
    counts = json.loads((ROOT / "docs" / "coverage.json").read_text())
    assert len(counts) == len(figure.KINDS) * len(figure.BOUNDS) * len(figure.SIZES) * len(figure.DELTAS)
    assert figure.draw(counts) == (ROOT / "docs" / "coverage.svg").read_text()
    for c in counts:
        # A valid method exceeds this with probability 1e-8 in each of 120 counts.
        assert c["failures"] <= stats.binom.isf(1e-8, c["runs"], c["delta"])
