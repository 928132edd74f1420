"""How drawn networks answer: one vote a draw."""

from __future__ import annotations

import torch
from torch import Tensor

from pacbayes.data.streamed import Inputs
from pacbayes.networks.memory import chunk_size
from pacbayes.networks.precision import full_precision
from pacbayes.networks.stochastic import StochasticNetwork


@torch.no_grad()
def tally(net: StochasticNetwork, x: Inputs, sampling: str, draws: int, generator: torch.Generator) -> Tensor:
    """How many of so many draws give each class, int64 [n, classes]; computed as certificates are counted."""
    votes = torch.zeros(len(x), net.classes, dtype=torch.int64)
    size = chunk_size(net, x, per_example_weights=sampling == "independent")
    with full_precision():
        for some, counts in zip(x.split(size), votes.split(size), strict=True):
            some = some.to(net.mean.device)
            for _ in range(draws):
                labels = net(some, sampling, generator).argmax(-1, keepdim=True).cpu()
                counts.scatter_add_(1, labels, torch.ones_like(labels))
    return votes
