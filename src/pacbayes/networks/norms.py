"""GroupNorm and LayerNorm whose scale and shift are drawn."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from pacbayes.networks.layers import StochasticLayer


class StochasticNorm(StochasticLayer):
    """A normalisation of each example by itself, then a drawn scale and shift; cheap to draw for each example."""

    def __init__(self, norm: nn.GroupNorm | nn.LayerNorm):
        super().__init__()
        self.groups = norm.num_groups if isinstance(norm, nn.GroupNorm) else None
        self.shape = tuple(norm.normalized_shape) if isinstance(norm, nn.LayerNorm) else (norm.num_channels,)
        self.eps = norm.eps

    def forward(self, x: Tensor) -> Tensor:
        own_draws = self.draw.sampling in ("independent", "mixed")
        self._check(x, own_draws=own_draws)
        weight, bias = self._sample(len(x) if own_draws else None)
        if self.groups is None:
            out = F.layer_norm(x, self.shape, None, None, self.eps)
            ones = (1,) * (x.dim() - 1 - len(self.shape))
            spread = (-1, *ones, *self.shape)
        else:
            out = F.group_norm(x, self.groups, None, None, self.eps)
            spread = (-1, *self.shape, *(1,) * (x.dim() - 2))
        out = out * weight.view(spread)
        return out if bias is None else out + bias.view(spread)
