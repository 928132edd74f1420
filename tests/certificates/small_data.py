"""Small data and networks whose risk is known exactly."""

from __future__ import annotations

import torch
from torch import nn

from pacbayes.data import as_data
from pacbayes.networks import stochastic


def gaussian_data(m: int = 90, seed: int = 1):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(m) % 3
    return as_data((torch.eye(4)[y] + 0.7 * torch.randn(m, 4, generator=generator), y), classes=3)


def noise(m=60, features=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return as_data(
        (torch.randn(m, features, generator=generator), torch.randint(2, (m,), generator=generator)), classes=2
    )


def frozen_net(seed: int = 0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 16).requires_grad_(False), nn.Tanh(), nn.Linear(16, 3))
    return stochastic(model, 0.1)
