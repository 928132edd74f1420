"""Tables in units of their own: a run scales them by the prior data alone, keeps the numbers, and they are verified."""

from __future__ import annotations

import numpy as np
import pytest
import safetensors.torch
import torch

from pacbayes.data import load, load_inputs
from pacbayes.errors import InvalidInput, RunError
from pacbayes.networks.standardisation import moments, standardise
from pacbayes.report import model_card
from pacbayes.runs import Config, certify_run, predict_run, train_run, trained_network, verify_run
from pacbayes.runs.check import FAILED, OPEN, PASSED
from pacbayes.runs.data import training_data


def write_table(path, m=200, seed=0):
    """A csv file of two classes, whose features are of size 1e-4 and 1e6."""
    generator = np.random.default_rng(seed)
    y = np.arange(m) % 2
    x = (generator.normal(size=(m, 2)) + 3 * y[:, None]) * [1e-4, 1e6] + [5e-4, -4e7]
    rows = [f"{a:.8g},{b:.8g},{'no' if label == 0 else 'yes'}" for (a, b), label in zip(x, y, strict=True)]
    path.write_text("\n".join(["height,area,label", *rows]) + "\n")
    return path


@pytest.fixture
def config(tmp_path, tiny):
    table = write_table(tmp_path / "table.csv")
    return tiny(table, pretraining={"epochs": 10}, prior_training={"epochs": 3})


def statuses(run, **options):
    return {check.name: check.status for check in verify_run(run, **options)}


def test_a_table_is_scaled_by_its_prior_data(config, tmp_path):
    run = train_run(config, tmp_path / "run")
    certificate, _ = certify_run(run, draws=2000, test_draws=2, seed=1)
    assert certificate.risk_bound < 0.35
    data = training_data(config)
    for which in ("prior", "posterior"):
        mean, deviation = (run.weights(which)[f"fixed.scaling.{name}"] for name in ("mean", "deviation"))
        assert all(map(torch.equal, (mean, deviation), moments(data.prior)))
        assert not torch.equal(mean, moments(load(config.data))[0])
    assert "the network scales them itself" in model_card(run)
    assert set(statuses(run, recompute=True).values()) == {PASSED} and statuses(run)["scaling"] == PASSED

    # New examples come in the units of the table.
    (tmp_path / "new.csv").write_text("height,area\n" + "5e-4,-4e7\n8e-4,-3.7e7\n" * 20)
    labels = predict_run(run, load_inputs(tmp_path / "new.csv"), seed=0)
    assert (labels == torch.tensor([0, 1] * 20)).float().mean() > 0.9


def test_without_it_such_a_table_cannot_be_learnt(config, tmp_path):
    with pytest.warns(UserWarning, match="inputs are as large as"):
        run = train_run(config.with_options({"scaling": "none"}), tmp_path / "run")
    assert certify_run(run, draws=2000, test_draws=2, seed=1)[0].risk_bound > 0.5
    assert "scaling" not in statuses(run)


def test_a_scaling_that_has_seen_the_bound_data_is_found(config, tmp_path, monkeypatch):
    """Planted: fitted on all of the table, as a scaler before the split would be."""
    monkeypatch.setattr("pacbayes.runs.networks.standardise", lambda model, data: standardise(model, data.source[0]))
    run = train_run(config, tmp_path / "run")
    certify_run(run, draws=100, test_draws=2)
    found = statuses(run)
    assert {name for name, status in found.items() if status == FAILED} == {"scaling"}


def test_a_posterior_with_another_scaling_is_refused(config, tmp_path, agree):
    """One who mends every hash, and puts a scaling of his own into the posterior's file alone."""
    run = train_run(config, tmp_path / "run")
    certify_run(run, draws=100, test_draws=2)
    tensors = run.weights("posterior")
    tensors["fixed.scaling.mean"] += tensors["fixed.scaling.deviation"]
    run.weights_file("posterior").write_bytes(safetensors.torch.save(tensors))
    agree(run)
    with pytest.raises(RunError, match="what is fixed in posterior.safetensors"):
        trained_network(run)
    assert statuses(run)["KL"] == FAILED


def test_what_is_scaled(config, tmp_path):
    assert config.scales((2,)) and not config.scales((1, 8, 8))
    assert Config(scaling="prior-data").scales((1, 8, 8)) and not Config(scaling="none").scales((2,))
    assert Config.parse(config.with_options({"scaling": "none"}).to_toml().encode(), tmp_path).scaling == "none"
    with pytest.raises(InvalidInput, match="unknown scaling 'min-max': choose one of auto, prior-data, none"):
        Config(scaling="min-max")


def test_without_prior_data_nothing_is_fitted(config, tmp_path):
    assert not config.with_options({"prior": "data-free"}).scales((2,))
    with pytest.raises(InvalidInput, match="no prior data to scale by"):
        config.with_options({"prior": "data-free", "scaling": "prior-data"})


@pytest.mark.parametrize("options", [{"drawn": "last"}, {"held_back": 0.3}, {"prior_data": "other.csv"}])
def test_whatever_else_makes_the_prior(options, config, tmp_path, monkeypatch):
    """The last layer alone drawn, a part held back, data from elsewhere: the scaling is that of all prior data."""
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "other.csv", m=80, seed=1)
    run = train_run(config.with_options(options), tmp_path / "run")
    certify_run(run, draws=100, test_draws=2)
    assert set(statuses(run).values()) <= {PASSED, OPEN} and statuses(run)["scaling"] == PASSED
