"""What bound data must be for a network: unseen by its prior, each example drawn once, and each answered by itself."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch

from pacbayes.data import Data
from pacbayes.data.dataset import spread_rows
from pacbayes.data.trace import Trace, trace_of
from pacbayes.errors import InvalidInput
from pacbayes.networks.memory import chunk_size
from pacbayes.networks.refusals import check_examples, refuse_what_mixes_examples
from pacbayes.networks.shaping import Seen
from pacbayes.networks.stochastic import StochasticNetwork

# Copies are pointed out where they are this share of the data, or of a class, and at least so many of it.
_COPIES, _TWINS, _FEW = 0.2, 0.05, 10
# How many examples, and features at a time, say how often values recur; and what is as good as never.
_SAMPLE, _COLUMNS, _NEVER = 500, 4096, 1e-12


def refuse_what_voids_a_bound(net: StochasticNetwork, data: Data) -> None:
    if data.repeats:
        raise InvalidInput("some of these data were taken twice: m would count examples that were never drawn")
    seen = Seen([*net.prior_trained_on, *data.made_with])
    if seen.unnamed:
        raise InvalidInput(
            "the prior has learnt from data that nobody has named: end its training in pacbayes.freeze_prior(net, "
            "prior_data), which names them. A network of load_single(), and features of one, have seen all the data of "
            "its run"
        )
    if data.overlaps(*seen):
        raise InvalidInput(
            "the prior was trained on some of these data: certify on the other part of pacbayes.split(), the bound data"
        )
    if data.overlaps(*net.seen_before_catoni.values()):
        raise InvalidInput(
            "a bound or an error on some of these data was computed before C was fixed, for this network or a copy: "
            "a C chosen by it is not paid for. Begin again with a network that stochastic() has made anew, and choose "
            "C by prior data held back"
        )
    for words in doubts(seen, data):
        warnings.warn(words, stacklevel=3)
    check_examples(net, data.x)
    # As many as a count takes at a time: some models mix examples up only where there are many.
    many = data.x[: chunk_size(net, data.x, per_example_weights=False)].to(net.mean.device)
    refuse_what_mixes_examples(net, many, min(8, len(many)), seeds=(2,))
    net.looks.note(data)


def doubts(prior_data: Sequence[Data | Trace], data: Data) -> list[str]:
    """What speaks against the data being independent draws that a prior with these data has not seen."""
    return [words for words in (copies_among(data), copies_of(prior_data, data)) if words]


def copies_among(data: Data) -> str | None:
    """What to say where many of the examples are copies of each other."""
    if not _too_many(data.copied, data, len(data), _COPIES):
        return None
    return (
        f"{data.copied.sum()} of the {len(data)} examples are copies of others. If somebody copied them, as "
        "oversampling does, m counts examples that were never drawn, the prior may have seen others of the same, and "
        "there is no valid certificate: take the copies out before the split"
    )


def copies_of(prior_data: Sequence[Data | Trace], data: Data) -> str | None:
    """What to say where many of the examples are copies of some that the prior has seen."""
    twins = data.copied_from(*prior_data)
    if not _too_many(twins, data, sum(len(trace_of(some).labels) for some in prior_data), _TWINS):
        return None
    return (
        f"{twins.sum()} of the {len(data)} examples have input and label of one that the prior has seen. If "
        "somebody copied them before the split, as oversampling does, there is no valid certificate: copy after it, "
        "and in the prior data alone"
    )


def _too_many(copied: np.ndarray, data: Data, others: int, share: float) -> bool:
    """Whether so many of the data, or of a class, are copies of others, and chance does not explain a third of them.

    Oversampling copies rare classes, which are few of all examples and may make most of the errors.
    """
    labels = data.y.numpy(force=True)
    sizes = np.bincount(labels, minlength=data.classes)
    copies = np.bincount(labels[copied], minlength=data.classes)
    many = copied.sum() > share * len(data) or bool(((copies > share * sizes) & (copies >= _FEW)).any())
    return many and copied.sum() > 3 * len(data) * min(1.0, others * _alike_by_chance(data))


def _alike_by_chance(data: Data) -> float:
    """The chance that two examples have the same value of every feature, if features were independent."""
    places = spread_rows(len(data), _SAMPLE)
    inputs = data.x[places].flatten(1).cpu()
    rows, pairs, chance = torch.arange(len(inputs))[:, None], len(inputs) * (len(inputs) - 1) / 2, 1.0
    for some in inputs.split(_COLUMNS, dim=1):
        values = some.sort(0).values
        starts = torch.cat([torch.ones_like(values[:1], dtype=torch.bool), values.diff(dim=0) != 0])
        # A run of equal values has as many pairs as rows before each row in it.
        before = rows - torch.where(starts, rows, 0).cummax(0).values
        chance *= float((before.sum(0).double() / pairs).prod())
        if chance < _NEVER:
            break
    return chance
