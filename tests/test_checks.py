"""Options as users give them: what is no number is refused in one sentence, and NumPy's numbers are Python's."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

import pacbayes
from pacbayes import CertifiedClassifier, certify, certify_classes, fit, holdout_bound, split, stochastic
from pacbayes.errors import InvalidInput


def problem(m: int = 60):
    y = torch.arange(m) % 3
    return torch.eye(3)[y] + 0.3 * torch.randn(m, 3, generator=torch.Generator().manual_seed(0)), y


def network():
    torch.manual_seed(0)
    return stochastic(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3)), 0.01)


WRONG = {
    "split": lambda: split(problem(), "0.5"),
    "split by a truth": lambda: split(problem(), True),
    "hold-out": lambda: holdout_bound(network(), problem(), delta="0.1"),
    "penalty": lambda: pacbayes.bounds.penalty(1.0, 60, "0.1"),
    "variance": lambda: stochastic(nn.Linear(3, 3), "0.01"),
    "variance as a tensor": lambda: stochastic(nn.Linear(3, 3), torch.tensor(0.01)),
    "seed of a test": lambda: pacbayes.test_error(network(), problem(), 2, seed=-1),
    "device": lambda: CertifiedClassifier(device="cuda:99", epochs=1, prior_epochs=1).fit(
        *(part.numpy() for part in problem(120))
    ),
    "no device": lambda: CertifiedClassifier(device=None).fit(*(part.numpy() for part in problem(120))),
    "fraction of a classifier": lambda: CertifiedClassifier(prior_fraction="0.5").fit(
        *(part.numpy() for part in problem(120))
    ),
    "draws of a test": lambda: pacbayes.test_error(network(), problem(), "3"),
    "passes": lambda: pacbayes.scale_prior(network(), problem(), passes="2"),
    "tolerance": lambda: pacbayes.scale_prior(network(), problem(), tolerance="0.1"),
    "data": lambda: pacbayes.load(3),
    "m of an objective": lambda: pacbayes.objective(network(), problem(), m="300"),
    "labels of an objective": lambda: pacbayes.objective(network(), (problem()[0], problem()[1] + 1), m=60),
    "a batch in a dict": lambda: pacbayes.objective(network(), dict(zip("xy", problem(), strict=True)), m=60),
    "an empty batch": lambda: pacbayes.objective(network(), tuple(part[:0] for part in problem()), m=60),
    "epochs": lambda: fit(network(), problem(), epochs=2.5),
    "budget": lambda: certify(network(), problem(), budget="10"),
    "delta of classes": lambda: certify_classes(network(), problem(), delta="0.1"),
}


def outputs(**changed):
    return {"mean": torch.zeros(2, 3), "variance": torch.ones(2, 3), "labels": torch.tensor([0, 1])} | changed


NO_SUCH_THING = {
    "a path for a certificate": (
        lambda: pacbayes.compare_bounds("certificate.json"),
        "the certificate must be one that .* gave, or Certificate.load.path., and is a str",
    ),
    "a path to export from": (lambda: pacbayes.export_single(network(), "certificate.json", "a"), "the certificate"),
    "a module to export": (lambda: pacbayes.export_single(nn.Linear(3, 3), None, "a"), "a stochastic network is"),
    "a name for a model": (lambda: stochastic("mlp"), "the model must be an nn.Module, .* and is a str"),
    "features of a name": (lambda: pacbayes.features("mlp", problem()), "the model must be"),
    "a name to fold": (lambda: pacbayes.fold_batchnorm("mlp", problem()[0]), "the model must be"),
    "a name to replace in": (lambda: pacbayes.replace_batchnorm("mlp"), "the model must be"),
    "a name to standardise": (lambda: pacbayes.standardise("mlp", problem()), "the model must be"),
    "a name to train": (lambda: pacbayes.train_ordinary("mlp", problem()), "the model must be"),
    "a dict of settings": (
        lambda: fit(network(), problem(), settings={"epochs": 1}),
        "settings must be .* a dict",
    ),
    "a number for a prior": (lambda: pacbayes.learn_prior(network(), problem(), training=30), "is a int"),
    "a setting that is none": (
        lambda: pacbayes.learn_prior(network(), problem(), training={"epoch": 1}),
        "unknown option 'epoch'",
    ),
    "settings of another training": (
        lambda: pacbayes.train_ordinary(nn.Linear(3, 3), problem(), settings=pacbayes.Settings()),
        r"must be pacbayes.Ordinary\(...\), and is a Settings",
    ),
    "a truth for a callback": (lambda: fit(network(), problem(), callback=True), "callback must be a function"),
    "a truth for progress": (lambda: certify(network(), problem(), progress=True), "progress must be a function"),
    "a path for a checkpoint": (lambda: fit(network(), problem(), checkpoint="a"), "checkpoint must be a .*Checkpoint"),
    "a seed for a generator": (lambda: network()(problem()[0], generator=1), "generator must be a torch.Generator"),
    "a path for a state": (lambda: network().load_state("a"), "the state must be a dict of tensors"),
    "a list for C": (lambda: network().fix_catoni([0.5, 1]), "C must be a number"),
    "a number for a shape": (lambda: pacbayes.build("mlp", 3, 3), "shape must be that of one example"),
    "a word for classes": (lambda: pacbayes.build("mlp", (3,), "3"), "classes must be of type int"),
    "a list for a name": (lambda: pacbayes.build(["mlp"], (3,), 3), "unknown model"),
    "a name nearly right": (lambda: pacbayes.build("cnn_small", (3,), 3), "; did you mean 'cnn-small'"),
    "an objective in small letters": (lambda: pacbayes.Settings(objective="invkl"), "; did you mean 'invKL'"),
    "a word for a size": (lambda: pacbayes.features(nn.Linear(3, 3), problem(), batch_size="10"), "batch_size must"),
    "lists in Data": (lambda: pacbayes.Data([[1.0]], [0], 2), r"x must be a tensor; as_data\(\) takes"),
    "classes in Data": (lambda: pacbayes.Data(*problem(), "3"), "classes must be of type int"),
    "a pair that overlaps": (lambda: split(problem(), 0.5)[0].overlaps(problem()), "must be Data"),
    "an array of outputs": (
        lambda: pacbayes.bounds.misclassification_probability(**outputs(mean=np.zeros((2, 3)))),
        "mean must be a tensor, and is a ndarray",
    ),
    "a network made stochastic again": (lambda: stochastic(network()), "is a stochastic network already"),
    "its model made so": (lambda: stochastic(network().model), "is a stochastic network already"),
    "a number of layers": (lambda: stochastic(nn.Linear(3, 3), layers=3), "layers must be the names of layers"),
    "half a group": (lambda: pacbayes.replace_batchnorm(nn.Linear(3, 3), groups=2.5), "groups must be a whole number"),
    "a word to fold with": (lambda: pacbayes.fold_batchnorm(nn.Linear(3, 3), "x"), "x must be a few inputs"),
    "fewer classes than none": (lambda: pacbayes.build("mlp", (3,), -2), "must be positive"),
    "no features": (lambda: pacbayes.build("mlp", (0,), 2), "must be positive"),
    "a word for a seed": (lambda: pacbayes.build("mlp", (3,), 2, seed="a"), "seed must be a whole number"),
    "a network to standardise": (lambda: pacbayes.standardise(network(), problem()), "is standardised first"),
    "outputs of another shape": (
        lambda: pacbayes.bounds.misclassification_upper(**outputs(variance=torch.ones(2, 4))),
        "must be .*, with labels",
    ),
    "a KL below 0": (lambda: pacbayes.bounds.penalty(-5.0, 100, 0.1), "a KL is at least 0"),
    "a KL that is none": (lambda: pacbayes.bounds.penalty(float("nan"), 100, 0.1), "a KL is at least 0"),
    "a level below 0": (lambda: pacbayes.bounds.kl_inverse(torch.tensor(0.5), -0.1), "c >= 0"),
    "a rate above 1": (lambda: pacbayes.bounds.kl(1.5, 0.5), r"q and p in \[0, 1\]"),
    "no penalty": (lambda: pacbayes.bounds.lbd(0.1, 0.0), "where the penalty is positive"),
    "a lambda of 3": (lambda: pacbayes.bounds.lbd(0.1, 0.1, 3.0), r"lambda must lie in \(0, 1\]"),
    "no samples": (
        lambda: pacbayes.bounds.misclassification_probability(**outputs(), method="L1", samples=0),
        "samples must be at least 1",
    ),
    "no nodes": (lambda: pacbayes.bounds.misclassification_probability(**outputs(), nodes=0), "nodes must be at least"),
    "a device of others": (lambda: pacbayes.devices.device_named("hpu"), "device 'hpu' cannot be used"),
    "a label below 0": (
        lambda: pacbayes.objective(network(), (torch.zeros(2, 3), torch.tensor([0, -4])), m=50),
        "labels must lie from 0 to 2, and one is -4",
    ),
    "half an error": (lambda: pacbayes.bounds.clopper_pearson_upper(3.5, 10, 0.1), "errors must be of type int"),
    "half a term": (lambda: pacbayes.bounds.chernoff_upper(0.1, 10.5, 0.1), "n must be of type int"),
    "a list of labels": (lambda: pacbayes.bounds.misclassification_upper(**outputs(labels=[0, 1])), "labels must be"),
}


@pytest.mark.parametrize("case", NO_SUCH_THING)
def test_what_is_of_another_type_is_refused_with_what_is_wanted(case):
    call, words = NO_SUCH_THING[case]
    with pytest.raises(InvalidInput, match=words):
        call()


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_such_number_is_refused(case):
    with pytest.raises(InvalidInput):
        WRONG[case]()


def test_numbers_of_numpy(tmp_path):
    net, data = network(), problem()
    history = fit(net, data, epochs=np.int64(2), rate=np.float64(0.05), batch_size=np.int32(16), seed=np.int64(1))
    assert len(history.epochs) == 2
    issued = certify(
        net, data, draws=np.int64(200), delta=np.float64(0.025), mc_delta=np.float32(0.5**7), seed=np.uint8(3)
    )
    issued.save(tmp_path / "certificate.json")
    assert pacbayes.Certificate.load(tmp_path / "certificate.json") == issued
    assert certify(net, data, budget=np.float32(0.2)).check() == []
    classes = certify_classes(net, data, draws=np.int64(90), delta=np.float32(0.03125), priors=np.int64(2))
    classes.save(tmp_path / "classes.json")
    assert json.loads((tmp_path / "classes.json").read_text())["delta"] == 0.03125
    assert len(split(data, np.float32(0.5), np.int64(1))[0]) == 30
    assert pacbayes.bounds.xi(np.int64(100)) == pacbayes.bounds.xi(100)
    assert pacbayes.scale_prior(network(), data, passes=np.int64(1), seed=np.int64(2)).error >= 0
    assert pacbayes.test_error(net, data, np.int64(2), seed=np.int64(1)) == pacbayes.test_error(net, data, 2, seed=1)
