"""Certificates of classes and of confusions."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
from small_data import gaussian_data
from torch import nn

from pacbayes.certificates import (
    certify_classes,
    monte_carlo,
)
from pacbayes.certificates.classes import ClassCertificate
from pacbayes.certificates.monte_carlo import (
    confusion_counts,
)
from pacbayes.data import as_data
from pacbayes.errors import InvalidInput, RunError
from pacbayes.networks import stochastic


def test_classes_and_confusions(trained):
    net, data, _ = trained
    issued = certify_classes(net, data, draws=900, seed=5)
    assert issued.check() == [] and issued.m == [30, 30, 30] and issued.visits == [300, 300, 300]
    for y in range(3):
        row = issued.counts[y]
        assert row[y] == sum(row[j] for j in range(3) if j != y), "wrong answers are the other answers"
        assert all(issued.bounds[y][j] <= issued.bounds[y][y] for j in range(3))
    assert "class 2" in str(issued)


def test_a_class_certificate_in_a_file(trained, tmp_path):
    net, data, _ = trained
    issued = certify_classes(net, data, draws=300, seed=5)
    issued.save(tmp_path / "classes.json")
    assert ClassCertificate.load(tmp_path / "classes.json") == issued
    changed = [list(row) for row in issued.counts]
    changed[1][2] += 1
    for change in ({"counts": changed}, {"m": [30, 31, 30]}, {"delta": 0.02}, {"visits": [1, 1, 1]}, {"m": [30]}):
        assert replace(issued, **change).check()
    for content in ("", "[]", "{}", "[" * 10**5):
        (tmp_path / "bad.json").write_text(content)
        with pytest.raises(RunError, match="no certificate of classes"):
            ClassCertificate.load(tmp_path / "bad.json")
    record = json.loads((tmp_path / "classes.json").read_text())
    del record["bounds"]
    (tmp_path / "bad.json").write_text(json.dumps(record))
    with pytest.raises(RunError, match="no certificate of classes: 'bounds' is missing"):
        ClassCertificate.load(tmp_path / "bad.json")


@pytest.mark.parametrize(
    "change",
    [
        {"delta": 40.0, "mc_delta": 40.0},
        {"delta": 0.99, "mc_delta": 0.01},
        {"delta": -0.01},
        {"kl": -5.0},
        {"bound": "zzz"},
    ],
)
def test_a_record_without_confidence_or_a_divergence_is_refused(change, trained):
    """Whatever follows from it."""
    issued = replace(certify_classes(*trained[:2], draws=300, seed=5), **change)
    assert issued.check() and "follow" not in issued.check()[0]


def test_wrong_answers_are_the_sum_of_confusions(trained):
    issued = certify_classes(*trained[:2], draws=300, seed=5)
    for y, j in ((0, 0), (1, 2)):
        counts = [list(row) for row in issued.counts]
        counts[y][j] = max(0, counts[y][j] - 1) if counts[y][j] else 1
        assert issued.check() == [] and "sum of its confusions" in replace(issued, counts=counts).check()[0]


def test_a_file_of_many_lists_is_not_read(tmp_path):
    (tmp_path / "classes.json").write_text('{"bounds": [' + "[]," * 3000 + "[]]}")
    with pytest.raises(RunError, match="lists for more than 1000"):
        ClassCertificate.load(tmp_path / "classes.json")


def test_cells_that_are_alike_are_computed_once(monkeypatch):
    """A thousand classes have a million cells, and few of them differ."""
    k, cells, cell = 60, [], ClassCertificate._cell
    monkeypatch.setattr(ClassCertificate, "_cell", lambda self, *key: cells.append(key) or cell(self, *key))
    counts = [[int(j in (y, (y + 1) % k)) for j in range(k)] for y in range(k)]
    issued = ClassCertificate(
        bounds=[], counts=counts, visits=[20] * k, m=[10] * k, kl=1.0, profile_kl=2.0, catoni=[1.0], bound="invKL",
        delta=0.025, mc_delta=0.01, prior_fingerprint="", posterior_fingerprint="", bound_data_fingerprint="", seed=0,
    )  # fmt: skip
    issued = replace(issued, bounds=issued._recomputed())
    assert sorted(cells) == [(0, 20, 10), (1, 20, 10)] and not issued.check()


@pytest.mark.parametrize(
    ("k", "m", "words"),
    [(1001, 10, "for 1000 of them at most, not 1001"), (20, 10**11, "10000000000 examples at most")],
)
def test_a_record_that_would_take_hours_is_refused_at_once(monkeypatch, k, m, words):
    monkeypatch.setattr(ClassCertificate, "_cell", lambda *key: pytest.fail("computed"))
    issued = ClassCertificate(
        bounds=[[0.5] * k] * k, counts=[[0] * k] * k, visits=[m] * k, m=[m] * k, kl=1.0, profile_kl=2.0, catoni=[1.0],
        bound="best", delta=0.025, mc_delta=0.01, prior_fingerprint="", posterior_fingerprint="",
        bound_data_fingerprint="", seed=0,
    )  # fmt: skip
    assert words in issued.check()[0]


def test_the_first_row_that_is_wrong_ends_the_check(trained, monkeypatch):
    net, data, _ = trained
    issued = certify_classes(net, data.take(torch.arange(len(data) - 1).numpy()), draws=300, seed=5)
    assert issued.m[0] != issued.m[-1]
    rows, cell = [], ClassCertificate._cell
    monkeypatch.setattr(ClassCertificate, "_cell", lambda self, *key: rows.append(key[1:]) or cell(self, *key))
    bounds = [[0.5] * len(issued.m), *issued.bounds[1:]]
    assert replace(issued, bounds=bounds).check() == ["the bounds do not follow from the counts"]
    assert set(rows) == {(issued.visits[0], issued.m[0])}
    assert issued.check() == [] and len(set(rows)) > 1


def test_more_classes_than_a_file_has_room_for(monkeypatch):
    net = stochastic(nn.Linear(3, 1001), 0.01)
    monkeypatch.setattr("pacbayes.certificates.classes.confusion_counts", lambda *args: pytest.fail("drawn"))
    with pytest.raises(InvalidInput, match="for 1000 of them at most, not 1001"):
        certify_classes(net, (torch.randn(20, 3), torch.arange(20)), draws=100)


def test_what_no_class_certificate_can_be_made_of_is_said_before_the_draws(trained, monkeypatch):
    net, data, _ = trained
    monkeypatch.setattr("pacbayes.certificates.classes.confusion_counts", lambda *args: pytest.fail("drawn"))
    for options in ({"bound": "invkl"}, {"delta": 0.6, "mc_delta": 0.5}, {"priors": 2.5}):
        with pytest.raises(InvalidInput):
            certify_classes(net, data, **options)


def test_a_class_too_small_for_the_papers_bound_has_no_promise(trained):
    net, data, _ = trained
    few = data.take(torch.cat([torch.arange(90)[data.y != 1], torch.arange(90)[data.y == 1][:3]]).numpy())
    issued = certify_classes(net, few, draws=90, seed=1, bound="invKL")
    assert issued.m == [30, 3, 30] and issued.bounds[1] == [1.0] * 3 and issued.check() == []


def test_bounds_of_classes_may_differ_in_the_last_digit_and_are_not_rounded_to_certainty(trained):
    net, data, _ = trained
    issued = certify_classes(net, data, draws=300, seed=5, delta=1e-5, mc_delta=1e-5)
    assert "at least 99.99 %" in str(issued)
    nudged = [[math.nextafter(value, 0) for value in row] for row in issued.bounds]
    assert replace(issued, bounds=nudged).check() == []
    assert replace(issued, bounds=[[value * 0.999 for value in row] for row in issued.bounds]).check()


def test_a_class_without_examples_has_no_promise():
    net = stochastic(nn.Linear(4, 4), 0.1)
    data = as_data((gaussian_data().x, gaussian_data().y), classes=4)
    assert certify_classes(net, data, draws=90, seed=1).bounds[3] == [1.0] * 4


def test_confusion_counts_are_those_of_the_errors(trained):
    net, data, _ = trained
    counts = confusion_counts(net, data, 900, 6)
    errors = monte_carlo.independent_errors(net, data, 900, 6)
    assert int(counts.sum()) == 900 and int(counts.sum() - counts.diagonal().sum()) == errors
