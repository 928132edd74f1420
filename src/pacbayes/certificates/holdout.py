"""The baseline: a hold-out bound of the prior, without any PAC-Bayes."""

from __future__ import annotations

from typing import Any

from pacbayes.bounds.confidence import clopper_pearson_upper
from pacbayes.bounds.deltas import check_delta
from pacbayes.certificates.bound_data import refuse_what_voids_a_bound
from pacbayes.certificates.monte_carlo import independent_errors, network_errors
from pacbayes.data import as_data
from pacbayes.networks.stochastic import StochasticNetwork, check_stochastic
from pacbayes.seeds import chosen_seed


def holdout_bound(
    net: StochasticNetwork, data: Any, *, delta: float = 0.035, seed: int | None = None, drawn: bool = True
) -> float:
    """The ordinary hold-out bound of the prior on the bound data, which it never saw: Clopper-Pearson.

    Each example is classified once, with a draw of its own, by the network before posterior training; or, with
    ``drawn=False``, by the network of its means, which is not random at all and often errs less.
    """
    check_stochastic(net)
    delta = check_delta(delta)
    data = as_data(data, classes=net.classes)
    seed = chosen_seed(seed)
    refuse_what_voids_a_bound(net, data)
    prior = net.prior_network()
    errors = independent_errors(prior, data, len(data), seed) if drawn else network_errors(prior, data)
    return clopper_pearson_upper(errors, len(data), delta)
