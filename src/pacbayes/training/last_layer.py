"""Training where the last layer alone is drawn: what it gets from the fixed body is computed once."""

from __future__ import annotations

from collections.abc import Callable, Generator

import torch

from pacbayes.data import Data
from pacbayes.networks.features import body_is_fixed, features
from pacbayes.networks.stochastic import StochasticNetwork
from pacbayes.training.checkpoints import Checkpoint
from pacbayes.training.fit import Epoch, History, check_fit, fitting, trained_from
from pacbayes.training.settings import Settings


def fitting_last(
    net: StochasticNetwork,
    data: Data,
    settings: Settings,
    callback: Callable[[Epoch], None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> Generator[None, None, History]:
    """:func:`~pacbayes.training.fit.fitting`, faster where it can be: for a fixed body, and inputs in memory."""
    if not body_is_fixed(net, data):
        return (yield from fitting(net, data, settings, callback, checkpoint))
    check_fit(net, data, settings)
    inputs, head = features(net, data)
    assert isinstance(head, StochasticNetwork)
    net.objective = settings.name
    net.trained_on.note(data)
    try:
        # By what was given: computed on another device, the features differ in their last digits.
        of = None if checkpoint is None else trained_from(net, data)
        return (yield from fitting(head, inputs, settings, callback, checkpoint, of))
    finally:
        with torch.no_grad():
            net.mean.copy_(head.mean)
            net.rho.copy_(head.rho)
