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
    assert pacbayes.scale_prior(network(), data, passes=np.int64(1), seed=np.int64(2)).error >= 0
    assert pacbayes.test_error(net, data, np.int64(2), seed=np.int64(1)) == pacbayes.test_error(net, data, 2, seed=1)
