"""The record: its numbers against 50 digits, its file, its check, and its words."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from decimal import Decimal

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacbayes.certificates import Certificate
from pacbayes.certificates.evidence import Evidence
from pacbayes.certificates.wording import confidence_percent, percent
from pacbayes.errors import InvalidInput, PacBayesError, RunError

DERIVED = ("empirical_risk", "empirical_risk_bound", "penalty", "risk_bound", "confidence")
BASE = {
    "errors": 57, "visits": 2000, "draws": 2000, "kl": 12.75, "m": 719, "delta": 0.025, "mc_delta": 0.01,
    "limit": "two-sided", "sampling": "independent",
}  # fmt: skip


def certificate(**changes) -> Certificate:
    counts = {**BASE, **changes}
    return Certificate(
        **counts,
        **Evidence(**counts).derived(),
        objective="invKL",
        bound="invKL",
        prior_fingerprint="a" * 64,
        posterior_fingerprint="b" * 64,
        bound_data_fingerprint="c" * 64,
        seed=2**63 - 1,
        versions={"pacbayes": "0.1.0", "python": "3.11"},
        time="2024-01-01T00:00:00+00:00",
    )


def assert_exact_and_never_below(counts: dict, exact_numbers) -> None:
    found = Evidence(**counts).derived()
    # The binomial limit may be looser where 1 - delta is rounded; nothing may be below.
    tolerance = 1e-6 if counts["limit"] == "clopper-pearson" else 1e-11
    with mpmath.workdps(50):
        for name, exact in exact_numbers(counts).items():
            error = mpmath.mpf(found[name]) - exact
            assert abs(error) <= tolerance * max(exact, mpmath.mpf(10) ** -11), name
            if name in ("empirical_risk_bound", "penalty", "risk_bound"):
                assert error >= 0, f"{name} is below the true value"


CASES = [
    {},
    {"errors": 0},
    {"errors": 1},
    {"errors": 2000},
    {"errors": 1999},
    {"kl": 0.0, "m": 8, "delta": 0.5},
    {"kl": 5000.0, "m": 60_000},
    {"kl": 1e6, "m": 50},
    {"mc_delta": 1e-12, "delta": 1e-9},
    {"mc_delta": 0.3, "delta": 0.6},
    {"errors": 1, "visits": 3, "draws": 3},
]


@pytest.mark.parametrize("limit", ["two-sided", "one-sided", "clopper-pearson"])
@pytest.mark.parametrize("case", CASES)
def test_independent_visits(case, limit, exact_numbers):
    counts = {**BASE, **case, "limit": limit}
    if limit == "clopper-pearson" and counts["visits"] > 300:
        # The exact tail is a sum over all counts; a smaller n tests it as well.
        counts |= {"errors": round(counts["errors"] * 150 / counts["visits"]), "visits": 150, "draws": 150}
    assert_exact_and_never_below(counts, exact_numbers)


@pytest.mark.parametrize("limit", ["two-sided", "one-sided"])
@pytest.mark.parametrize("case", [{}, {"errors": 0}, {"errors": 719 * 40}, {"errors": 1}])
def test_shared_draws_count_once_each(case, limit, exact_numbers):
    counts = {**BASE, "sampling": "shared", "draws": 40, "visits": 719 * 40, "limit": limit, **case}
    assert_exact_and_never_below(counts, exact_numbers)
    # 40 terms, not 28,760.
    assert Evidence(**counts).derived()["empirical_risk_bound"] - counts["errors"] / (719 * 40) > 0.05 or case


@settings(max_examples=60, deadline=None)
@given(
    visits=st.integers(1, 200_000),
    share=st.floats(0, 1),
    kl=st.floats(0, 1e5),
    m=st.integers(8, 100_000),
    delta=st.floats(1e-6, 0.5),
    mc_delta=st.floats(1e-6, 0.4),
    limit=st.sampled_from(["two-sided", "one-sided"]),
)
def test_any_counts(visits, share, kl, m, delta, mc_delta, limit, exact_numbers):
    counts = {
        "errors": math.floor(share * visits), "visits": visits, "draws": visits, "kl": kl, "m": m, "delta": delta,
        "mc_delta": mc_delta, "limit": limit, "sampling": "independent",
    }  # fmt: skip
    assert_exact_and_never_below(counts, exact_numbers)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"limit": "hoeffding"}, "limit 'hoeffding'"),
        ({"sampling": "mixed"}, "sampling 'mixed'"),
        ({"limit": "clopper-pearson", "sampling": "shared", "visits": 2000 * 719}, "Clopper-Pearson"),
        ({"visits": 1999}, "1999 visits"),
        ({"sampling": "shared"}, "2000 visits"),
        ({"errors": -1}, "-1 errors"),
        ({"errors": 2001}, "2001 errors"),
        ({"errors": 0, "visits": 0, "draws": 0}, "0 visits"),
        ({"kl": -1e-9}, "KL"),
        ({"kl": math.nan}, "KL"),
        ({"kl": math.inf}, "KL"),
        ({"m": 7}, "m = 7"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"mc_delta": 0.0}, "delta"),
        ({"mc_delta": 1.0}, "delta"),
        ({"delta": 0.6, "mc_delta": 0.4}, "delta \\+ mc_delta"),
        ({"delta": 0.9, "mc_delta": 0.9}, "delta \\+ mc_delta"),
    ],
)
def test_numbers_that_make_no_certificate(change, words):
    with pytest.raises(InvalidInput, match=words):
        Evidence(**{**BASE, **change}).derived()
    # The same in a record is found by its check.
    assert dataclasses.replace(certificate(), **change).check()


def test_a_good_record_has_no_faults():
    assert certificate().check() == []
    assert certificate(errors=0, kl=0.0).check() == []


@pytest.mark.parametrize("relative", [1e-9, -1e-9, 0.5])
@pytest.mark.parametrize("name", DERIVED)
def test_any_derived_number_that_was_changed_is_found(name, relative):
    good = certificate()
    changed = dataclasses.replace(good, **{name: getattr(good, name) * (1 + relative)})
    faults = changed.check()
    assert len(faults) == 1 and name in faults[0]


def test_a_risk_of_zero_that_was_changed_is_found():
    assert dataclasses.replace(certificate(errors=0), empirical_risk=1e-300).check()


@pytest.mark.parametrize(
    "change",
    [
        {"errors": 56}, {"visits": 2001}, {"draws": 2001}, {"draws": 2001, "visits": 2001}, {"kl": 12.75 * (1 - 1e-9)},
        {"m": 720}, {"delta": 0.025 * (1 + 1e-9)}, {"mc_delta": 0.01 * (1 + 1e-9)}, {"limit": "one-sided"},
        {"limit": "?"}, {"sampling": "shared"}, {"bound": "McAll"},
    ],
)  # fmt: skip
def test_any_part_that_was_changed_is_found(change):
    assert dataclasses.replace(certificate(), **change).check()


def test_the_file_round_trip_is_exact(tmp_path):
    good = certificate(kl=0.1 + 0.2)
    good.save(tmp_path / "c.json")
    assert Certificate.load(tmp_path / "c.json") == good
    content = (tmp_path / "c.json").read_bytes()
    Certificate.load(tmp_path / "c.json").save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == content
    assert json.loads(content) == dataclasses.asdict(good)


def record() -> dict:
    return dataclasses.asdict(certificate())


FIELDS = [f.name for f in dataclasses.fields(Certificate)]


@pytest.mark.parametrize("name", FIELDS[: FIELDS.index("predictor")])
def test_a_missing_field_is_named(name, tmp_path):
    bad = record()
    del bad[name]
    (tmp_path / "c.json").write_text(json.dumps(bad))
    with pytest.raises(RunError, match=f"'{name}' is missing"):
        Certificate.load(tmp_path / "c.json")


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("value", [None, True, [True], {"a": []}])
def test_a_field_of_another_type_is_named(name, value, tmp_path):
    if value is None and name in ("profile_kl", "log_ratio", "profile_log_ratio"):
        value = "none"
    (tmp_path / "c.json").write_text(json.dumps({**record(), name: value}))
    with pytest.raises(RunError, match=f"{name} must be of type"):
        Certificate.load(tmp_path / "c.json")


def test_numbers_and_words_are_told_apart(tmp_path):
    for name, value in (("m", 719.0), ("errors", "57"), ("kl", "12.75"), ("limit", 1), ("seed", 1.5)):
        (tmp_path / "c.json").write_text(json.dumps({**record(), name: value}))
        with pytest.raises(RunError, match=name):
            Certificate.load(tmp_path / "c.json")


def test_whole_numbers_are_taken_for_floats(tmp_path):
    (tmp_path / "c.json").write_text(json.dumps({**record(), "kl": 12}))
    assert type(Certificate.load(tmp_path / "c.json").kl) is float


def test_an_unknown_field_is_named(tmp_path):
    (tmp_path / "c.json").write_text(json.dumps({**record(), "note": "trust me"}))
    with pytest.raises(RunError, match="'note' is unknown"):
        Certificate.load(tmp_path / "c.json")


@pytest.mark.parametrize("name", ["risk_bound", "kl", "delta", "penalty"])
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_values_that_are_no_numbers_never_pass(name, value, tmp_path):
    text = json.dumps({**record(), name: "HERE"}).replace('"HERE"', value)
    (tmp_path / "c.json").write_text(text)
    try:
        loaded = Certificate.load(tmp_path / "c.json")
    except RunError:
        return
    assert loaded.check()


@pytest.mark.parametrize("name", ["m", "errors", "visits", "draws", "seed", "kl", "delta", "risk_bound"])
@pytest.mark.parametrize("digits", [400, 5000])
def test_numbers_of_hundreds_of_digits_never_crash(name, digits, tmp_path):
    text = json.dumps({**record(), name: "HERE"}).replace('"HERE"', "1" + "0" * digits)
    (tmp_path / "c.json").write_text(text)
    try:
        faults = Certificate.load(tmp_path / "c.json").check()
    except RunError:
        return
    assert faults or name == "seed"


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"3", b"null", b'"text"', b"\xff\xfe", b"[" * 200_000, b'{"a":' * 100_000,
        b" " * (2**20 + 1), b"{} {}",
    ],
    ids=["empty", "open", "list", "number", "null", "string", "no UTF-8", "deep lists", "deep objects", "huge", "two"],
)  # fmt: skip
def test_files_that_are_no_certificates(content, tmp_path):
    (tmp_path / "c.json").write_bytes(content)
    with pytest.raises(RunError, match="not a certificate|too large") as raised:
        Certificate.load(tmp_path / "c.json")
    assert len(str(raised.value)) < 1000


def test_no_file_is_no_certificate(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(RunError, match="no certificate at"):
            Certificate.load(path)


@given(st.floats(0, 1))
def test_a_percentage_is_never_rounded_down_and_close(value):
    shown = percent(value)
    assert re.fullmatch(r"\d+\.\d+ %", shown)
    number = Decimal(shown.removesuffix(" %")) / 100
    assert number >= Decimal(value)
    assert number - Decimal(value) <= Decimal("0.0001")


@settings(max_examples=50, deadline=None)
@given(
    errors=st.integers(0, 2000),
    kl=st.floats(0, 1000),
    delta=st.floats(0.001, 0.5),
    mc_delta=st.floats(0.001, 0.4),
)
def test_the_sentence_rounds_to_the_safe_side(errors, kl, delta, mc_delta):
    issued = certificate(errors=errors, kl=kl, delta=delta, mc_delta=mc_delta)
    confidence, risk = (Decimal(v) / 100 for v in re.findall(r"(\d+(?:\.\d+)?) %", issued.sentence()))
    assert risk >= Decimal(issued.risk_bound)
    # The last digits of a sum such as .025 + .01 are forgiven, so that .965 is shown as 96.5 %.
    assert confidence <= Decimal(issued.confidence) + Decimal("1e-9")
    assert confidence > Decimal(issued.confidence) - Decimal("1.1e-4")


@settings(max_examples=100, deadline=None)
@given(errors=st.integers(0, 2000), kl=st.floats(0, 1000))
def test_a_bound_is_never_shown_below_itself(errors, kl):
    """In the table, and in the sentence of a loss of one's own, which has no percentage."""
    issued = dataclasses.replace(certificate(errors=errors, kl=kl), loss="cost")
    for shown in (
        re.search(r"(\d\.\d{6}), confidence", str(issued)),
        re.search(r"at most (\S+) on", issued.sentence()),
    ):
        assert Decimal(shown[1]) >= Decimal(issued.risk_bound)


def test_the_usual_sentence():
    text = certificate().sentence()
    assert text.startswith("With probability at least 96.5 % over the draw of the data")
    assert "errs on at most" in text and "\n" not in text
    assert str(certificate()).startswith(text)


def test_a_divergence_that_leaves_nothing_to_say_has_a_hint():
    assert "needs freeze_prior()" in str(certificate(kl=1e6))
    assert "the posterior is the prior" in str(certificate(kl=0.0))
    assert re.search(r"KL.* nats$", str(certificate(kl=3.0)), re.M)


def test_the_record_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        certificate().risk_bound = 0.0


@pytest.mark.parametrize("bad", [b"null", b"[]", b'"text"', b"3"])
def test_what_is_no_object_is_no_certificate(bad):
    with pytest.raises(PacBayesError, match="object"):
        Certificate.from_json(bad, "it")


def test_nothing_short_of_certainty_is_called_certain():
    assert confidence_percent(1 - 2e-12) == "99.99 %" and confidence_percent(0.965) == "96.5 %"
