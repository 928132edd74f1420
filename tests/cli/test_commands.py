"""The commands on good input: what they print, what they write, and their exit status."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil

import numpy as np
import pytest
from typer.main import get_command

import pacbayes as pb
from pacbayes.certificates import Certificate
from pacbayes.cli.app import app
from pacbayes.data import load
from pacbayes.errors import RunError
from pacbayes.runs import Config, RunFolder

COMMANDS = sorted(get_command(app).commands)


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory, process, tiny):
    """A tiny run on digits by real processes, certified."""
    path = tmp_path_factory.mktemp("digits") / "run"
    trained = process("train", "--data", "digits", "--out", path, *tiny)
    assert trained.status == 0, trained.err
    certified = process("certify", path, "--draws", 2000, "--test-draws", 5, "--seed", 3)
    assert certified.status == 0, certified.err
    return path, trained, certified


@pytest.fixture
def run(digits_run, tmp_path):
    """A copy of one's own."""
    return shutil.copytree(digits_run[0], tmp_path / "run")


def test_train_then_certify(digits_run):
    path, trained, certified = digits_run
    assert f"Next: pacbayes certify {path}" in trained.out
    assert "posterior" in trained.err and "bound" in trained.err
    issued = Certificate.load(path / "certificate.json")
    assert issued.check() == [] and issued.m == 719 and issued.draws == 2000 and issued.seed == 3
    assert issued.sentence() in certified.out
    assert "plain hold-out" in certified.out and "test error" in certified.out and str(path) in certified.out
    assert {file.name for file in path.iterdir()} == {
        "config.toml", "data.json", "history.jsonl", "prior.safetensors", "posterior.safetensors", "certificate.json",
        "evaluation.json", "journal.jsonl",
    }  # fmt: skip
    assert [json.loads(line)["stage"] for line in (path / "history.jsonl").read_text().splitlines()] == [
        "pretraining", "pretraining", "prior", "posterior", "posterior",
    ]  # fmt: skip


def test_verify_passes_by_process_and_fails_by_process(digits_run, process, run):
    good = process("verify", digits_run[0])
    assert good.status == 0 and "failed" not in good.out
    assert {"record", "arithmetic", "KL", "m"} <= {line.split()[1] for line in good.out.splitlines()}
    record = json.loads((run / "certificate.json").read_text())
    (run / "certificate.json").write_text(json.dumps(record | {"risk_bound": record["risk_bound"] * 0.9}))
    bad = process("verify", run)
    assert bad.status == 1 and re.search(r"^failed +arithmetic", bad.out, re.M) and "Traceback" not in bad.err


@pytest.mark.parametrize("which", ["prior", "posterior"])
def test_verify_names_the_weights_that_changed(which, run, pacbayes_main):
    file = run / f"{which}.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 16
    file.write_bytes(content)
    result = pacbayes_main("verify", run)
    assert result.status == 1 and re.search(rf"^failed +{which} fingerprint", result.out, re.M)
    file.unlink()
    result = pacbayes_main("verify", run)
    assert result.status == 1 and re.search(rf"^failed +{which} fingerprint", result.out, re.M)


def test_verify_without_a_certificate(run, pacbayes_main):
    (run / "certificate.json").unlink()
    result = pacbayes_main("verify", run)
    assert result.status == 1 and re.search(r"^failed +record", result.out, re.M)


def labels_of(text: str) -> list[int]:
    rows = list(csv.reader(io.StringIO(text)))
    assert rows[0] == ["index", "label"]
    assert [int(index) for index, _ in rows[1:]] == list(range(len(rows) - 1))
    return [int(label) for _, label in rows[1:]]


def test_predict_by_the_name_of_the_data(digits_run, process):
    result = process("predict", digits_run[0], "digits", "--seed", 1)
    assert result.status == 0
    labels = labels_of(result.out)
    assert len(labels) == 360 and set(labels) <= set(range(10))
    assert Certificate.load(digits_run[0] / "certificate.json").sentence() in " ".join(result.err.split())
    test = load("digits", "test")
    assert np.mean(np.array(labels) != test.y.numpy()) < 0.5, "better than chance, 0.9"


