"""A small experiment that trains in a second."""

import pytest

TINY = """
title = "A trial"
source = "table 0"
draws = 200
test_draws = 3
[base]
data = "digits"
model = "mlp"
prior = "data-free"
[base.posterior]
momentum = 0.5
[schedules.paper.posterior]
schedule = "2@0.005, 1@0.0001"
[schedules.short.posterior]
epochs = 1
[[rows]]
row = "G invKL"
paper = { risk_bound = 0.5 }
[[rows]]
row = "S lbd"
posterior = { method = "S", objective = "lbd", kappa = 0.5 }
"""


@pytest.fixture
def tiny_text():
    return TINY
