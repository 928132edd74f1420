"""Runs whose prior comes from ordinary training, from other data, or lies in the last layer alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import pacbayes as pb
import pacbayes.runs.networks
from pacbayes.certificates.audit import recount
from pacbayes.errors import InvalidInput
from pacbayes.runs import Config, RunFolder, certify_run, train_run, trained_network, verify_run

ORDINARY = {"epochs": 3, "batch_size": 20, "rate": 0.2}


def write_images(path: Path, m: int = 80, seed: int = 0) -> Path:
    """Three classes of 12 x 12 images: where the bright stripe is."""
    generator = np.random.default_rng(seed)

    def part(n: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.arange(n) % 3
        x = generator.normal(size=(n, 1, 12, 12)) * 0.3
        x[np.arange(n), 0, 4 * y] += 1
        return x, y

    (x, y), (x_test, y_test) = part(m), part(30)
    np.savez(path, x=x, y=y, x_test=x_test, y_test=y_test)
    return path


@pytest.fixture
def config(tmp_path) -> Config:
    options = {
        "data": str(write_images(tmp_path / "data.npz")), "model": "cnn-small", "prior_variance": 1e-5,
        "pretraining": {"epochs": 0}, "prior_training": {"epochs": 0}, "posterior": {"epochs": 2, "batch_size": 20},
    }  # fmt: skip
    return Config().with_options(options)


def verified(run: RunFolder) -> list[str]:
    checks = list(verify_run(run, recompute=True))
    assert not [check for check in checks if check.status == "failed"]
    return [f"{check.name}: {check.detail}" for check in checks]


def lines(run: RunFolder) -> list[dict[str, object]]:
    return [json.loads(line) for line in run.history_file.read_text().splitlines()]


@pytest.mark.parametrize("drawn", ["all", "last"])
def test_an_ordinary_network_is_the_prior_and_the_run_is_verified(drawn, config, tmp_path):
    run = train_run(config.with_options({"ordinary": ORDINARY, "drawn": drawn}), tmp_path / "run")
    assert [(line["stage"], line["epoch"]) for line in lines(run)] == [
        ("ordinary", 0), ("ordinary", 1), ("ordinary", 2), ("posterior", 0), ("posterior", 1)
    ]  # fmt: skip
    counted = {"sampling": "exact"} if drawn == "last" else {"draws": 400}
    certificate, evaluation = certify_run(run, test_draws=5, seed=1, bound="best", **counted)
    assert certificate.empirical_risk < 0.2 and evaluation.test_error < 0.2
    verified(run)
    drawn_weights = [name for name in run.weights("prior") if name.startswith("mean.")]
    assert len(drawn_weights) == (2 if drawn == "last" else 8)
    # What is fixed in the posterior's file is the body that was trained, and another one is refused.
    if drawn == "last":
        assert any(name.startswith("fixed.") for name in run.weights("posterior"))


def test_a_body_that_is_fixed_is_trained_through_as_its_features_are(config, tmp_path, monkeypatch):
    """The same posterior whether the features are computed once or in every step."""
    config = config.with_options({"ordinary": ORDINARY, "drawn": "last"})
    once = train_run(config, tmp_path / "once").weights("posterior")
    monkeypatch.setattr("pacbayes.training.last_layer.body_is_fixed", lambda net, data: False)
    always = train_run(config, tmp_path / "always").weights("posterior")
    assert all(torch.allclose(once[name], always[name], atol=1e-6) for name in once)


@pytest.mark.parametrize("stop", range(5))
def test_going_on_after_any_epoch_ends_in_the_same_bytes(stop, config, tmp_path):
    config = config.with_options({"ordinary": {**ORDINARY, "average": 0.9}, "drawn": "last" if stop % 2 else "all"})

    seen: list[object] = []

    def watch(*epoch: object) -> None:
        seen.append(epoch)
        if len(seen) == stop + 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(config, tmp_path / "run", checkpoint_seconds=0, watch=watch)
    again, whole = train_run(None, tmp_path / "run", resume=True), train_run(config, tmp_path / "whole")
    for name in ("prior.safetensors", "posterior.safetensors", "history.jsonl"):
        assert again.read(name) == whole.read(name)


def test_a_prior_learnt_on_other_data_leaves_all_for_the_bound(config, tmp_path):
    other = write_images(tmp_path / "other.npz", 60, seed=1)
    run = train_run(config.with_options({"ordinary": ORDINARY, "prior_data": str(other)}), tmp_path / "run")
    certificate, evaluation = certify_run(run, draws=400, test_draws=5, seed=1)
    assert certificate.m == 80 and evaluation.holdout_bound is not None
    assert any("learnt on 60 other examples" in line for line in verified(run))
    # With other prior data than those recorded the run is not what it says.
    write_images(other, 60, seed=2)
    assert [check.name for check in verify_run(run) if check.status == "failed"] == ["split"]


@pytest.mark.filterwarnings("ignore:.*one that the prior has seen")
def test_prior_data_that_are_bound_data_are_refused_and_found(config, tmp_path, monkeypatch):
    """A copy under another name, a few of them, or all in another order."""
    data = dict(np.load(config.data))
    chosen = {"copy": np.arange(80), "few": np.arange(24), "shuffled": np.random.default_rng(0).permutation(80)}
    for name, rows in chosen.items():
        np.savez(tmp_path / f"{name}.npz", x=data["x"][rows], y=data["y"][rows])
        other = config.with_options({"ordinary": ORDINARY, "prior_data": str(tmp_path / f"{name}.npz")})
        with pytest.raises(InvalidInput, match="some of the prior data are among the training data"):
            train_run(other, tmp_path / name)
        assert not (tmp_path / name).exists()
        with monkeypatch.context() as forger:
            forger.setattr("pacbayes.data.Data.overlaps", lambda *_: False)
            run = train_run(other, tmp_path / name)
            certify_run(run, draws=200, test_draws=2, seed=1)
        assert "prior data" in [check.name for check in verify_run(run) if check.status == "failed"]


def test_without_the_prior_data_the_rest_is_verified_all_the_same(config, tmp_path):
    other = write_images(tmp_path / "other.npz", 60, seed=1)
    run = train_run(config.with_options({"ordinary": ORDINARY, "prior_data": str(other)}), tmp_path / "run")
    certify_run(run, draws=400, test_draws=5, seed=1)
    other.unlink()
    checks = {check.name: check.status for check in verify_run(run, recompute=True)}
    assert checks["prior data"] == "not checkable" and "failed" not in checks.values()
    assert checks["bound data"] == checks["m"] == checks["Monte Carlo"] == "passed"


def test_a_body_or_a_parameter_that_is_not_data_free_is_found(config, tmp_path, monkeypatch):
    options = {"model": "scattering", "prior": "data-free", "prior_variance": 0.01}
    build = pacbayes.runs.networks.build

    def shaped(*arguments: object, **named: object) -> torch.nn.Module:
        model = build(*arguments, **named)
        model[0].wavelets_0 *= 1.5
        return model

    with monkeypatch.context() as forger:
        forger.setattr("pacbayes.runs.networks.build", shaped)
        run = train_run(config.with_options(options), tmp_path / "body")
        certify_run(run, sampling="exact", test_draws=2, seed=1)
    assert "data-free prior" in [check.name for check in verify_run(run) if check.status == "failed"]
    with monkeypatch.context() as forger:
        forger.setattr("pacbayes.runs.train.catoni_parameter", lambda *_: 3.21)
        run = train_run(config.with_options({**options, "expected_risk": 0.1}), tmp_path / "parameter")
        certify_run(run, sampling="exact", test_draws=2, seed=1, bound="catoni")
    assert [check.name for check in verify_run(run) if check.status == "failed"] == ["C"]


def test_a_computed_risk_that_was_made_a_little_smaller_is_found(config, tmp_path):
    run = train_run(config.with_options({"ordinary": ORDINARY, "drawn": "last"}), tmp_path / "run")
    certificate, _ = certify_run(run, sampling="exact", test_draws=2, seed=1)
    net, bound_data = trained_network(run)
    for share, fits in ((1.0, True), (0.999, False)):
        told = replace(certificate, errors=int(certificate.errors * share))
        recorded, found, allowed = recount(told, net, bound_data, 1)["errors"]
        assert (abs(recorded - found) <= allowed) == fits


def test_the_head_of_a_fixed_body_keeps_what_was_fixed_with_the_prior():
    net = pb.stochastic(pb.build("scattering", (1, 12, 12), 3), 0.01)
    net.fix_catoni(0.7)
    net.single_draws = 5
    _, head = pb.features(net, (torch.rand(9, 1, 12, 12), torch.arange(9) % 3))
    assert head.catoni == (0.7,) and head.single_draws == 5


def test_the_scattering_network_has_a_data_free_prior(config, tmp_path):
    options = {"model": "scattering", "prior": "data-free", "prior_variance": 0.01, "posterior": {"rate": 0.1}}
    run = train_run(config.with_options(options), tmp_path / "run")
    certificate, _ = certify_run(run, sampling="exact", bound="best", test_draws=5, seed=1)
    assert certificate.m == 80 and certificate.mc_delta == 0
    assert any(line.startswith("data-free prior: ") for line in verified(run))


@pytest.mark.parametrize(
    "options",
    [
        {"prior": "data-free", "ordinary": ORDINARY}, {"prior": "data-free", "prior_data": "strokes"},
        {"prior": "data-free", "drawn": "last"}, {"drawn": "first"}, {"ordinary": {"colour": 1}},
        {"ordinary": {"augmentation": "warp"}}, {"ordinary": {"seed": 1}}, {"prior_data": "digits"},
        {"ordinary": {"augmentation": "shift 12"}}, {"ordinary": {"augmentation": "shift 2.5"}}, {"held_back": 0.01},
    ],
)  # fmt: skip
def test_nothing_is_written_for_what_cannot_be(options, config, tmp_path):
    with pytest.raises(InvalidInput):
        train_run(config.with_options(options), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_configuration_with_all_of_it_is_read_as_it_was_written(config, tmp_path):
    config = config.with_options({"ordinary": {**ORDINARY, "augmentation": "flip"}, "prior_data": "strokes"})
    assert Config.parse(config.to_toml().encode(), tmp_path) == config
    assert Config.parse(Config().to_toml().encode(), tmp_path) == Config()
