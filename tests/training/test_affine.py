"""The affine check: realisations of the empirical risk, and the slope of the bound over them."""

import pytest
import torch
from torch import nn

from pacbayes import build, load, stochastic
from pacbayes.bounds import kl_inverse
from pacbayes.data import Data
from pacbayes.training.affine import affine_check, risk_realisations, slope


@pytest.mark.parametrize("risk", [0.003, 0.02, 0.3])
@pytest.mark.parametrize("pen", [0.0004, 0.05])
def test_the_slope_is_the_derivative_of_the_bound(risk, pen):
    step = 1e-6
    assert slope(risk, pen) == pytest.approx(
        (kl_inverse(risk + step, pen) - kl_inverse(risk - step, pen)) / (2 * step), rel=1e-5
    )


@pytest.mark.parametrize("distribution", ["gaussian", "laplace"])
def test_each_realisation_is_one_hidden_draw_for_all_the_data(distribution):
    data = load("digits")
    net = stochastic(build("mlp", data.shape, data.classes), 0.01, distribution=distribution)
    risks = risk_realisations(net, data, 200, seed=1)
    assert torch.equal(risks[:5], risk_realisations(net, data, 5, seed=1))
    # The same draw for all: data that repeat ten times, in more than one chunk, change nothing.
    repeated = Data(torch.cat([data.x] * 10), torch.cat([data.y] * 10), data.classes)
    torch.testing.assert_close(risk_realisations(net, repeated, 5, seed=1), risks[:5], rtol=0, atol=1e-6)
    # The mean is the risk of independent draws.
    with torch.no_grad():
        outputs = net(torch.cat([data.x] * 20), "independent", torch.Generator().manual_seed(0))
    risk = (outputs.argmax(-1) != data.y.repeat(20)).double().mean()
    assert abs(risks.mean() - risk) < 5 * risks.std() / 200**0.5 + 5 * (0.25 / (20 * 1437)) ** 0.5


def test_without_hidden_layers_the_estimate_is_exact_and_the_slope_constant():
    data = load("digits")
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    record = affine_check(stochastic(model, 0.01), data, 3, 0, 0.025)
    assert record["sd"] < 1e-9 and record["slope_variation"] < 1e-6
    assert record["m"] == 1437 and sum(record["histogram"]["counts"]) == 3
