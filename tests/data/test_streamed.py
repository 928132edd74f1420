"""Data from disk, and data that a device has no room for: all that is done with them ends in the usual bytes."""

import numpy as np
import pytest
import torch
from torch import nn

import pacbayes as pb
from pacbayes.data import streamed
from pacbayes.data.streamed import Streamed
from pacbayes.training.stage import Stage

GENERATOR = np.random.default_rng(0)
Y = np.arange(90) % 3
X = (np.eye(3)[Y][:, None, None] + GENERATOR.normal(size=(90, 1, 4, 3))).astype(np.float32)


def walk(data):
    """Scaling, features, training with either optimiser, and certificates of every kind; all that they end in."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(1, 4, 2), nn.ReLU(), nn.Flatten())
    model = nn.Sequential(body, nn.Linear(24, 3))
    prior_data, bound_data = pb.split(data, fraction=0.5)
    net = pb.stochastic(model, prior_variance=1e-3)
    pb.scale_prior(net, prior_data, tolerance=0.1, passes=1)
    pb.fit(net, bound_data, epochs=2, rate=0.01, batch_size=7, optimiser="adam")
    found = [net.fingerprint("posterior")]
    for options in ({}, {"sampling": "shared"}, {"predictor": "single"}, {"loss": lambda out, y: out.softmax(1)[:, 0]}):
        draws = 5 if "sampling" in options else None if "predictor" in options else 200
        found.append(vars(pb.certify(net, bound_data, bound="best", draws=draws, seed=1, **options)))
    features, head = pb.features(model, data)
    prior_data, bound_data = pb.split(features, fraction=0.5)
    net = pb.stochastic(head)
    pb.fit(net, bound_data, epochs=1, objective="lbd")
    found.append(vars(pb.certify(net, bound_data, sampling="exact", seed=1)))
    return [record if isinstance(record, str) else {**record, "time": ""} for record in found]


@pytest.fixture(scope="module")
def usual():
    return walk(pb.Data(torch.from_numpy(X), torch.from_numpy(Y), 3))


def test_from_disk(usual, tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    assert walk(pb.load(tmp_path)) == usual


def test_without_room_on_the_device(usual, monkeypatch):
    """The CPU stands in for a GPU that is full: batches are copied to it."""
    monkeypatch.setattr(streamed, "has_room", lambda device, size: False)
    data = pb.Data(torch.from_numpy(X), torch.from_numpy(Y), 3)
    stage = Stage(pb.stochastic(nn.Linear(3, 3)), data, pb.Settings())
    assert isinstance(stage.x, Streamed) and not stage.resident
    assert walk(data) == usual
