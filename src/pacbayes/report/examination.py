"""What a report shows of the network itself, where the data are at hand: its mistakes, and the affine check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pacbayes.certificates import Certificate
from pacbayes.certificates.single import flat_weights
from pacbayes.networks import StochasticNetwork
from pacbayes.report.mistakes import Mistakes, find_mistakes
from pacbayes.runs import RunFolder
from pacbayes.runs.data import test_data
from pacbayes.training.affine import affine_check

_DRAWS = 20
_MOST_EXAMPLES = 1000
_REALISATIONS = 100
# Some seconds of one core for each of the two.
_MOST_OPERATIONS = 6e10


@dataclass(frozen=True)
class Examination:
    mistakes: Mistakes | None
    """None where no examples are wanted."""
    affine: dict[str, Any] | None
    """None where it would take long, or where all estimates are equal."""


def examine(
    run: RunFolder, certificate: Certificate, place: str | None = None, *, examples: bool = True
) -> Examination:
    """Pass the data through the network, on the CPU; nothing is downloaded.

    The mistakes are on the test part, or on the bound data where there is none.
    """
    split, net = run.data(place, download=False), run.network("cpu")
    cost = _operations(net, split.bound.x[:1])
    affine = None
    if cost * len(split.bound) * _REALISATIONS <= _MOST_OPERATIONS and net.hidden_size:
        affine = affine_check(net, split.bound, _REALISATIONS, 0, certificate.delta / certificate.priors)
        affine = affine if affine["sd"] > 0 else None
    if not examples:
        return Examination(None, affine)
    test = test_data(run.config_with_data(place), split.bound.shape, download=False)
    shown, source = (test, "test") if test is not None else (split.bound, "bound")
    count = min(len(shown), _MOST_EXAMPLES, max(1, int(_MOST_OPERATIONS / (cost * _DRAWS))))
    few = shown.take(torch.arange(count).numpy())
    draws, sampling = _DRAWS, "shared"
    if (single := run.single(certificate)) is not None:
        net, draws, sampling = net.at(flat_weights(net, single)), 1, "mean"
    mistakes = find_mistakes(net, few, source, draws=draws, sampling=sampling)
    return Examination(mistakes, affine)


@torch.no_grad()
def _operations(net: StochasticNetwork, x: Tensor) -> float:
    """Of one draw and one example: those of the layers, and some for each weight drawn."""
    from torch.utils.flop_counter import FlopCounterMode

    # The first pass of a network may try its model out: it does not count.
    net(x, "shared")
    with FlopCounterMode(display=False) as counter:
        net(x, "shared")
    return float(counter.get_total_flops() + 20 * len(net.mean) / _MOST_EXAMPLES)
