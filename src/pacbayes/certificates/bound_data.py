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
from pacbayes.networks.shaping import Seen
from pacbayes.networks.stochastic import StochasticNetwork

# Copies are pointed out where they are this share of the data, and an example has fewer than so many others that are
# alike by chance, judged by so many.
_COPIES, _TWINS, _BY_CHANCE, _SAMPLE = 0.2, 0.05, 0.01, 500


def refuse_what_voids_a_bound(net: StochasticNetwork, data: Data) -> None:
    if data.repeats:
        raise InvalidInput("some of these data were taken twice: m would count examples that were never drawn")
    if words := copies_among(data):
        warnings.warn(words, stacklevel=3)
    seen = Seen([*net.prior_trained_on, *data.made_with])
    if seen.unnamed:
        raise InvalidInput(
            "the prior has learnt from data that nobody has named: end its training in pacbayes.freeze_prior(net, "
            "prior_data). A network of load_single() has seen all the data of its run"
        )
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
    if data.copies <= _COPIES * len(data) or _recur_by_themselves(data):
        return None
    return (
        f"{data.copies} of the {len(data)} examples are copies of others. If somebody copied them, as oversampling "
        "does, m counts examples that were never drawn, the prior may have seen others of the same, and there is no "
        "valid certificate: take the copies out before the split"
    )


def copies_of(prior_data: Sequence[Data | Trace], data: Data) -> str | None:
    """What to say where many of the examples are copies of some that the prior has seen."""
    if (twins := data.copied_from(*prior_data)) <= _TWINS * len(data) or _recur_by_themselves(data):
        return None
    return (
        f"{twins} of the {len(data)} examples have input and label of one that the prior has seen. If somebody copied "
        "them before the split, as oversampling does, there is no valid certificate: copy after it, and in the prior "
        "data alone"
    )


def _recur_by_themselves(data: Data) -> bool:
    """Whether inputs of so few values are often alike without having been copied.

    By the chance that two examples have the same value of every feature, if the features were independent.
    """
    places = torch.linspace(0, len(data) - 1, min(_SAMPLE, len(data))).long()
    values = data.x[places].flatten(1).sort(0).values
    n, features = values.shape
    # The pairs of rows that are alike in a feature: runs of equal values, each with the rows before it in its run.
    starts = torch.cat([torch.ones(1, features, dtype=torch.bool), values.diff(dim=0) != 0])
    rows = torch.arange(n)[:, None]
    before = rows - torch.where(starts, rows, 0).cummax(0).values
    alike = before.sum(0).double() / (n * (n - 1) / 2)
    return bool(len(data) * alike.log().sum().exp() > _BY_CHANCE)
