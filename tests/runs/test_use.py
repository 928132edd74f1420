"""Certifying and predicting from a run folder."""

from __future__ import annotations

import json
import math
import shutil
import warnings
from dataclasses import asdict

import numpy as np
import pytest
import torch
from PIL import Image

from pacbayes.bounds import clopper_pearson_upper
from pacbayes.certificates import Certificate, certify, holdout_bound, monte_carlo
from pacbayes.data import image_folders, load, load_inputs, store
from pacbayes.data.catalogue import image_scaling
from pacbayes.data.scaling import IMAGES
from pacbayes.errors import DataError, InvalidInput, RunError
from pacbayes.files import write_atomically, write_json
from pacbayes.networks import memory
from pacbayes.report import write_report
from pacbayes.runs import (
    Config,
    RunFolder,
    certify_run,
    certify_run_classes,
    evaluate_run,
    predict_run,
    train_run,
    trained_network,
    verify_run,
)
from pacbayes.runs.journal import note, read_journal
from pacbayes.runs.predict import _look_at_the_range, inputs_for


def test_the_certificate_is_that_of_the_trained_network(certified):
    issued, evaluation = certify_run(certified, draws=400, test_draws=7, delta=0.05, mc_delta=0.02, seed=4)
    net, bound_data = trained_network(certified)
    direct = certify(net, bound_data, draws=400, delta=0.05, mc_delta=0.02, seed=4)
    assert {k: v for k, v in vars(issued).items() if k != "time"} == {
        k: v for k, v in vars(direct).items() if k != "time"
    }
    assert issued.m == 30 and issued.objective == "invKL"
    assert Certificate.load(certified.certificate_file) == issued
    test = load(certified.config().data, "test")
    assert (evaluation.test_error, evaluation.test_error_sd) == monte_carlo.test_error(net, test, 7, 4)
    assert (evaluation.test_draws, evaluation.test_examples) == (7, 30)
    # At the confidence of the certificate, so that the two can be compared.
    # By the run's own seed: other draws would be another number, to pick from.
    seed = certified.config().seed
    assert evaluation.holdout_bound == holdout_bound(net, bound_data, delta=0.05 + 0.02, seed=seed)
    _, other = certify_run(certified, draws=400, test_draws=7, delta=0.05, mc_delta=0.02, seed=5)
    assert other.holdout_bound == evaluation.holdout_bound
    certify_run(certified, draws=400, test_draws=7, delta=0.05, mc_delta=0.02, seed=4)
    assert json.loads((certified.path / "evaluation.json").read_text()) == vars(evaluation)


def test_two_processes_do_not_certify_one_run_at_a_time(certified, tmp_path):
    with certified.alone(), pytest.raises(RunError, match="another process is at work"):
        certify_run(certified, draws=50)
    certify_run(certified, draws=50, test_draws=2)


def test_a_data_free_prior_has_no_holdout_bound(tiny, data_file, tmp_path):
    config = tiny(data_file(tmp_path / "data.npz"), prior="data-free")
    issued, evaluation = certify_run(train_run(config, tmp_path / "run"), draws=50, test_draws=2)
    assert evaluation.holdout_bound is None
    assert issued.m == 60


def test_without_test_data_there_is_no_test_error(certified):
    file = certified.path.parent / "data.npz"
    arrays = dict(np.load(file))
    np.savez(file, x=arrays["x"], y=arrays["y"])
    _, evaluation = certify_run(certified, draws=50)
    assert evaluation.test_error is None and evaluation.test_draws == 0
    assert 0 < evaluation.holdout_bound <= clopper_pearson_upper(30, 30, 0.035)


def test_test_data_that_cannot_be_used_stop_no_certificate(certified):
    file = certified.path.parent / "data.npz"
    arrays = dict(np.load(file))
    np.savez(file, **{**arrays, "x_test": arrays["x_test"][:, :3]})
    with pytest.warns(UserWarning, match="there is no test error.*shape"):
        _, evaluation = certify_run(certified, draws=50, test_draws=2)
    assert evaluation.test_error is None


