"""The walk of a run: its files, their order, and going on after an interruption at any epoch."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from pacbayes.bounds import catoni_parameter
from pacbayes.certificates.monte_carlo import independent_errors
from pacbayes.data import load, split
from pacbayes.data.splits import split_indices
from pacbayes.errors import DataError, InvalidInput, RunError
from pacbayes.files import sha256
from pacbayes.networks import build, standardise, stochastic
from pacbayes.runs import Config, RunFolder, certify_run, train_run, trained_network, verify_run
from pacbayes.runs.data import training_data
from pacbayes.runs.folder import FILES
from pacbayes.runs.networks import new_network
from pacbayes.seeds import derived_seed
from pacbayes.training import fit

KEPT = {"config.toml", "data.json", "history.jsonl", "prior.safetensors", "posterior.safetensors", "journal.jsonl"}


class Stop(Exception):
    pass


def contents(run: RunFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.path.iterdir()}


@pytest.fixture
def config(tiny, data_file, tmp_path) -> Config:
    return tiny(data_file(tmp_path / "data.npz"))


def test_the_files_of_a_finished_run(config, tmp_path):
    run = train_run(config, tmp_path / "run")
    assert set(contents(run)) == KEPT
    assert run.config() == config
    lines = [json.loads(line) for line in run.history_file.read_text().splitlines()]
    assert [(line["stage"], line["epoch"]) for line in lines] == [
        ("pretraining", 0), ("pretraining", 1), ("prior", 0), ("prior", 1),
        ("posterior", 0), ("posterior", 1), ("posterior", 2),
    ]  # fmt: skip
    for line in lines:
        assert {"rate", "objective", "risk", "kl", "penalty", "bound"} <= line.keys()


def test_the_walk_is_that_of_the_library(config, tmp_path):
    """Split, pre-train, train the prior, freeze, train the posterior: the same weights by hand."""
    run = train_run(config, tmp_path / "run")
    prior_data, bound_data = split(load(config.data), 0.5, config.seed)
    model = standardise(build("mlp", (4,), 3, seed=config.seed), prior_data)
    net = stochastic(model, config.prior_variance)
    stages = config.stages()
    fit(net, prior_data, settings=stages["pretraining"])
    fit(net, prior_data, settings=stages["prior"])
    net.freeze_prior()
    fit(net, bound_data, settings=stages["posterior"])
    assert net.fingerprint("prior") == sha256(run.read("prior.safetensors"))
    assert net.fingerprint("posterior") == sha256(run.read("posterior.safetensors"))
    loaded, shown = trained_network(run)
    assert torch.equal(loaded.mean, net.mean) and torch.equal(loaded.prior_rho, net.prior_rho)
    assert shown.fingerprint() == bound_data.fingerprint()


def test_a_data_free_prior_is_the_start_and_all_the_data_are_for_the_bound(config, tmp_path):
    run = train_run(config.with_options({"prior": "data-free"}), tmp_path / "run")
    start = stochastic(build("mlp", (4,), 3, seed=config.seed), config.prior_variance)
    assert sha256(run.read("prior.safetensors")) == start.fingerprint("prior")
    assert len(trained_network(run)[1]) == 60


@pytest.mark.parametrize("option", [{"seed": 1}, {"prior_variance": 0.01}, {"init": "orthogonal"}])
def test_same_configuration_same_bytes_and_another_others(option, config, tmp_path):
    first, second = (contents(train_run(config, tmp_path / name)) for name in "ab")
    assert first == second
    other = contents(train_run(config.with_options(option), tmp_path / "c"))
    assert other["prior.safetensors"] != first["prior.safetensors"]


def test_the_prior_is_on_disk_before_the_posterior_is_trained_and_stays(config, tmp_path):
    seen = []

    def watch(stage, total, epoch):
        prior = tmp_path / "run" / "prior.safetensors"
        seen.append((stage, sha256(prior.read_bytes()) if prior.exists() else None))

    run = train_run(config, tmp_path / "run", watch=watch)
    final = sha256(run.read("prior.safetensors"))
    assert {prior for stage, prior in seen if stage != "posterior"} == {None}
    assert {prior for stage, prior in seen if stage == "posterior"} == {final}
    assert len([stage for stage, _ in seen if stage == "posterior"]) == 3


@pytest.mark.parametrize("options", [{}, {"prior": "data-free", "posterior": {"objective": "lbd", "epochs": 2}}])
def test_resuming_after_any_epoch_ends_in_the_same_bytes(options, config, tmp_path):
    config = config.with_options(options)
    expected = contents(train_run(config, tmp_path / "whole"))
    total = expected["history.jsonl"].count(b"\n")
    for stop in range(total):
        left = iter(range(stop + 1))

        def watch(*_, left=left, stop=stop):
            if next(left) == stop:
                raise Stop

        path = tmp_path / f"run-{stop}"
        with pytest.raises(Stop):
            train_run(config, path, checkpoint_seconds=0, watch=watch)
        assert not (path / "posterior.safetensors").exists()
        assert contents(train_run(None, path, resume=True)) == expected


def test_catonis_parameter_is_chosen_on_prior_data_that_do_not_train_the_prior(config, tmp_path):
    config = config.with_options({"held_back": 0.3})
    run = train_run(config, tmp_path / "run")
    data = np.load(config.data)
    prior, _ = split_indices(60, 0.5, config.seed)
    _, held = split_indices(30, 0.7, derived_seed(config.seed, 11))
    # Other labels for what was held back: the prior's weights stay, and another risk is expected.
    labels = data["y"].copy()
    labels[prior[held]] = (labels[prior[held]] + 1) % 3
    np.savez(tmp_path / "other.npz", **{**data, "y": labels})
    other = train_run(config.with_options({"data": str(tmp_path / "other.npz")}), tmp_path / "other")
    first, second = (folder.weights("prior") for folder in (run, other))
    for name in first.keys() - {"catoni"}:
        assert torch.equal(first[name], second[name])
    assert len(first["catoni"]) == 1 and first["catoni"] != second["catoni"]
    # The C of the prior's own error there, and the bound that uses it is verified.
    net = new_network(config, (4,), 3)
    net.load_state(first, "prior")
    errors = independent_errors(net.prior_network(), load(config.data).take(prior[held]), 100_000, seed=5)
    assert float(first["catoni"]) == pytest.approx(catoni_parameter(errors / 100_000, 0.0, 30, 0.025), rel=0.05)
    certify_run(run, draws=300, test_draws=5, seed=1, bound="catoni")
    assert run.certificate().catoni == first["catoni"].tolist()


def test_resuming_a_finished_run_changes_nothing(config, tmp_path):
    run = train_run(config, tmp_path / "run")
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in run.path.iterdir()}
    train_run(None, tmp_path / "run", resume=True)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in run.path.iterdir()} == before


def test_resuming_a_run_whose_data_have_changed_is_refused(config, data_file, tmp_path):
    """The prior would have seen other examples than those it is said to have seen."""

    def watch(stage, total, epoch):
        if stage == "posterior":
            raise Stop

    with pytest.raises(Stop):
        train_run(config, tmp_path / "run", checkpoint_seconds=0, watch=watch)
    data_file(tmp_path / "data.npz", seed=5)
    with pytest.raises((RunError, DataError, InvalidInput), match="data"):
        train_run(None, tmp_path / "run", resume=True)


@pytest.mark.parametrize("stage", ["pretraining", "prior", "posterior"])
def test_a_spoilt_checkpoint_is_refused(stage, config, tmp_path):
    def watch(name, total, epoch):
        if name == stage:
            raise Stop

    with pytest.raises(Stop):
        train_run(config, tmp_path / "run", checkpoint_seconds=0, watch=watch)
    file = tmp_path / "run" / f"checkpoint-{stage}.safetensors"
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(RunError, match="not a checkpoint"):
        train_run(None, tmp_path / "run", resume=True)


@pytest.mark.skipif(sys.platform != "linux", reason="a file's name may be any bytes")
def test_a_name_that_no_file_can_hold_is_refused_before_there_is_a_folder(config, tmp_path):
    data = Path(config.data).rename(tmp_path / os.fsdecode(b"\xff.npz"))
    with pytest.raises(InvalidInput, match="no text in UTF-8: rename it"):
        train_run(config.with_options({"data": str(data)}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_existing_run_is_kept_unless_it_may_be_replaced(config, tmp_path):
    run = train_run(config, tmp_path / "run")
    (run.path / "certificate.json").write_text("{}")
    (run.path / "notes.txt").write_text("mine")
    before = contents(run)
    with pytest.raises(RunError, match="holds a run already"):
        train_run(config, run.path)
    assert contents(run) == before
    train_run(config.with_options({"seed": 3}), run.path, overwrite=True)
    assert set(contents(run)) == KEPT | {"notes.txt"}
    assert run.config().seed == 3


def test_what_is_no_run_folder_is_left_alone(config, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "folder", tmp_path / "file"):
        for overwrite in (False, True):
            with pytest.raises(RunError, match="not a run folder"):
                train_run(config, path, overwrite=overwrite)
        with pytest.raises(RunError, match="not a run folder"):
            train_run(None, path, resume=True)
    assert (tmp_path / "folder" / "thesis.tex").read_text() == "years of work"
    with pytest.raises(RunError, match="not a run folder"):
        train_run(None, tmp_path / "nowhere", resume=True)
    assert not (tmp_path / "nowhere").exists()


def test_files_that_only_bear_the_names_of_a_runs_are_left_alone(config, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "certificate.json").write_text("mine")
    with pytest.raises(RunError, match="not a run folder"):
        train_run(config, tmp_path / "mine")
    assert (tmp_path / "mine" / "certificate.json").read_text() == "mine"
    # By no command: the demonstration always replaces its run.
    (tmp_path / "page").mkdir()
    for name in ("report.html", "data.json"):
        (tmp_path / "page" / name).write_text('{"mine": 1}')
        for overwrite in (False, True):
            with pytest.raises(RunError, match="not a run folder"):
                train_run(config, tmp_path / "page", overwrite=overwrite)
            assert (tmp_path / "page" / name).read_text() == '{"mine": 1}'
        (tmp_path / "page" / name).unlink()
    # Nor is a configuration of something else replaced.
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "config.toml").write_text('baseURL = "https://example.org"')
    (tmp_path / "site" / "data.json").write_text("mine")
    with pytest.raises(RunError, match="not that of a run"):
        train_run(config, tmp_path / "site", overwrite=True)
    assert (tmp_path / "site" / "data.json").read_text() == "mine"
    # What a run leaves that was killed while its folder was made is none of that.
    whole = train_run(config, tmp_path / "whole")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "data.json").write_bytes(whole.data_file.read_bytes())
    (tmp_path / "begun" / ".config.toml.partial").write_text("")
    assert set(contents(train_run(config, tmp_path / "begun"))) == KEPT


@pytest.mark.parametrize(
    "options",
    [
        {"data": "no-such-data"}, {"data": "none.npz"}, {"model": "resnet"}, {"model": "cnn-small"}, {"init": "zero"},
        {"distribution": "cauchy"}, {"device": "abacus"}, {"device": "cuda:99"}, {"prior_fraction": 0.99},
        {"seed": 2**64}, {"held_back": 0.05}, {"held_back": 0.3, "expected_risk": 0.1}, {"held_back": 1.0},
        {"held_back": 0.3, "prior": "data-free"},
    ],
)  # fmt: skip
def test_nothing_is_written_for_a_configuration_that_cannot_run(options, config, tmp_path):
    with pytest.raises((InvalidInput, DataError)):
        train_run(config.with_options(options), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_network_larger_than_a_run_folder_is_refused_before_it_is_trained(config, tmp_path, monkeypatch):
    monkeypatch.setitem(FILES, "prior.safetensors", 200)
    with pytest.raises(InvalidInput, match=r"weights, more than a run folder holds"):
        train_run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_two_processes_do_not_train_in_one_folder(config, tmp_path):
    run = train_run(config, tmp_path / "run")
    run.weights_file("posterior").unlink()
    with run.alone(), pytest.raises(RunError, match="another process is at work"):
        train_run(config, run.path, resume=True)
    before = contents(run)
    with run.alone(), pytest.raises(RunError, match="another process is at work"):
        train_run(config, run.path, overwrite=True)
    assert contents(run) == before


@pytest.mark.parametrize("there", [False, True])
def test_no_other_configuration_comes_between_a_new_folder_and_its_training(there, config, tmp_path):
    if there:
        train_run(config, tmp_path / "run")
    other = config.with_options({"seed": 7})

    def begun(_):
        with pytest.raises(RunError, match="another process is at work"):
            train_run(other, tmp_path / "run", overwrite=True)

    run = train_run(config, tmp_path / "run", overwrite=there, begun=begun)
    assert run.config() == config


def test_a_name_that_no_file_can_hold_costs_no_run(config, tmp_path):
    run = train_run(config, tmp_path / "run")
    before = contents(run)
    with pytest.raises(InvalidInput, match="rename it"):
        train_run(config.with_options({"data_folder": "\udcff"}), run.path, overwrite=True)
    assert contents(run) == before


def test_the_data_are_read_once(config, tmp_path, monkeypatch):
    reads = []
    monkeypatch.setattr("pacbayes.runs.train.training_data", lambda c: reads.append(c) or training_data(c))
    monkeypatch.setattr(RunFolder, "data", lambda *args: pytest.fail("read again"))
    train_run(config, tmp_path / "run")
    assert len(reads) == 1


@pytest.mark.parametrize("prior", ["data-free", "learnt"])
def test_nothing_is_written_for_too_few_examples(prior, tiny, data_file, tmp_path):
    config = tiny(data_file(tmp_path / "data.npz", m=7), prior=prior)
    with pytest.raises(InvalidInput):
        train_run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_few_prior_examples_are_refused_before_anything_is_written(tiny, data_file, tmp_path):
    """30 examples, a tenth for the prior: the prior's own training has too few for its penalty."""
    config = tiny(data_file(tmp_path / "data.npz", m=30), prior_fraction=0.1)
    with pytest.raises(InvalidInput):
        train_run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_weights_of_another_network_are_refused(config, tmp_path):
    run = train_run(config, tmp_path / "run")
    tensors = safetensors.torch.load_file(run.weights_file("posterior"))
    name = next(iter(tensors))
    for spoilt in (
        {k: v for k, v in tensors.items() if k != name},
        {**tensors, name: tensors[name][:1].clone()},
        {**tensors, name: tensors[name].double()},
        {**tensors, name: tensors[name] * float("nan")},
    ):
        safetensors.torch.save_file(spoilt, run.weights_file("posterior"))
        with pytest.raises(RunError, match="run"):
            trained_network(run)


