"""Settings: the schedule of rates, and every value outside its domain refused by name."""

from __future__ import annotations

import math

import pytest

from pacbayes.errors import InvalidInput
from pacbayes.training import Settings
from pacbayes.training.settings import learning_rates


def test_steps():
    assert learning_rates(Settings(schedule="2@0.1, 3@0.01")) == [0.1] * 2 + [0.01] * 3
    assert learning_rates(Settings(schedule="1@1e-3")) == [1e-3]


def test_constant():
    assert learning_rates(Settings(schedule="constant", epochs=4, rate=0.3)) == [0.3] * 4


def test_cosine_goes_from_the_rate_towards_zero():
    rates = learning_rates(Settings(schedule="cosine", epochs=8, rate=0.4))
    assert rates == pytest.approx([0.2 * (1 + math.cos(math.pi * e / 8)) for e in range(8)])
    assert rates[0] == 0.4 and rates == sorted(rates, reverse=True) and rates[-1] > 0


def test_a_trained_lambda_doubles_the_epochs():
    assert learning_rates(Settings(objective="lbd", schedule="2@0.1, 1@0.01")) == [0.1] * 4 + [0.01] * 2
    assert len(learning_rates(Settings(objective="lbd", epochs=5))) == 10
    assert len(learning_rates(Settings(objective="lbd", lam="best", epochs=5))) == 5
    assert len(learning_rates(Settings(objective="lbd", method="CE", epochs=5))) == 5


@pytest.mark.parametrize(
    "text",
    [
        "", "linear", "2", "@", "2@", "@0.1", "2@0.1@3", "2@0.1,", ",2@0.1", "0@0.1", "-1@0.1", "1.5@0.1", "2@0",
        "2@-1", "2@nan", "2@inf", "two@0.1", "2@0.1; 3@0.01",
    ],
)  # fmt: skip
def test_schedules_that_are_none(text):
    with pytest.raises(InvalidInput, match="schedule") as raised:
        Settings(schedule=text)
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("objective", "invkl"), ("objective", ""), ("method", "g"), ("sampling", "each"), ("estimator", "L3"),
        ("lam", "0.5"), ("keep", "first"), ("evaluate", "never"),
        ("rate", 0.0), ("rate", -1.0), ("rate", math.nan), ("rate", math.inf),
        ("momentum", -0.1), ("momentum", 1.0), ("momentum", math.nan),
        ("dropout", -0.1), ("dropout", 1.0), ("dropout", math.nan),
        ("p_min", 0.0), ("p_min", 0.5), ("p_min", math.nan),
        ("kappa", -1.0), ("kappa", math.nan), ("kappa", math.inf),
        ("delta", 0.0), ("delta", 1.0), ("delta", -0.1), ("delta", 1.1), ("delta", math.nan),
        ("epochs", 0), ("epochs", -1), ("batch_size", 0), ("samples", 0), ("seed", -1), ("seed", 2**63),
        ("averaged", -1), ("averaged", 3),
    ],
)  # fmt: skip
def test_values_outside_their_domain_are_refused_by_name(name, value):
    with pytest.raises(InvalidInput) as raised:
        Settings.of(**{name: value})
    assert name in str(raised.value) and str(value) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("epochs", "3"), ("epochs", 2.5), ("batch_size", 2.5), ("rate", "0.1"), ("delta", None), ("schedule", 3)],
)
def test_values_of_another_type_are_refused_by_name(name, value):
    with pytest.raises(InvalidInput, match=name):
        Settings.of(**{name: value})


def test_choices_are_named():
    with pytest.raises(InvalidInput, match="invKL, McAll, quad, lbd, ERM"):
        Settings(objective="kl")
    with pytest.raises(InvalidInput, match="'learning_rate'.*objective.*rate"):
        Settings.of(learning_rate=0.1)


def test_no_more_epochs_are_averaged_than_there_are():
    assert Settings(objective="ERM", epochs=6, averaged=6).averaged == 6
    for options in ({"epochs": 6}, {"schedule": "2@0.1, 4@0.01"}):
        with pytest.raises(InvalidInput, match="from 0 to 6, .*it is 7"):
            Settings.of(objective="ERM", averaged=7, **options)


def test_a_trained_lambda_has_no_averages():
    with pytest.raises(InvalidInput, match="trained lambda"):
        Settings(objective="lbd", keep="last", averaged=2)
    Settings(objective="lbd", keep="last", lam="best", averaged=2)


def test_edges_that_are_allowed():
    Settings(kappa=0.0, momentum=0.0, dropout=0.0, epochs=1, batch_size=1, seed=2**63 - 1)