def test_a_failed_certification_leaves_the_old_certificate(certified):
    before = certified.certificate_file.read_bytes()
    for options in ({"delta": 2.0}, {"limit": "none"}, {"draws": 0}):
        with pytest.raises(InvalidInput):
            certify_run(certified, **{"draws": 20, **options})
    assert certified.certificate_file.read_bytes() == before


def test_a_certificate_that_cannot_be_written_is_counted_and_nothing_is_lost(certified, monkeypatch):
    before = {path.name: path.read_bytes() for path in certified.path.iterdir()}

    def full(path, content):
        raise OSError("no space left")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space"):
        patch.setattr("pacbayes.runs.certify.write_atomically", full)
        certify_run(certified, draws=50, test_draws=2)
    after = {path.name: path.read_bytes() for path in certified.path.iterdir()}
    assert {name for name in before if before[name] != after.get(name)} == {"journal.jsonl"}
    assert len(read_journal(certified).risk_bounds()) == 2
    certify_run(certified, draws=50, test_draws=2)
    assert not [check for check in verify_run(certified) if check.status == "failed"]


def test_a_certificate_of_classes_that_cannot_be_written_is_counted(certified, monkeypatch):
    def full(path, content):
        raise OSError("no space left")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space"):
        patch.setattr("pacbayes.runs.certify.write_atomically", full)
        certify_run_classes(certified, draws=50)
    assert read_journal(certified).lines[-1].event == "classes certified"
    certify_run_classes(certified, draws=50)
    assert not [check for check in verify_run(certified) if check.status == "failed"]
    # And where nothing can be written, that is said before the draws.
    monkeypatch.setattr("pacbayes.runs.certify.certify_classes", lambda *args, **options: pytest.fail("drawn"))
    monkeypatch.setattr("pacbayes.runs.certify.check_writable", lambda folder: full(folder, b""))
    with pytest.raises(OSError, match="no space"):
        certify_run_classes(certified, draws=50)


def test_an_evaluation_that_cannot_be_written_spoils_nothing(certified, monkeypatch):
    def full(path, content):
        if path.name == "evaluation.json":
            raise OSError("no space left")
        write_atomically(path, content)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space"):
        patch.setattr("pacbayes.runs.certify.write_atomically", full)
        certify_run(certified, draws=50, test_draws=2)
    found = {check.name: check.status for check in verify_run(certified)}
    assert found["evaluation.json"] == "not checkable" and "failed" not in found.values()
    write_report(certified)
    evaluate_run(certified, test_draws=2)
    assert "evaluation.json" not in {check.name for check in verify_run(certified)}
    assert len(read_journal(certified).risk_bounds()) == 2


@pytest.mark.parametrize("predictor", ["randomised", "majority"])
def test_a_single_network_goes_with_its_certificate(predictor, certified):
    """Nobody shall take it for what another certificate is about."""
    file = certified.weights_file("single")
    for seed in (1, 2):
        certify_run(certified, predictor="single", seed=seed)
        assert file.is_file() and "failed" not in {check.status for check in verify_run(certified)}
    certify_run(certified, predictor=predictor, draws=200, test_draws=2)
    assert not file.exists() and "failed" not in {check.status for check in verify_run(certified)}
    certify_run(certified, predictor="single", seed=3)
    assert file.is_file() and "failed" not in {check.status for check in verify_run(certified)}
    assert certified.certificate().draw == 3


def test_a_single_network_that_cannot_be_written_is_counted(certified, monkeypatch):
    def full(path, content):
        raise OSError("no space left")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space"):
        patch.setattr("pacbayes.runs.certify.write_atomically", full)
        certify_run(certified, predictor="single", test_draws=2, seed=1)
    certificate, _ = certify_run(certified, predictor="single", test_draws=2, seed=2)
    assert certificate.draw == 2
    assert not [check for check in verify_run(certified) if check.status == "failed"]


def test_what_other_processors_round_otherwise_is_no_fault(everything):
    """The last digit of the KL depends on the number of threads."""
    path = everything.path / "classes.json"
    record = json.loads(path.read_text())
    for kl, right in ((math.nextafter(record["kl"], math.inf), True), (record["kl"] * (1 + 1e-9), False)):
        path.write_text(json.dumps(record | {"kl": kl}))
        note(everything, "classes certified")
        assert ("failed" not in {check.status for check in verify_run(everything)}) == right