def test_a_run_can_be_moved(certified, tmp_path):
    shutil.move(certified.path, tmp_path / "elsewhere")
    assert len(trained_network(RunFolder.open(tmp_path / "elsewhere"))[1]) == 30


def test_an_unfinished_run_is_not_opened_as_a_finished_one(config, tmp_path):
    def watch(*_):
        raise Stop

    with pytest.raises(Stop):
        train_run(config, tmp_path / "run", watch=watch)
    with pytest.raises(RunError, match="--resume"):
        RunFolder.open(tmp_path / "run")
    assert RunFolder.open(tmp_path / "run", finished=False).config() == config


def test_a_prior_exchanged_after_training_is_found(config, tmp_path):
    run = train_run(config, tmp_path / "run")
    certify_run(run, draws=50, test_draws=2)
    assert {check.status for check in verify_run(run, recompute=True)} == {"passed"}
    run.weights_file("prior").write_bytes(run.weights_file("posterior").read_bytes())
    with pytest.raises(RunError, match=r"prior\.safetensors is not the file that this run wrote"):
        certify_run(RunFolder.open(run.path), draws=50, test_draws=2)
    with pytest.raises(RunError, match="not the prior that the posterior was trained from"):
        run.network()


def test_a_folder_that_a_killed_run_left_half_made_can_be_used(config, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "data.json").write_text('{"shape": [4], "classes": 2, "bound": {}}')
    (tmp_path / "run" / ".config.toml.partial").write_text("da")
    run = train_run(config, tmp_path / "run")
    (run.path / "checkpoint-posterior.safetensors").write_bytes(b"left by a kill")
    train_run(None, run.path, resume=True)
    assert not run.checkpoint_file("posterior").exists()
