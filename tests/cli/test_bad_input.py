"""Bad input: one line that says what to put right, a status other than 0, no traceback, nothing half-written."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest


def assert_one_error_line(result, *words: str) -> None:
    assert result.status == 1, (result.out, result.err)
    lines = result.err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: "), result.err
    assert result.out == "" and "Traceback" not in result.err
    for word in words:
        assert word in result.err


def contents(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_error_is_one_line_and_nothing_else(pacbayes_main, tmp_path):
    """No empty line either, from a bar that was never shown."""
    result = pacbayes_main("train", "--data", "none.npz", "--out", tmp_path / "run")
    assert result.err == "error: none.npz: no such file\n"


X, Y = np.random.default_rng(1).normal(size=(60, 4)), np.arange(60) % 3

BAD_DATA = {
    "a negative label": ({"y": np.where(np.arange(60) == 7, -1, Y)}, ["y[7]", "-1"]),
    "a label with a fraction": ({"y": Y + 0.5}, ["y[0]", "0.5"]),
    "a label that is NaN": ({"y": np.where(np.arange(60) == 2, np.nan, Y)}, ["y[2]", "nan"]),
    "a label beyond all limits": ({"y": Y + 2**40}, ["y[0]"]),
    "NaN in x": ({"x": np.where(np.arange(240).reshape(60, 4) == 9, np.nan, X)}, ["x[2]", "nan"]),
    "infinity in x": ({"x": np.where(np.arange(240).reshape(60, 4) == 9, np.inf, X)}, ["x[2]", "inf"]),
    "words for x": ({"x": X.astype(str)}, ["x"]),
    "fewer labels than examples": ({"y": Y[:-1]}, ["60", "59"]),
    "labels in a table": ({"y": Y[:, None]}, ["y"]),
    "one class": ({"y": Y * 0, "y_test": np.zeros(30)}, ["classes"]),
    "no features": ({"x": X[:, 0]}, ["x"]),
}


@pytest.mark.parametrize("case", BAD_DATA)
@pytest.mark.parametrize("prior", ["learnt", "data-free"])
def test_bad_data(case, prior, pacbayes_main, data_file, tmp_path, tiny_with):
    arrays, words = BAD_DATA[case]
    data = data_file(tmp_path / "data.npz", **arrays)
    result = pacbayes_main("train", "--data", data, "--out", tmp_path / "run", *tiny_with(prior))
    assert_one_error_line(result, "data.npz", *words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("prior", ["learnt", "data-free"])
def test_fewer_than_eight_examples(prior, pacbayes_main, data_file, tmp_path, tiny_with):
    data = data_file(tmp_path / "data.npz", m=7)
    result = pacbayes_main("train", "--data", data, "--out", tmp_path / "run", *tiny_with(prior))
    assert_one_error_line(result, "8")
    assert not (tmp_path / "run").exists()


IGNORED = {
    ("--prior", "data-free", "--prior-fraction", 0.5): "--prior-fraction",
    ("--prior", "data-free", "--prior-rate", 0.1, "--prior-kappa", 0.2): "--prior-kappa, --prior-rate",
    ("--pretraining-epochs", 0, "--pretraining-rate", 0.1): "--pretraining-rate",
    ("--schedule", "1@0.1", "--kappa", 0.5, "--rate", 0.3, "--epochs", 3): "--epochs, --rate",
    ("--prior-data", "digits", "--prior-fraction", 0.3): "--prior-fraction",
    ("--schedule", "1@0.1", "--rate", 0.3): "--rate",
    ("--schedule", "1@0.1", "--epochs", 3): "--epochs",
    ("--prior-schedule", "1@0.1", "--prior-rate", 0.3): "--prior-rate",
}


@pytest.mark.parametrize("flags", IGNORED)
def test_flags_that_would_be_ignored(flags, pacbayes_main, tmp_path):
    result = pacbayes_main("train", "--out", tmp_path / "run", *flags)
    assert_one_error_line(result, f"error: {IGNORED[flags]} would be ignored")
    assert not (tmp_path / "run").exists()


IGNORED_IN_A_FILE = {
    '[posterior]\nschedule = "1@0.1"\nepochs = 3': "posterior.epochs",
    'prior = "data-free"\nprior_fraction = 0.3': "prior_fraction",
    'prior = "data-free"\n[prior_training]\nepochs = 3\nrate = 0.1': "prior_training.epochs, prior_training.rate",
}


@pytest.mark.parametrize("text", IGNORED_IN_A_FILE)
def test_settings_of_a_file_that_would_be_ignored(text, pacbayes_main, tmp_path):
    (tmp_path / "c.toml").write_text(text)
    result = pacbayes_main("train", "--config", tmp_path / "c.toml", "--out", tmp_path / "run")
    assert_one_error_line(result, f"c.toml: {IGNORED_IN_A_FILE[text]} would be ignored")
    assert not (tmp_path / "run").exists()


def test_what_a_flag_takes_back_may_stay_in_the_file(pacbayes_main, tmp_path):
    (tmp_path / "c.toml").write_text(
        'prior = "data-free"\nprior_fraction = 0.3\nmodel = "mlp"\n[posterior]\nepochs = 1'
    )
    result = pacbayes_main("train", "--config", tmp_path / "c.toml", "--out", tmp_path / "a", "--prior", "learnt",
                           "--pretraining-epochs", 1, "--prior-epochs", 0)  # fmt: skip
    assert result.status == 0, result.err
    (tmp_path / "c.toml").write_text('prior_fraction = 0.3\nmodel = "mlp"\n[posterior]\nepochs = 1')
    result = pacbayes_main("train", "--config", tmp_path / "c.toml", "--out", tmp_path / "b", "--prior", "data-free")
    assert result.status == 0, result.err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_configuration_is_read_once(pacbayes_main, tmp_path):
    """It may come through a pipe."""
    os.mkfifo(tmp_path / "pipe")
    text = 'prior = "data-free"\nprior_fraction = 0.3'
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_text(text))
    writer.start()
    result = pacbayes_main("train", "--config", tmp_path / "pipe", "--out", tmp_path / "run")
    writer.join()
    assert_one_error_line(result, "pipe: prior_fraction would be ignored")


def test_the_configuration_of_a_run_may_list_what_it_does_not_use(pacbayes_main, tmp_path, tiny_with):
    first = tmp_path / "first"
    flags = ("--data", "digits", "--schedule", "1@0.01", "--prior", "data-free", "--model", "mlp")
    assert pacbayes_main("train", *flags, "--out", first).status == 0
    assert pacbayes_main("train", "--config", first / "config.toml", "--out", tmp_path / "again").status == 0


BAD_FLAGS = {
    "unknown objective": (("--objective", "kl"), ["'kl'", "invKL, McAll, quad, lbd"]),
    "unknown prior objective": (("--prior-objective", "kl"), ["'kl'"]),
    "unknown model": (("--model", "resnet"), ["'resnet'", "mlp"]),
    "unknown data": (("--data", "mnits"), ["'mnits'", "mnist"]),
    "no file": (("--data", "none.npz"), ["none.npz"]),
    "unknown scaling": (("--scaling", "min-max"), ["'min-max'", "prior-data"]),
    "nothing to scale by": (("--scaling", "prior-data", "--prior", "data-free"), ["no prior data to scale by"]),
    "unknown prior": (("--prior", "flat"), ["'flat'", "learnt"]),
    "unknown method": (("--method", "H"), ["'H'"]),
    "pre-training as the method": (("--method", "CE"), ["CE"]),
    "unknown distribution": (("--distribution", "cauchy"), ["'cauchy'"]),
    "unknown initialisation": (("--init", "zero"), ["'zero'"]),
    "unknown sampling": (("--sampling", "some"), ["'some'"]),
    "unknown device": (("--device", "abacus"), ["'abacus'"]),
    "a device that computes nothing": (("--device", "meta"), ["'meta'"]),
    "no such GPU": (("--device", "cuda:99"), ["cuda:99"]),
    "schedule": (("--schedule", "often"), ["'often'"]),
    "epochs": (("--epochs", "0"), ["epochs", "0"]),
    "negative epochs": (("--pretraining-epochs", "-3"), ["epochs", "-3"]),
    "rate": (("--rate", "nan"), ["rate", "nan"]),
    "kappa": (("--kappa", "-1"), ["kappa", "-1"]),
    "momentum": (("--momentum", "1"), ["momentum"]),
    "batch size": (("--batch-size", "0"), ["batch_size"]),
    "prior fraction": (("--prior-fraction", "1"), ["fraction"]),
    "a fraction that leaves nothing": (("--prior-fraction", "0.999"), ["fraction"]),
    "prior variance": (("--prior-variance", "0"), ["variance"]),
    "an endless prior variance": (("--prior-variance", "1e300"), ["variance", "1e+12"]),
    "images for a table": (("--model", "cnn-small"), ["cnn-small", "[4]"]),
    "a seed of 70 bits": (("--seed", str(2**70)), ["seed"]),
    "no configuration": (("--config", "none.toml"), ["none.toml"]),
}


@pytest.mark.parametrize("case", BAD_FLAGS)
def test_bad_values_for_train(case, pacbayes_main, data_file, tmp_path, tiny):
    flags, words = BAD_FLAGS[case]
    data = data_file(tmp_path / "data.npz")
    result = pacbayes_main("train", "--data", data, "--out", tmp_path / "run", *tiny, *flags)
    assert_one_error_line(result, *words)
    assert not (tmp_path / "run").exists()


def test_images_too_small_for_the_model(pacbayes_main, tmp_path, tiny):
    result = pacbayes_main("train", "--data", "digits", "--out", tmp_path / "run", *tiny, "--model", "cifar10-15")
    assert_one_error_line(result, "cifar10-15")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "text",
    [
        "colour = 1", "[posterior]\ncolour = 1", "[posterior]\nepochs = 1.5", "posterior = 1", "[data]\nx = 1",
        "seed = -1", "seed = {}", "a = [",
    ],
)  # fmt: skip
def test_bad_configuration_files(text, pacbayes_main, tmp_path):
    (tmp_path / "c.toml").write_text(text)
    result = pacbayes_main("train", "--config", tmp_path / "c.toml", "--out", tmp_path / "run", "--prior", "data-free")
    assert_one_error_line(result)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("train",), ("train", "--out", "run", "--colour", "red"), ("train", "--out", "run", "--epochs", "many"),
        ("train", "--out", "run", "--seed", "-1"), ("train", "--out", "run", "extra"), ("bake",), ("certify",),
        ("certify", "run", "--draws", "x"),
        ("certify", "run", "--draws", "0"), ("certify", "run", "--test-draws", "0"), ("certify", "run", "--seed", "-1"),
        ("verify",), ("verify", "run", "--fast"), ("predict", "run"),
    ],
)  # fmt: skip
def test_flags_that_are_none_get_the_usage(arguments, pacbayes_main, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = pacbayes_main(*arguments)
    assert result.status == 2 and "Usage:" in result.err and "Traceback" not in result.err
    assert not contents(tmp_path)


BAD_CERTIFY = {
    "delta of 0": (("--delta", "0"), ["delta"]),
    "delta of 1": (("--delta", "1"), ["delta"]),
    "negative delta": (("--delta", "-0.1"), ["delta"]),
    "delta that is NaN": (("--delta", "nan"), ["delta"]),
    "mc_delta": (("--mc-delta", "2"), ["mc_delta", "2"]),
    "both too large": (("--delta", "0.6", "--mc-delta", "0.4"), ["delta + mc_delta"]),
    "limit": (("--limit", "hoeffding"), ["'hoeffding'", "two-sided"]),
    "sampling": (("--sampling", "mixed"), ["'mixed'", "independent"]),
    "the limit of another sampling": (("--sampling", "shared", "--limit", "clopper-pearson"), ["Clopper-Pearson"]),
    "a seed of 70 bits": (("--seed", str(2**70)), ["seed"]),
}


@pytest.mark.parametrize("case", BAD_CERTIFY)
def test_bad_values_for_certify(case, run, pacbayes_main):
    flags, words = BAD_CERTIFY[case]
    before = contents(run)
    assert_one_error_line(pacbayes_main("certify", run, "--draws", 20, *flags), *words)
    assert contents(run) == before


@pytest.mark.parametrize("name", ["certify", "verify", "predict"])
def test_folders_that_are_no_runs(name, pacbayes_main, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    more = ("digits",) if name == "predict" else ()
    for path in (tmp_path / "nowhere", tmp_path / "empty", tmp_path / "file"):
        assert_one_error_line(pacbayes_main(name, path, *more), "not a run folder", str(path))
    assert not contents(tmp_path / "empty") and (tmp_path / "file").read_bytes() == b""
    (tmp_path / "mine.json").write_text("{}")
    assert_one_error_line(pacbayes_main(name, tmp_path / "mine.json", *more), "Certificate.load(FILE).check()")


@pytest.mark.parametrize("name", ["certify", "predict"])
def test_a_run_that_is_not_finished(name, run, pacbayes_main):
    (run / "posterior.safetensors").unlink()
    assert_one_error_line(pacbayes_main(name, run, *(("digits",) if name == "predict" else ())), "--resume")


@pytest.mark.parametrize("spoil", ["prior.safetensors", "posterior.safetensors", "config.toml"])
@pytest.mark.parametrize("name", ["certify", "predict"])
def test_a_run_with_a_spoilt_file(name, spoil, run, finished, pacbayes_main):
    (run / spoil).write_bytes((run / spoil).read_bytes()[:40])
    more = (finished.parent / "data.npz",) if name == "predict" else ()
    assert_one_error_line(pacbayes_main(name, run, *more))


def test_certify_when_the_data_have_moved(pacbayes_main, data_file, tmp_path, tiny):
    data, run, moved = data_file(tmp_path / "data.npz"), tmp_path / "run", tmp_path / "moved.npz"
    assert pacbayes_main("train", "--data", data, "--out", run, *tiny).status == 0
    data.rename(moved)
    before = contents(run)
    assert_one_error_line(pacbayes_main("certify", run, "--draws", 10), "data.npz")
    other = data_file(tmp_path / "other.npz", m=70)
    assert_one_error_line(pacbayes_main("certify", run, "--draws", 10, "--data", other), "the data are not those")
    assert contents(run) == before
    assert pacbayes_main("certify", run, "--draws", 10, "--test-draws", 2, "--data", moved).status == 0
    assert pacbayes_main("verify", run, "--data", moved).status == 0


def test_out_that_exists(run, pacbayes_main, data_file, tmp_path, tiny):
    data = data_file(tmp_path / "data.npz")
    before = contents(run)
    assert_one_error_line(pacbayes_main("train", "--data", data, "--out", run, *tiny), "--overwrite")
    assert contents(run) == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("x")
    for more in ((), ("--overwrite",)):
        result = pacbayes_main("train", "--data", data, "--out", tmp_path / "mine", *tiny, *more)
        assert_one_error_line(result, "not a run folder")
    assert contents(tmp_path / "mine") == {"notes": b"x"}


def test_out_below_a_file(pacbayes_main, data_file, tmp_path, tiny):
    data = data_file(tmp_path / "data.npz")
    (tmp_path / "file").write_text("x")
    assert_one_error_line(pacbayes_main("train", "--data", data, "--out", tmp_path / "file" / "run", *tiny))


@pytest.mark.parametrize("flags", [("--epochs", "3"), ("--data", "digits"), ("--overwrite",)])
def test_resume_takes_no_other_settings(flags, run, pacbayes_main):
    before = contents(run)
    assert_one_error_line(pacbayes_main("train", "--resume", "--out", run, *flags), "--resume")
    assert contents(run) == before


def test_resume_takes_the_same_settings(pacbayes_main, data_file, tmp_path, tiny):
    data, run = data_file(tmp_path / "data.npz"), tmp_path / "run"
    assert pacbayes_main("train", "--data", data, "--out", run, *tiny).status == 0
    again = pacbayes_main("train", "--data", data, "--out", run, *tiny, "--resume")
    assert again.status == 0 and "finished already" in again.out
    other = pacbayes_main("train", "--data", data, "--out", run, *tiny, "--resume", "--seed", 5)
    assert_one_error_line(other, "these say otherwise: seed")


def test_resume_of_what_is_no_run(pacbayes_main, tmp_path):
    assert_one_error_line(pacbayes_main("train", "--resume", "--out", tmp_path / "nowhere"), "not a run folder")
    assert not contents(tmp_path)


BAD_INPUTS = {
    "another shape": ({"x": X[:, :3]}, ["[4]", "[3]"]),
    "NaN": ({"x": X * np.nan}, ["x[0]", "nan"]),
    "no x": ({"inputs": X}, ["x"]),
    "no examples": ({"x": X[:0]}, ["no examples"]),
    "words": ({"x": X.astype(str)}, ["x"]),
}


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_inputs_for_predict(case, run, pacbayes_main, tmp_path):
    arrays, words = BAD_INPUTS[case]
    np.savez(tmp_path / "new.npz", **arrays)
    result = pacbayes_main("predict", run, tmp_path / "new.npz", "--out", tmp_path / "labels.csv")
    assert_one_error_line(result, *words)
    assert not (tmp_path / "labels.csv").exists()


def test_predict_from_nowhere_or_to_nowhere(run, finished, pacbayes_main, tmp_path):
    assert_one_error_line(pacbayes_main("predict", run, tmp_path / "none.npz"), "none.npz")
    assert_one_error_line(pacbayes_main("predict", run, "mnits"), "'mnits'")
    (tmp_path / "no.npz").write_text("no archive")
    assert_one_error_line(pacbayes_main("predict", run, tmp_path / "no.npz"), "no.npz")
    data = finished.parent / "data.npz"
    assert_one_error_line(pacbayes_main("predict", run, data, "--out", tmp_path / "none" / "labels.csv"))
    assert_one_error_line(pacbayes_main("predict", run, data, "--seed", 2**70), "seed")


def test_predict_with_a_spoilt_certificate(run, finished, pacbayes_main):
    """It must not be shown as a promise."""
    (run / "certificate.json").write_text("{}")
    result = pacbayes_main("predict", run, finished.parent / "data.npz")
    assert result.status == 1 and "error: " in result.err and "With probability" not in result.err


def test_an_error_by_process(process, tmp_path):
    result = process("train", "--data", "none.npz", "--out", tmp_path / "run")
    assert_one_error_line(result, "none.npz")
    assert not contents(tmp_path)
    result = process("train", "--out", tmp_path / "run", "--colour", "red")
    assert result.status == 2 and "--colour" in result.err and "Traceback" not in result.err
    result = process("certify", tmp_path)
    assert_one_error_line(result, "not a run folder")


def test_a_place_for_data_that_come_with_the_package(pacbayes_main, tmp_path, tiny):
    run = tmp_path / "run"
    assert pacbayes_main("train", "--data", "digits", "--out", run, *tiny).status == 0
    assert pacbayes_main("certify", run, "--draws", 10, "--test-draws", 2).status == 0
    for command in ("certify", "verify", "report"):
        refused = pacbayes_main(command, run, "--data", "nope.csv")
        assert refused.status == 1 and "would be ignored: digits comes with" in refused.err, refused.err


def test_a_training_that_failed_cannot_go_on(pacbayes_main, data_file, tmp_path, tiny):
    data, run = data_file(tmp_path / "data.npz"), tmp_path / "run"
    failed = pacbayes_main("train", "--data", data, "--out", run, *tiny, "--rate", "1e9")
    assert failed.status == 1 and "Try a smaller rate" in failed.err and "--overwrite" in failed.err, failed.err
    assert_one_error_line(pacbayes_main("certify", run), "if its training failed, begin anew")