def test_predict_a_file_with_or_without_labels(run, pacbayes_main, tmp_path):
    test = load("digits", "test")
    np.savez(tmp_path / "bare.npz", x=test.x[:50].numpy())
    np.savez(tmp_path / "labelled.npz", x=test.x[:50].numpy(), y=test.y[:50].numpy())
    results = [pacbayes_main("predict", run, tmp_path / name, "--seed", 4) for name in ("bare.npz", "labelled.npz")]
    assert results[0].out == results[1].out and results[0].status == 0
    assert len(labels_of(results[0].out)) == 50
    for taken in (tmp_path / "bare.npz", run / "certificate.json", run / "labels.csv"):
        before = taken.read_bytes() if taken.exists() else None
        refused = pacbayes_main("predict", run, tmp_path / "bare.npz", "--out", taken)
        assert refused.status == 1 and "name another" in refused.err
        assert (taken.read_bytes() if taken.exists() else None) == before
    written = pacbayes_main("predict", run, tmp_path / "bare.npz", "--seed", 4, "--out", tmp_path / "labels.csv")
    assert written.status == 0 and written.out == ""
    assert (tmp_path / "labels.csv").read_text() == results[0].out
    other = pacbayes_main("predict", run, tmp_path / "bare.npz", "--seed", 5)
    assert labels_of(other.out) != labels_of(results[0].out)


def test_predict_says_that_there_is_no_certificate(run, pacbayes_main):
    (run / "certificate.json").unlink()
    result = pacbayes_main("predict", run, "digits")
    assert result.status == 0 and "No certificate yet" in result.err


def test_certify_options_reach_the_certificate(run, pacbayes_main):
    result = pacbayes_main(
        "certify",
        run,
        "--draws",
        300,
        "--delta",
        0.1,
        "--mc-delta",
        0.05,
        "--limit",
        "clopper-pearson",
        "--test-draws",
        2,
    )
    issued = Certificate.load(run / "certificate.json")
    assert result.status == 0 and issued.check() == []
    assert (issued.draws, issued.delta, issued.mc_delta, issued.limit) == (300, 0.1, 0.05, "clopper-pearson")
    assert "85 %" in result.out
    shared = pacbayes_main("certify", run, "--draws", 3, "--sampling", "shared", "--test-draws", 2)
    issued = Certificate.load(run / "certificate.json")
    assert shared.status == 0 and (issued.sampling, issued.visits) == ("shared", 3 * 719)
    assert pacbayes_main("verify", run).status == 0


