"""Risks that are computed and not sampled."""

from __future__ import annotations

import pytest
import torch
from small_data import frozen_net, gaussian_data
from torch import nn

from pacbayes.bounds import misclassification_probability
from pacbayes.certificates import (
    certify,
)
from pacbayes.certificates.evidence import EXACT_UNIT
from pacbayes.certificates.exact import exact_errors, exact_moments
from pacbayes.certificates.monte_carlo import (
    independent_errors,
)
from pacbayes.data import as_data
from pacbayes.errors import InvalidInput, UnsupportedModel
from pacbayes.networks import stochastic
from pacbayes.training import fit


def test_frozen_features_need_no_draws():
    net, data = frozen_net(), gaussian_data()
    fit(net, data, epochs=5, rate=0.05)
    issued = certify(net, data, sampling="exact", bound="best")
    assert issued.check() == [] and (issued.mc_delta, issued.draws, issued.confidence) == (0.0, 0, 0.975)
    mean, variance, _ = exact_moments(net, data.x)
    true = misclassification_probability(mean, variance, data.y, nodes=400).mean().item()
    assert true <= issued.empirical_risk <= true + 0.003
    counted = certify(net, data, draws=60_000, seed=1).empirical_risk
    assert abs(counted - true) < 6 * 0.0021
    assert "exact" in str(issued)


def test_hidden_draws_have_no_exact_risk(trained):
    with pytest.raises(InvalidInput, match="last layer alone"):
        certify(*trained[:2], sampling="exact")


def test_exact_errors_are_whole_numbers_and_not_below():
    net, data = frozen_net(), gaussian_data(20)
    mean, variance, _ = exact_moments(net, data.x)
    true = misclassification_probability(mean, variance, data.y, nodes=400).sum().item()
    found = exact_errors(net, data)
    assert type(found) is int and true <= found / EXACT_UNIT <= true + 0.1


@pytest.mark.parametrize(("inputs", "classes"), [(16, 10), (128, 100), (4096, 10), (20_000, 3)])
def test_sums_of_one_sign_are_no_other_output(inputs, classes):
    """Where nothing cancels, float32 sums are at their worst, and still those of the last layer."""
    generator = torch.Generator().manual_seed(0)
    linear = nn.Linear(inputs, classes)
    with torch.no_grad():
        linear.weight.copy_(torch.rand(classes, inputs, generator=generator))
    x, y = torch.rand(60, inputs, generator=generator), torch.arange(60) % classes
    net = stochastic(linear, 1e-8)
    _, _, room = exact_moments(net, x)
    assert room.max() < 0.01 * inputs and certify(net, as_data((x, y), classes=classes), sampling="exact").check() == []


def test_weights_too_large_for_their_deviations_pay_for_nothing():
    """Their draws are always the same number, though the density there is not: no ratio may come from that."""
    torch.manual_seed(0)
    x = torch.cat([torch.randn(200, 300), torch.zeros(200, 500)], 1)
    y = torch.randint(2, (200,))
    linear = nn.Linear(800, 2, bias=False)
    with torch.no_grad():
        linear.weight[:, :300], linear.weight[:, 300:] = 0, 1e8
    net = stochastic(linear, 0.01)
    solution = torch.linalg.lstsq(x[:, :300], (2.0 * y - 1)[:, None]).solution[:, 0]
    with torch.no_grad():
        net.mean.view(2, -1)[:, :300] = torch.stack([-solution, solution])
        net.rho.view(2, -1)[:, 300:], net.rho.view(2, -1)[:, :300] = 1.0, 0.02 ** (2 / 3)
    issued = certify(net, (x, y), predictor="single", seed=1)
    assert issued.empirical_risk == 0 and issued.risk_bound > 0.4


def test_an_exact_risk_is_that_of_predictions_in_float32():
    linear = nn.Linear(1, 3)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[0.0], [4e-4], [0.0]]))
        linear.bias.copy_(torch.tensor([1e4, 1e4, -1e4]))
    net = stochastic(linear, 1e-10)
    x = torch.tensor([[1.0], [1.2]]).repeat(500, 1)
    data = as_data((x, torch.ones(1000, dtype=torch.int64)), classes=3)
    # In float64 nearly none would be wrong, but float32 does not tell 10,000 from 10,000.0004.
    drawn = independent_errors(net, data, 2000, 0) / 2000
    assert drawn > 0.9 and exact_errors(net, data) / EXACT_UNIT / 1000 > 0.9


class Turned(nn.Module):
    """What follows the last layer depends on the example, and not on the first one."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        out = self.fc(x)
        bad = x[:, 0] > 1
        return torch.where(bad[:, None], -out, out) if bad.any() else out


def test_an_exact_risk_is_that_of_the_prediction():
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    x[0] = 0
    data = as_data((x, torch.arange(60) % 2), classes=2)
    with pytest.raises(UnsupportedModel, match="not that of its last layer"):
        certify(stochastic(Turned(), 0.01), data, sampling="exact")
