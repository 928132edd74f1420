"""The audit: every tensor of the model is in it once, and its divergences add up to the KL."""

from __future__ import annotations

import pytest
from any_nets import NETS, net_and_batch
from small_nets import shaken
from torch import nn

from pacbayes.networks import stochastic


@pytest.mark.parametrize("family", ["gaussian", "laplace"])
@pytest.mark.parametrize("name", NETS)
def test_every_tensor_is_there_once_and_the_shares_add_up(name, family):
    model, x = net_and_batch(name)
    net = shaken(stochastic(model, 0.02, distribution=family))
    net(x)
    table = net.audit()
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    assert {row.name: row.shape for row in table.rows} == {n: tuple(t.shape) for n, t in tensors.items()}
    assert len(table.rows) == len(tensors)
    trainable = {n for n, p in model.named_parameters() if p.requires_grad}
    assert {row.name for row in table.rows if row.kl is not None} == trainable
    assert all(row.kl > 0 for row in table.rows if row.kl is not None)
    assert table.kl == pytest.approx(net.kl().item(), rel=1e-12)
    assert table.outside == ()
    assert any(row.drawn == "as a whole" for row in table.rows) != NETS[name][2]


def test_the_printed_table():
    model = nn.Sequential(
        nn.Linear(3, 4), nn.LayerNorm(4), nn.PReLU(), nn.BatchNorm1d(4).requires_grad_(False).eval(), nn.Linear(4, 2)
    )
    net = stochastic(model)
    lines = {line.split()[0]: line.split() for line in str(net.audit()).splitlines()}
    assert lines["0.weight"] == ["0.weight", "4x3", "12", "Linear", "0.0000"]
    assert lines["1.weight"][3] == "LayerNorm"
    assert lines["2.weight"][3:6] == ["as", "a", "whole"]
    assert lines["4.bias"][3:6] == ["the", "output", "layer"]
    assert lines["3.running_mean"][3:] == ["fixed"]
    assert str(net.audit()).endswith("35 numbers drawn, 17 fixed, KL 0.0000 nats; trainable outside the KL: nothing")
    shaken(net)
    shares = [float(line.split()[-2]) for line in str(net.audit()).splitlines() if line.endswith("%")]
    assert len(shares) == 7 and sum(shares) == pytest.approx(100, abs=0.5)


def test_what_was_made_trainable_afterwards_is_named():
    model = nn.Sequential(nn.Linear(3, 4).requires_grad_(False), nn.Linear(4, 2))
    net = stochastic(model)
    assert net.audit().outside == ()
    net.model[0].requires_grad_(True)
    assert net.audit().outside == ("0.weight", "0.bias")
    assert str(net.audit()).endswith("trainable outside the KL: 0.weight, 0.bias")