def test_flags_override_the_file_and_the_effective_configuration_is_saved(pacbayes_main, data_file, tmp_path):
    data = data_file(tmp_path / "data.npz")
    (tmp_path / "c.toml").write_text(
        f'data = "{data}"\nmodel = "mlp"\nseed = 4\nprior_variance = 0.01\n'
        "[pretraining]\nepochs = 0\n[prior_training]\nepochs = 1\nrate = 0.004\n"
        '[posterior]\nepochs = 9\nobjective = "quad"\nestimator = "L2"\n'
    )
    result = pacbayes_main(
        "train", "--config", tmp_path / "c.toml", "--out", tmp_path / "run", "--epochs", 2, "--seed", 5, "--kappa", 0.5,
        "--prior-kappa", 0.25, "--prior-objective", "ERM",
    )  # fmt: skip
    assert result.status == 0
    saved = Config.read(tmp_path / "run" / "config.toml")
    assert saved == Config().with_options(
        {
            "data": str(data), "model": "mlp", "seed": 5, "prior_variance": 0.01, "pretraining": {"epochs": 0},
            "prior_training": {"epochs": 1, "rate": 0.004, "kappa": 0.25, "objective": "ERM"},
            "posterior": {"epochs": 2, "objective": "quad", "estimator": "L2", "kappa": 0.5},
        }
    )  # fmt: skip
    again = pacbayes_main("train", "--config", tmp_path / "run" / "config.toml", "--out", tmp_path / "again")
    assert again.status == 0
    for name in ("config.toml", "prior.safetensors", "posterior.safetensors", "history.jsonl"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


FLAGS = {
    "--init": ("orthogonal", "init"), "--distribution": ("laplace", "distribution"), "--prior": ("data-free", "prior"),
    "--prior-fraction": (0.3, "prior_fraction"), "--prior-variance": (0.02, "prior_variance"),
    "--pretraining-rate": (0.03, "pretraining.rate"), "--prior-rate": (0.003, "prior_training.rate"),
    "--prior-schedule": ("1@0.003", "prior_training.schedule"), "--prior-dropout": (0.2, "prior_training.dropout"),
    "--objective": ("McAll", "posterior.objective"), "--method": ("S", "posterior.method"),
    "--rate": (0.001, "posterior.rate"), "--schedule": ("constant", "posterior.schedule"),
    "--momentum": (0.5, "posterior.momentum"), "--sampling": ("shared", "posterior.sampling"), "--seed": (8, "seed"),
    "--device": ("cpu", "device"), "--data-folder": ("here", "data_folder"),
    "--batch-size": (9, "posterior.batch_size"),
    "--model": ("mlp-2", "model"), "--drawn": ("last", "drawn"), "--scaling": ("prior-data", "scaling"),
    "--pretraining-epochs": (3, "pretraining.epochs"), "--prior-epochs": (3, "prior_training.epochs"),
    "--prior-objective": ("ERM", "prior_training.objective"), "--prior-kappa": (0.3, "prior_training.kappa"),
    "--epochs": (3, "posterior.epochs"), "--kappa": (0.4, "posterior.kappa"),
    "--divergence": ("profile", "posterior.divergence"), "--optimiser": ("adam", "posterior.optimiser"),
    "--expected-risk": (0.1, "expected_risk"), "--held-back": (0.25, "held_back"),
}  # fmt: skip
# Each of these has a test of its own.
OTHER_FLAGS = {
    "--out", "--config", "--data", "--prior-data", "--expected-kl", "--resume", "--overwrite", "--checkpoint-seconds",
    "--tensorboard",
}  # fmt: skip


def test_no_flag_of_train_is_forgotten():
    options = {flag for option in get_command(app).commands["train"].params for flag in option.opts}
    assert options == set(FLAGS) | OTHER_FLAGS and not set(FLAGS) & OTHER_FLAGS


@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_of_train_goes_where_it_belongs(flag, pacbayes_main, data_file, tmp_path, tiny, tiny_with):
    value, place = FLAGS[flag]
    data = data_file(tmp_path / "data.npz")
    if flag == "--prior":
        tiny = tiny_with("data-free")
    if flag == "--prior-schedule":
        tiny = [each for each, before in zip(tiny, ("", *tiny), strict=False) if "--prior-epochs" not in (each, before)]
    result = pacbayes_main("train", "--data", data, "--out", tmp_path / "run", *tiny, flag, value)
    assert result.status == 0, result.err
    found = Config.read(tmp_path / "run" / "config.toml")
    for name in place.split("."):
        found = getattr(found, name)
    assert found == value


def test_a_prior_of_other_data(pacbayes_main, data_file, tmp_path, tiny):
    data, other = data_file(tmp_path / "data.npz"), data_file(tmp_path / "other.npz", x=np.eye(4)[np.arange(60) % 3])
    assert pacbayes_main("train", "--data", data, "--prior-data", other, "--out", tmp_path / "run", *tiny).status == 0
    assert RunFolder.open(tmp_path / "run").data().bound.fingerprint() == load(str(data)).fingerprint()


@pytest.mark.parametrize("arguments", [(), *((name,) for name in COMMANDS)])
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help(arguments, flag, pacbayes_main):
    result = pacbayes_main(*arguments, flag)
    assert result.status == 0 and "Usage:" in result.out and result.err == ""


def test_help_by_process_needs_no_terminal(process):
    result = process("--help")
    assert result.status == 0 and all(name in result.out for name in COMMANDS)


def test_the_best_bound_and_the_table(run, pacbayes_main):
    done = pacbayes_main("certify", run, "--bound", "best", "--table", "--budget", "0.5s", "--test-draws", 2)
    assert done.status == 0, done.err
    issued = Certificate.load(run / "certificate.json")
    assert issued.bound == "best" and issued.limit == "clopper-pearson" and issued.check() == []
    assert "the paper's" in done.out and "Catoni" in done.out and "only the certificate is a promise" in done.out
    assert pacbayes_main("verify", run).status == 0
    assert pacbayes_main("report", run).status == 0


def test_a_single_network_and_its_predictions(run, pacbayes_main, tmp_path):
    certify = ("certify", run, "--predictor", "single", "--bound", "best")
    assert pacbayes_main(*certify, "--seed", 3).status == 0
    first = Certificate.load(run / "certificate.json")
    labels = {pacbayes_main("predict", run, "digits", "--seed", seed).out for seed in (0, 1)}
    assert len(labels) == 1, "one network gives one answer, whatever the seed"
    # Other certificates in between do not make the run forget the draw.
    assert pacbayes_main("certify", run, "--draws", 50, "--test-draws", 2).status == 0
    done = pacbayes_main(*certify, "--seed", 4)
    second = Certificate.load(run / "certificate.json")
    assert (first.draw, second.draw) == (1, 2) and done.status == 0
    assert pacbayes_main("report", run).status == 0
    (run / "single.safetensors").write_bytes(b"no")
    done = pacbayes_main("predict", run, "digits")
    assert done.status != 0 and "single.safetensors" in done.err and "Traceback" not in done.err
    # The journal remembers the draws, whatever becomes of their files.
    (run / "single.safetensors").unlink()
    assert pacbayes_main(*certify, "--seed", 5).status == 0
    assert Certificate.load(run / "certificate.json").draw == 3
    assert pacbayes_main("verify", run).status == 0


def test_a_majority_vote_and_its_predictions(run, pacbayes_main):
    done = pacbayes_main("certify", run, "--predictor", "majority", "--voters", 3, "--draws", 800)
    assert done.status == 0 and "majority vote of 3 networks" in done.out
    done = pacbayes_main("predict", run, "digits")
    assert done.status == 0 and "majority vote" in done.err and len(done.out.splitlines()) == 361
    assert pacbayes_main("report", run).status == 0


@pytest.mark.parametrize("flags", [("card",), ("report",), ("compare",), ("predict", "digits")])
def test_no_page_takes_the_place_of_a_folder_or_of_another_runs_file(flags, run, tmp_path, pacbayes_main):
    (tmp_path / "config.toml").write_text("")
    for out, words in (
        (".", "is a folder"),
        ("/", "is a folder"),
        (tmp_path / "config.toml", "the folder of a run"),
    ):
        refused = pacbayes_main(flags[0], run, *flags[1:], "--out", out)
        assert refused.status == 1 and words in refused.err
    assert (tmp_path / "config.toml").read_text() == ""


@pytest.mark.parametrize("predictor", ["single", "majority"])
def test_classes_are_promised_for_no_other_predictor(predictor, run, pacbayes_main):
    """They are bounds of the randomised classifier: no page shows them beside another's certificate."""
    draws = ("--draws", 100, "--test-draws", 2)
    of_predictor = draws[:2] if predictor == "majority" else ()
    ignored = pacbayes_main("certify", run, *draws[2:], "--predictor", predictor)
    assert ignored.status == 1 and "--test-draws would be ignored" in ignored.err
    refused = pacbayes_main("certify", run, *of_predictor, "--predictor", predictor, "--classes")
    assert refused.status == 1 and "leave out --predictor" in refused.err
    shown = pacbayes_main("certify", run, *draws, "--classes")
    assert shown.status == 0 and "for the randomised classifier" in shown.out
    assert "Certified risk of each class" in written_report(run, pacbayes_main)
    assert pacbayes_main("certify", run, *of_predictor, "--predictor", predictor).status == 0
    assert "Certified risk of each class" not in written_report(run, pacbayes_main)
    card = pacbayes_main("card", run).out
    assert "each class" not in card
    # And none of several certificates is shown without a word about the others.
    assert (
        "the last of 3 certificates for this run" in card
        and "the last of 3 certificates" in (run / "report.html").read_text()
    )
    assert "for the randomised classifier" in pacbayes_main("verify", run).out


def written_report(run, pacbayes_main):
    assert pacbayes_main("report", run).status == 0
    return (run / "report.html").read_text("utf-8")


def test_a_count_that_was_not_repeated_is_no_success(data_file, pacbayes_main, tmp_path, tiny):
    run = tmp_path / "run"
    assert pacbayes_main("train", "--data", data_file(tmp_path / "data.npz"), "--out", run, *tiny).status == 0
    assert pacbayes_main("certify", run, "--draws", 100, "--test-draws", 2).status == 0
    assert pacbayes_main("verify", run, "--recompute").status == 0
    gone = pacbayes_main("verify", run, "--data", tmp_path / "typo.npz")
    assert gone.status == 1 and "1 failed" in gone.out
    assert any(line.startswith("failed") and "typo.npz: no such file" in line for line in gone.out.splitlines())
    (tmp_path / "data.npz").rename(tmp_path / "elsewhere.npz")
    assert pacbayes_main("verify", run).status == 0
    missing = pacbayes_main("verify", run, "--recompute")
    assert missing.status == 1 and "the count was not repeated" in missing.err
    assert pacbayes_main("verify", run, "--recompute", "--data", tmp_path / "elsewhere.npz").status == 0


def test_the_single_network_as_a_module(run, pacbayes_main, tmp_path):
    with pytest.raises(RunError, match="no certificate of a single network"):
        pb.load_single(run)
    assert pacbayes_main("certify", run, "--predictor", "single").status == 0
    x = load("digits").x[:50]
    labels = pb.load_single(run)(x).argmax(1)
    np.savez(tmp_path / "new.npz", x=x.numpy())
    predicted = pacbayes_main("predict", run, tmp_path / "new.npz")
    assert [int(line.split(",")[-1]) for line in predicted.out.splitlines()[1:]] == labels.tolist()
    page = written_report(run, pacbayes_main)
    assert "sha256sum RUN/single.safetensors" in page and "sha256sum RUN/posterior.safetensors" not in page


def test_classes(run, pacbayes_main):
    done = pacbayes_main("certify", run, "--classes", "--bound", "best", "--draws", 800, "--test-draws", 2)
    assert done.status == 0 and "class 9" in done.out
    sizes = json.loads((run / "classes.json").read_text())["m"]
    assert sum(sizes) == 719 and min(sizes) > 50
    # Unless a bound is named, the classes have the least of several, whatever the certificate's.
    assert pacbayes_main("certify", run, "--classes", "--budget", "0.3s", "--test-draws", 2).status == 0
    whole = Certificate.load(run / "certificate.json")
    classes = json.loads((run / "classes.json").read_text())
    assert (whole.bound, classes["bound"]) == ("invKL", "best")
    # As many visits as the certificate has, but each example is visited.
    assert sum(classes["visits"]) <= max(whole.draws, 719) < 2 * sum(classes["visits"])


@pytest.mark.parametrize("budget", ["soon", "-3s", "0s", "1d"])
def test_no_budget(budget, run, pacbayes_main):
    done = pacbayes_main("certify", run, "--budget", budget)
    assert done.status != 0 and "Traceback" not in done.err


def test_an_expected_risk_fixes_c_with_the_prior(tmp_path, pacbayes_main, tiny):
    path = tmp_path / "run"
    done = pacbayes_main("train", "--data", "digits", "--out", path, *tiny, "--expected-risk", 0.05, "--expected-kl", 3)
    assert done.status == 0, done.err
    assert pacbayes_main("certify", path, "--bound", "catoni", "--draws", 500, "--test-draws", 2).status == 0
    issued = Certificate.load(path / "certificate.json")
    assert len(issued.catoni) == 1 and 0.3 < issued.catoni[0] < 0.8
    assert pacbayes_main("verify", path).status == 0


def interrupted(*_, **__):
    raise KeyboardInterrupt


def test_an_interruption_after_the_certificate_says_that_it_counts(run, monkeypatch, pacbayes_main):
    for name, issued in (("certify", False), ("holdout_bound", True)):
        with monkeypatch.context() as patch:
            patch.setattr(f"pacbayes.runs.certify.{name}", interrupted)
            result = pacbayes_main("certify", run, "--draws", 50, "--test-draws", 2)
        assert result.status == 130 and "interrupted" in result.err
        assert ("a certificate was issued, and counts" in result.err) == issued
    assert f"'pacbayes certify {run} --evaluate' measures" in " ".join(result.err.split())
    result = pacbayes_main("certify", run, "--evaluate", "--test-draws", 2)
    assert result.status == 0 and "plain hold-out" in result.out and "test error" in result.out
    result = pacbayes_main("verify", run)
    assert result.status == 0 and "2 certificates" in result.out  # the fixture's, and the one that was interrupted
    assert pacbayes_main("certify", run, "--predictor", "single").status == 0
    result = pacbayes_main("certify", run, "--evaluate", "--test-draws", 2)
    assert result.status == 1 and "--test-draws would be ignored" in result.err
    result = pacbayes_main("certify", run, "--evaluate", "--draws", 50)
    assert result.status != 0 and "--evaluate issues no certificate" in result.err


def test_what_the_charge_for_a_second_single_network_covers(run, pacbayes_main):
    for words in ("Of several, none", "the choice among the 2 single networks drawn for this run, and no other"):
        issued = pacbayes_main("certify", run, "--predictor", "single")
        assert issued.status == 0 and words in issued.out


def test_an_interrupted_verification_shows_what_it_has_checked(run, monkeypatch, pacbayes_main):
    assert pacbayes_main("certify", run, "--draws", 50, "--test-draws", 2).status == 0
    monkeypatch.setattr("pacbayes.runs.verify_data.recount", interrupted)
    result = pacbayes_main("verify", run, "--recompute")
    assert result.status == 130 and result.err.endswith("interrupted\n")
    assert "passed         KL" in result.out and "Monte Carlo" not in result.out


def test_a_run_that_is_not_finished_says_how_to_go_on(monkeypatch, pacbayes_main, data_file, tmp_path, tiny):
    data, path = data_file(tmp_path / "data.npz"), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("pacbayes.runs.train.start_journal", interrupted)
        assert pacbayes_main("train", "--data", data, "--out", path, *tiny).status == 130
    result = pacbayes_main("verify", path)
    assert result.status == 1 and result.out.splitlines()[1:] == ["1 failed"]
    assert f"not finished. It goes on with pacbayes train --resume --out {path}" in result.out
    assert pacbayes_main("train", "--resume", "--out", path).status == 0
    # Nobody can vouch for a finished run whose journal is gone, and training has nothing left to do.
    (path / "journal.jsonl").unlink()
    result = pacbayes_main("certify", path)
    assert result.status == 1 and "cannot be made again" in result.err and "--resume" not in result.err


@pytest.mark.parametrize(("rate", "words"), [(0.002, "epoch"), (1e-30, "The posterior is the prior")])
def test_the_weights_that_are_kept_are_named(rate, words, pacbayes_main, data_file, tmp_path, tiny):
    data = data_file(tmp_path / "data.npz")
    trained = pacbayes_main("train", "--data", data, "--out", tmp_path / "run", *tiny, "--rate", rate)
    assert trained.status == 0 and words in trained.out, trained.out
    again = pacbayes_main("train", "--out", tmp_path / "run", "--resume")
    assert again.status == 0 and words in again.out


def test_the_defaults_in_the_help_of_train_are_those_of_the_configuration():
    shown = {}
    for option in get_command(app).commands["train"].params:
        if match := re.search(r"\[default: ([\w.-]+)\]", option.help or ""):
            shown[option.name] = match[1]
    config, expected = Config(), {}
    for name in shown:
        if name in vars(config):
            value = getattr(config, name)
        else:
            stages = {"pretraining_": config.pretraining, "prior_": config.prior_training, "": config.posterior}
            prefix = next(prefix for prefix in stages if name.startswith(prefix))
            value = getattr(stages[prefix], name.removeprefix(prefix))
        expected[name] = f"{value:g}" if isinstance(value, float) else str(value)
    assert shown == expected and len(shown) > 20
