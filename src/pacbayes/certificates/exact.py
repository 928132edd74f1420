"""The empirical risk without Monte Carlo, where the last layer alone is drawn."""

from __future__ import annotations

import torch
from torch import Tensor

from pacbayes.bounds.riemann import misclassification_upper
from pacbayes.certificates.evidence import EXACT_UNIT
from pacbayes.data import Data
from pacbayes.errors import InvalidInput, UnsupportedModel
from pacbayes.networks.distributions import scale_of
from pacbayes.networks.memory import chunk_size
from pacbayes.networks.precision import full_precision
from pacbayes.networks.stochastic import StochasticNetwork


@torch.no_grad()
def exact_errors(net: StochasticNetwork, data: Data) -> int:
    """m Err_S(Q) in parts of 1/``EXACT_UNIT``, rounded up."""
    if net.hidden_size:
        raise InvalidInput("the risk is known without draws only where the last layer alone is stochastic")
    size = chunk_size(net, data.x, per_example_weights=False)
    total = 0
    for x, y in zip(data.x.split(size), data.y.split(size), strict=True):
        y = y.to(net.mean.device)
        with full_precision():
            mean, variance, room = exact_moments(net, x.to(net.mean.device))
        # Rounding is taken to go against the label.
        own = y.unsqueeze(-1)
        mean = mean + room.scatter(-1, own, -room.gather(-1, own))
        risks = misclassification_upper(mean, variance, y)
        total += int((risks * EXACT_UNIT).ceil().long().sum())
    return total


def exact_moments(net: StochasticNetwork, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """M and V of the outputs, in float64 from the features of the fixed part.

    The third is how far a prediction, made in the network's own precision, may be from what is exact.
    """
    seen: list[Tensor] = []
    hook = net.output_layer.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    try:
        output = net(x, "mean")
    finally:
        hook.remove()
    features = seen[-1].double()  # a first pass looks at the model before
    count = features.shape[-1]
    means, scales = (_with_bias(net, vector) for vector in (net.mean, scale_of(net.rho)))
    features = torch.cat([features, features.new_ones(len(features), means.shape[1] - count)], 1)
    mean, variance = features @ means.T, features.square() @ scales.square().T
    # Of weights four deviations out. Sums of n numbers err by n/2 eps of this at worst, and as libraries make them,
    # in blocks, by less than √n: seen are 5 for 64 numbers of one sign, 9 for 8,192. More would show at the means.
    reach = features.abs() @ (means.abs() + 4 * scales).T
    room = max(4.0, count**0.5) * torch.finfo(output.dtype).eps * reach
    if bool(((output - mean).abs() > room).any()):
        raise UnsupportedModel(
            "the model's output is not that of its last layer, or far less precise than float32 should be: take "
            "draws in place of an exact risk"
        )
    return mean, variance, room


def _with_bias(net: StochasticNetwork, vector: Tensor) -> Tensor:
    """The last layer's part of a flat vector, float64 [classes, features], with the bias as one more column."""
    parts = net.parts(vector)
    weight, *bias = (parts[name].double() for name in net.output_slots)
    return torch.cat([weight, *(column.unsqueeze(1) for column in bias)], 1)