def test_predictions_are_labels_and_follow_the_seed(certified):
    inputs = load(certified.config().data, "test").x.repeat(20, 1)
    first, again, other = (predict_run(certified, inputs, seed) for seed in (1, 1, 2))
    assert first.shape == (600,) and first.dtype == torch.int64
    assert set(first.tolist()) <= {0, 1, 2}
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_unseeded_predictions_are_fresh(certified):
    inputs = torch.zeros(2000, 4)
    assert not torch.equal(predict_run(certified, inputs), predict_run(certified, inputs))


def test_each_prediction_has_a_draw_of_its_own(certified):
    """At the same input, labels differ: one network for all would give one label."""
    net, _ = trained_network(certified)
    x = torch.zeros(1000, 4)
    with torch.no_grad():
        shares = torch.bincount(net(x, "independent", torch.Generator().manual_seed(0)).argmax(1), minlength=3) / 1000
    assert shares.max() < 0.99, "the network is too sure here for this test"
    labels = predict_run(certified, x, seed=5)
    found = torch.bincount(labels, minlength=3) / 1000
    # Each share has a standard error below .016 twice over: 8 of them are exceeded with probability below 1e-13.
    assert (found - shares).abs().max() < 8 * 0.016 * 2**0.5


def test_predictions_are_those_of_the_posterior(certified, monkeypatch):
    """With chunks of any size, and for inputs where the network is sure, its mean's answer."""
    net, bound_data = trained_network(certified)
    with torch.no_grad():
        expected = net(bound_data.x * 100, "mean").argmax(1)
    for chunk in (4096, 7):
        monkeypatch.setattr(memory, "LARGEST_CHUNK", chunk)
        labels = predict_run(certified, bound_data.x * 100, seed=0)
        assert (labels == expected).double().mean() > 0.7


def test_predictions_are_those_of_the_predictor_that_is_certified(certified):
    x = torch.zeros(1000, 4)
    assert len(set(predict_run(certified, x, seed=1).tolist())) > 1
    certify_run(certified, test_draws=2, predictor="single")
    assert len(set(predict_run(certified, x, seed=1).tolist())) == 1


def test_the_test_error_is_that_of_the_predictor_that_is_certified(certified):
    test = load(certified.config().data, "test")
    _, evaluation = certify_run(certified, predictor="single", seed=3)
    wrong = (predict_run(certified, test.x) != test.y).double().mean().item()
    assert (evaluation.test_error, evaluation.test_error_sd, evaluation.test_draws) == (wrong, None, 1)
    issued, evaluation = certify_run(certified, draws=20, predictor="majority", voters=5, seed=3)
    wrong = (predict_run(certified, test.x, issued.seed) != test.y).double().mean().item()
    assert evaluation.test_error == wrong and certified.evaluation() == evaluation


def table(path, columns, rows):
    path.write_text("\n".join(",".join(map(str, row)) for row in [columns, *rows]) + "\n")
    return path


def test_tables_are_predicted_by_the_names_of_their_columns(tiny, data_file, tmp_path):
    arrays = np.load(data_file(tmp_path / "data.npz"))
    rows = [[*x, "abc"[y]] for x, y in zip(arrays["x"].round(3), arrays["y"], strict=True)]
    config = tiny(f"{table(tmp_path / 'mine.csv', ['p', 'q', 'r', 's', 'kind'], rows)}#kind")
    run = train_run(config, tmp_path / "run")
    assert run.data_record()["feature_names"] == ["p", "q", "r", "s"]
    turned = [row[::-1] for row in rows]
    backwards = table(tmp_path / "turned.csv", ["kind", "s", "r", "q", "p"], turned)
    found, files = inputs_for(run, str(backwards))
    assert torch.equal(found, load(config.data).x) and files == []
    with pytest.raises(DataError, match="no column 's'"):
        inputs_for(run, str(table(tmp_path / "less.csv", ["p", "q", "r"], [row[:3] for row in rows])))


