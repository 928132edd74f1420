"""What bound data must be for a network: unseen by its prior, each example drawn once, and each answered by itself."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch

from pacbayes.data import Data
from pacbayes.data.trace import Trace
from pacbayes.errors import InvalidInput
from pacbayes.networks.memory import chunk_size
from pacbayes.networks.refusals import check_examples, refuse_what_mixes_examples
from pacbayes.networks.stochastic import StochasticNetwork

# Copies are pointed out where they are this share of the data, and so many are not copies.
_COPIES, _TWINS, _DISTINCT = 0.2, 0.05, 100


def refuse_what_voids_a_bound(net: StochasticNetwork, data: Data) -> None:
    if data.repeats:
        raise InvalidInput("some of these data were taken twice: m would count examples that were never drawn")
    if words := copies_among(data):
        warnings.warn(words, stacklevel=3)
    seen = [*net.prior_trained_on, *data.made_with]
    if data.overlaps(*seen):
        raise InvalidInput(
            "the prior was trained on some of these data: certify on the other part of pacbayes.split(), the bound data"
        )
    if words := copies_of(seen, data):
        warnings.warn(words, stacklevel=3)
    check_examples(net, data.x)
    # As many as a count takes at a time: some models mix examples up only where there are many.
    many = data.x[: chunk_size(net, data.x, per_example_weights=False)].to(net.mean.device)
    refuse_what_mixes_examples(net, many, min(8, len(many)))
    net.bounded = True


def copies_among(data: Data) -> str | None:
    """What to say where many of the examples are copies of each other."""
    # Few distinct inputs recur by themselves, if their features have few values; hundreds that all recur were copied.
    if data.copies <= _COPIES * len(data) or (len(data) - data.copies < _DISTINCT and not _has_many_values(data)):
        return None
    return (
        f"{data.copies} of the {len(data)} examples are copies of others. If somebody copied them, as oversampling "
        "does, m counts examples that were never drawn, the prior may have seen others of the same, and there is no "
        "valid certificate: take the copies out before the split"
    )


def copies_of(prior_data: Sequence[Data | Trace], data: Data) -> str | None:
    """What to say where many of the examples are copies of some that the prior has seen."""
    if (twins := data.copied_from(*prior_data)) <= _TWINS * len(data):
        return None
    return (
        f"{twins} of the {len(data)} examples have input and label of one that the prior has seen. If somebody copied "
        "them before the split, as oversampling does, there is no valid certificate: copy after it, and in the prior "
        "data alone"
    )


def _has_many_values(data: Data) -> bool:
    """Whether some feature takes as many values as a measured quantity does."""
    places = torch.linspace(0, len(data) - 1, min(500, len(data))).long()
    values = data.x[places].flatten(1).sort(0).values
    return bool(((values.diff(dim=0) != 0).sum(0) >= 12).any())
