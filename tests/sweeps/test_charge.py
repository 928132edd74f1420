"""What is free and what is charged: asked of the trainings themselves, not of a list of names."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest

from pacbayes.errors import InvalidInput
from pacbayes.runs import Config, train_run
from pacbayes.runs.config import nested
from pacbayes.sweeps import Specification
from pacbayes.sweeps.charge import count, posterior_side
from pacbayes.training import Ordinary, Settings

# Another value for every option of the posterior's training.
OTHERS = {
    "objective": "quad", "method": "S", "epochs": 1, "rate": 0.03, "schedule": "1@0.01", "optimiser": "adam",
    "momentum": 0.1, "kappa": 0.3, "weighted": "KL", "divergence": "profile", "batch_size": 8, "sampling": "shared",
    "dropout": 0.5, "p_min": 0.01, "estimator": "L1", "samples": 7, "nodes": 8, "lam": "best", "precision": "bf16",
    "keep": "last", "evaluate": "running",
}  # fmt: skip
# They have no value of their own in a sweep.
NEITHER = {"data", "data_folder", "device", "priors", "posterior.delta", "posterior.averaged"}


def all_options() -> set[str]:
    own = {item.name for item in fields(Config)} - {"ordinary", "pretraining", "prior_training", "posterior"}
    own |= {f"ordinary.{item.name}" for item in fields(Ordinary) if item.name != "seed"}
    stages = ("pretraining", "prior_training", "posterior")
    return own | {f"{stage}.{item.name}" for stage in stages for item in fields(Settings) if item.name != "seed"}


def test_every_option_is_free_or_charged_or_refused():
    free = {name for name in all_options() if posterior_side(name)}
    assert free == {f"posterior.{name}" for name in OTHERS}
    for name in all_options() - free:
        axes = {name: ("a", "b", "c")}
        if name in NEITHER:
            with pytest.raises(InvalidInput, match="cannot be an axis"):
                count(axes, 0.1, 0.1)
        else:
            assert count(axes, 0.1, 0.1).priors == 3


@pytest.fixture(scope="module")
def prior_files(data_file, tmp_path_factory):
    """The bytes of prior and split of a run with another value of one option of the posterior."""
    folder = tmp_path_factory.mktemp("runs")
    stages = {"pretraining": {"epochs": 0}, "prior_training": {"epochs": 1}, "posterior": {"epochs": 2}}
    base = Config().with_options({"data": str(data_file), "model": "mlp", "expected_risk": 0.1, **stages})

    def made(name: str, value: object) -> tuple[bytes, bytes]:
        run = train_run(base.with_options(nested({name: value})), folder / name)
        return run.read("prior.safetensors"), run.read("data.json")

    return made


def test_what_is_free_leaves_prior_and_split_as_they_are(prior_files):
    usual = prior_files("seed", 0)
    for name, value in OTHERS.items():
        assert getattr(Settings(), name) != value
        # Not every CPU has bf16.
        assert name == "precision" or prior_files(f"posterior.{name}", value) == usual, name
    # Refused as an axis for a reason: C is chosen by it, and C is a part of the prior.
    assert prior_files("posterior.delta", 0.1) != usual


@pytest.mark.parametrize("kind", ["grid", "search"])
def test_all_that_the_file_can_make_is_charged(kind):
    head = 'kind = "search"\ntrials = 2\n' if kind == "search" else ""
    axes = (
        "[axes]\nprior_fraction = [0.3, 0.5, 0.7]\nseed = [0, 1]\nposterior.rate = [0.1, 0.2]\nmodel = ['mlp', 'mlp-2']"
    )
    charge = Specification.parse((head + axes).encode()).charge
    assert charge.priors == 12 and charge.each == 0.025 / 12 and charge.free == ("posterior.rate",)
    assert "12 priors" in str(charge) and f"{math.log(12):.2f} nats" in str(charge)


def test_a_range_of_priors_cannot_be_paid_for():
    text = 'kind = "search"\ntrials = 9\n[axes]\nprior_variance = { low = 0.001, high = 0.1, log = true }'
    with pytest.raises(InvalidInput, match="depends on the bound data. List the values"):
        Specification.parse(text.encode())


def test_without_priors_to_choose_from_nothing_is_charged():
    charge = Specification.parse(b"[axes]\nposterior.rate = [0.1, 0.2]").charge
    assert (charge.priors, charge.each) == (1, 0.025) and "Nothing is charged" in str(charge)
    assert "at mc_delta = 0.01" in str(charge)
    single = Specification.parse(b"[axes]\nposterior.rate = [0.1, 0.2]\n[certify]\npredictor = 'single'").charge
    assert single.mc_delta == 0 and "mc_delta" not in str(single)