def test_images_are_scaled_as_those_of_the_catalogue_were(tmp_path):
    """A digit as a file is the example that it was made of, whether in a folder of its class or not."""
    stages = {"pretraining": {"epochs": 1}, "prior_training": {"epochs": 0}, "posterior": {"epochs": 1}}
    run = train_run(Config().with_options({"model": "mlp", **stages}), tmp_path / "run")
    test = load("digits", "test")
    pixels = (test.x[:12] / 4 * 16).round().numpy()  # 0 to 16
    for number, image in enumerate(pixels):
        folder = tmp_path / "classed" / str(int(test.y[number]))
        folder.mkdir(parents=True, exist_ok=True)
        for place in (tmp_path / "plain", folder):
            place.mkdir(exist_ok=True)
            Image.fromarray(np.rint(image[0] / 16 * 255).astype(np.uint8)).save(place / f"{number:02d}.png")
    plain, files = inputs_for(run, str(tmp_path / "plain"))
    assert len(files) == 12 and (plain - test.x[:12]).abs().max() < 0.01
    classed, _ = inputs_for(run, str(tmp_path / "classed"))
    assert (classed.sum() - plain.sum()).abs() < 1e-3
    # Arrays are taken as they are, so a range that cannot be right is said.
    for factor, said in ((1.0, False), (0.25, True), (255 / 4, True)):
        np.savez(tmp_path / "new.npz", x=factor * test.x[:12].numpy())
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            inputs_for(run, str(tmp_path / "new.npz"))
        assert [str(w.message).partition(", and ")[2].partition(":")[0] for w in heard] == (
            ["pixels of digits between 0 and 4"] if said else []
        )


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (-2, 2, False),
        (-1.9, 1.8, False),
        (0, 1, True),
        (-1, 1, True),
        (0, 255, True),
        (-2.1, 2.6, True),
        (-0.5, 0.5, True),
    ],
)
def test_the_range_of_pixels(low, high, said):
    """CIFAR-10 has pixels from -2 to 2; shares of white, or any other convention, are something else."""
    x = torch.linspace(low, high, 12 * 3072).view(12, 3, 32, 32)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        _look_at_the_range(x, image_scaling("cifar10"), "cifar10")
    assert len(heard) == said


def test_a_few_digits_as_shares_of_white_are_noticed():
    with pytest.warns(UserWarning, match="lie between 0 and 1"):
        _look_at_the_range(torch.linspace(0, 1, 3 * 64).view(3, 1, 8, 8), image_scaling("digits"), "digits")


