"""docs/validity.md names files that exist, and its figure is that of its counts, which keep to what is allowed."""

import importlib.util
import json
import math
import re
from pathlib import Path

from scipy import stats

from pacbayes.bounds import CATONI_GRID
from pacbayes.bounds.single import LEVELS, binomial_level, draw_share
from pacbayes.certificates.evidence import BEST, BEST_SINGLE

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "validity.md").read_text()


def test_the_files_it_names_exist():
    named = set(re.findall(r"`((?:bounds|certificates|networks)/\w+\.py)`", PAGE))
    assert len(named) >= 9 and all((ROOT / "src" / "pacbayes" / name).is_file() for name in named)
    tests = set(re.findall(r"`(tests/[\w/]+\.py)`", PAGE))
    assert len(tests) >= 8 and all((ROOT / name).is_file() for name in tests)


def short(number: float) -> str:
    return f"{number:.2g}".removeprefix("0")


def test_its_numbers_are_those_of_the_code():
    def share(formula: str) -> str:
        return short(BEST[formula])

    single = {name: short(share) for name, share in BEST_SINGLE.items()}
    assert set(BEST) == {"catoni", "exact", "exact+profile"} and set(BEST_SINGLE) == {"binomial", *BEST}
    assert BEST_SINGLE["exact"] == BEST["exact"] and BEST_SINGLE["exact+profile"] == BEST["exact+profile"]
    (near, most), (far, least) = LEVELS.items()
    levels = [binomial_level(nats, 1.0) for nats in (0.0, near - 1e-9, math.log(math.exp(near) + math.exp(far)) - 1e-9)]
    assert levels[0] == levels[1] > levels[2] > binomial_level(1.33, 1.0) == 0
    for sentence in (
        ", ".join(map(short, CATONI_GRID)),
        f"Catoni's at {share('catoni')} of δ, the kl bound with the exact constant at {share('exact')}, and that with "
        f"the prior's scales chosen at {share('exact+profile')}.",
        f"the binomial bound at {single['binomial']}, Catoni's at {single['catoni']}, and the other two as before",
        f"at {short(levels[0])} δ if `log dQ/dP(θ) <= {short(near)}`, at {short(levels[2])} δ if it is at most 1.32",
        f"the two levels share δ, {short(most)} and {short(least)}",
        f"The first gets {short(draw_share(1))} of δ, the k-th (k ≥ 2) {short(2 * draw_share(2))}/(k(k-1))",
    ):
        assert sentence in " ".join(PAGE.split()), sentence


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
