"""Standardised inputs: the numbers, and that the layer is a part of the prior like any other."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import pacbayes as pb
from pacbayes.networks import standardisation as module
from pacbayes.networks.shaping import data_behind


def table(m=60, seed=0):
    """Two classes; features in units of their own, one of them constant."""
    generator = np.random.default_rng(seed)
    y = np.arange(m) % 2
    x = generator.normal(size=(m, 4)) + y[:, None]
    return x * [1e-6, 1.0, 1e6, 0.0] + [0, 1000, -5e6, 7], y


def test_the_numbers_are_those_of_double_precision(monkeypatch):
    monkeypatch.setattr(module, "_ROWS", 7)
    data = pb.split(table(), 0.5)[0]
    x = data.x.numpy().astype(np.float64)
    mean, deviation = module.moments(data)
    np.testing.assert_allclose(mean, x.mean(0), rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(deviation, [*x.std(0)[:3], 1.0], rtol=1e-6)
    scaled = pb.standardise(torch.nn.Identity(), data)(data.x)
    assert scaled.mean(0).abs().max() < 1e-3 and (scaled.std(0, correction=0)[:3] - 1).abs().max() < 1e-3
    assert (scaled[:, 3] == 0).all(), "a constant feature is only shifted"


def test_a_pass_is_that_of_the_model_on_scaled_data():
    prior_data, bound_data = pb.split(table(), 0.5)
    model = pb.build("mlp", (4,), 2)
    mean, deviation = module.moments(prior_data)
    inside, outside = pb.stochastic(pb.standardise(model, prior_data)), pb.stochastic(model)
    for sampling in ("mean", "shared", "independent"):
        first, second = (torch.Generator().manual_seed(3) for _ in range(2))
        expected = outside((bound_data.x - mean) / deviation, sampling, second)
        torch.testing.assert_close(inside(bound_data.x, sampling, first), expected)


def test_it_is_filled_from_a_file_whatever_the_default_precision(doubles):
    empty = module.standardised(pb.build("mlp", (4,), 2), (4,))
    filled = pb.standardise(pb.build("mlp", (4,), 2), pb.split(table(), 0.5)[0])
    assert [t.dtype for t in empty[0].state_dict().values()] == [t.dtype for t in filled[0].state_dict().values()]


def test_what_it_was_fitted_on_is_no_bound_data():
    everything = pb.load("digits").take(np.arange(200))
    prior_data, bound_data = pb.split(everything, 0.5)
    model = pb.build("mlp", everything.shape, 10)
    # Nobody trained on the bound data, but the scaling knows them.
    for seen in (everything, bound_data):
        net = pb.stochastic(pb.standardise(model, seen))
        with pytest.raises(pb.PacBayesError, match="prior was trained on some of these data"):
            pb.certify(net, bound_data, draws=10)
    net = pb.stochastic(pb.standardise(model, prior_data))
    assert pb.certify(net, bound_data, draws=10).risk_bound <= 1
    # The copy of the model inside holds no data.
    assert not data_behind(net.model)


def test_it_is_fixed_with_the_prior(tmp_path):
    prior_data, bound_data = pb.split(table(), 0.5)
    model = pb.standardise(pb.build("mlp", (4,), 2), prior_data)
    net = pb.stochastic(model)
    pb.fit(net, bound_data, epochs=1)
    assert net.audit().outside == () and "scaling.mean" in str(net.audit())
    certificate = pb.certify(net, bound_data, predictor="single", seed=1)
    pb.export_single(net, certificate, tmp_path / "single.safetensors")
    plain = copy.deepcopy(model)
    plain.load_state_dict(load_file(tmp_path / "single.safetensors"))
    errors = (plain(bound_data.x).argmax(-1) != bound_data.y).sum()
    assert errors == certificate.errors, "the file takes the data as they are"
    net.model.scaling.mean += 1
    with pytest.raises(pb.PacBayesError, match="has changed since the prior was frozen"):
        pb.certify(net, bound_data, draws=10)