def test_images_need_no_folders_to_be_predicted(tiny, tmp_path, monkeypatch):
    generator = np.random.default_rng(0)
    for number in range(60):
        folder = tmp_path / "photos" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 255, (8, 8, 3), np.uint8)).save(folder / f"{number}.png")
    run = train_run(tiny(tmp_path / "photos"), tmp_path / "run")
    new = tmp_path / "new"
    new.mkdir()
    Image.fromarray(generator.integers(0, 255, (8, 8), np.uint8)).save(new / "grey.png")
    shutil.copy(tmp_path / "photos" / "a" / "0.png", new)
    found, files = inputs_for(run, str(new))
    assert files == ["0.png", "grey.png"] and found.shape == (2, 3, 8, 8)
    assert torch.equal(found[0], load(run.config().data).x[0])
    assert inputs_for(run, str(new / "grey.png"))[1] == ["grey.png"]
    assert len(predict_run(run, found)) == 2
    np.savez(tmp_path / "new.npz", x=generator.random((20, 3, 8, 8)))
    with pytest.warns(UserWarning, match="pixels of .*photos between -2 and 2"):
        inputs_for(run, str(tmp_path / "new.npz"))
    Image.fromarray(generator.integers(0, 255, (9, 8), np.uint8)).save(new / "large.png")
    with pytest.raises(DataError, match=r"large.png has 8 x 9 pixels, and those of the training data 8 x 8"):
        inputs_for(run, str(new))
    assert inputs_for(run, f"{new}#8")[0].shape == (3, 3, 8, 8)
    with pytest.raises(InvalidInput, match="9 pixels each way are others"):
        inputs_for(run, f"{new}#9")
    scaled = train_run(tiny(f"{tmp_path / 'photos'}#6"), tmp_path / "scaled")
    for folder, count, last in ((new, 3, "large.png"), (tmp_path / "photos", 60, "b/9.png")):
        found, files = inputs_for(scaled, str(folder))
        assert found.shape == (count, 3, 6, 6) and len(files) == count and files[-1] == last
    # Stored as numbers they are the same data.
    store(f"{tmp_path / 'photos'}#6", tmp_path / "stored")
    assert scaled.data(str(tmp_path / "stored")).bound.shape == (3, 6, 6)
    # New ones need not be of every class.
    (tmp_path / "some" / "b").mkdir(parents=True)
    shutil.copytree(tmp_path / "photos" / "a", tmp_path / "some" / "a")
    assert inputs_for(scaled, str(tmp_path / "some"))[0].shape == (30, 3, 6, 6)
    assert load_inputs(str(tmp_path / "some")).shape == (30, 3, 8, 8)
    for name in ("Thumbs.db", ".hidden"):
        (new / name).write_bytes(b"")
    assert len(inputs_for(scaled, str(new))[1]) == 3
    (new / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match=r"notes\.txt: not an image of a known kind"):
        inputs_for(scaled, str(new))
    (new / "notes.txt").unlink()
    monkeypatch.setattr(image_folders, "MAX_BYTES", 100)
    for folder in (new, tmp_path / "photos"):
        with pytest.raises(DataError, match="more than 100 bytes"):
            inputs_for(scaled, str(folder))


def test_what_the_inputs_were_is_known_from_any_folder(tiny, tmp_path, monkeypatch):
    for number in range(20):
        folder = tmp_path / "photos" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8, 3), 10 * number, np.uint8)).save(folder / f"{number}.png")
    np.savez(tmp_path / "new.npz", x=np.random.default_rng(0).random((20, 3, 8, 8)))
    monkeypatch.chdir(tmp_path)
    train_run(tiny("photos"), tmp_path / "run")
    monkeypatch.chdir(tmp_path / "photos")
    with pytest.warns(UserWarning, match="pixels of .*photos between -2 and 2"):
        inputs_for(RunFolder(tmp_path / "run"), str(tmp_path / "new.npz"))
    # The run itself says it, wherever its data are now; one that is older does not.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").rename(tmp_path / "moved")
    run = RunFolder(tmp_path / "run")
    assert run.scaling() == IMAGES
    record = run.data_record()
    del record["scaling"]
    write_json(run.data_file, record)
    assert run.scaling() is None and run.data(str(tmp_path / "moved")).record() == record | {"scaling": asdict(IMAGES)}
    for wrong in (7, {}, {"levels": 0, "offset": 0.5, "scale": 0.25}, {"levels": 255, "offset": 0.5, "scale": 0}):
        write_json(run.data_file, record | {"scaling": wrong})
        with pytest.raises(RunError, match=r"data\.json is damaged"):
            run.scaling()


def test_images_for_a_run_that_was_trained_on_arrays_are_scaled_in_a_way_that_is_said(tiny, tmp_path):
    np.savez(tmp_path / "arrays.npz", x=np.random.default_rng(0).normal(size=(60, 1, 8, 8)), y=np.arange(60) % 2)
    run = train_run(tiny(tmp_path / "arrays.npz"), tmp_path / "run")
    Image.fromarray(np.full((8, 8), 255, np.uint8)).save(tmp_path / "white.png")
    with pytest.warns(UserWarning, match=r"given as \(pixel / 255 - 0\.5\) / 0\.25 of pixels of 0 to 255"):
        found, _ = inputs_for(run, str(tmp_path / "white.png"))
    assert found.min() == found.max() == 2


@pytest.mark.parametrize("shape", [(5, 3), (5, 4, 1), (5, 2, 2)])
def test_inputs_of_another_shape_are_refused(shape, certified):
    with pytest.raises(InvalidInput, match=r"shape \[4\], not"):
        predict_run(certified, torch.zeros(shape))
