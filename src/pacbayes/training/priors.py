"""A prior learnt from its own part of the data: pre-training of the means, then training of the whole law."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pacbayes.data import as_data
from pacbayes.errors import InvalidInput
from pacbayes.networks.shaping import OF_A_LOOP, OF_A_RUN
from pacbayes.networks.stochastic import StochasticNetwork, check_stochastic
from pacbayes.training.fit import Epoch, fit
from pacbayes.training.settings import Settings

PRETRAINING = Settings(method="CE", epochs=30, rate=0.02, batch_size=32, keep="last")
# A small kappa, as in the paper: the prior's divergence from its random start costs nothing in the end.
PRIOR_TRAINING = Settings(kappa=0.01, epochs=15, rate=0.005, batch_size=32, keep="last")


def learn_prior(
    net: StochasticNetwork,
    data: Any,
    *,
    pretraining: Settings | None = PRETRAINING,
    training: Settings | None = PRIOR_TRAINING,
    callback: Callable[[Epoch], None] | None = None,
) -> None:
    """Train the network on the prior data, and make the result its prior.

    First the means by cross-entropy, then means and variances by Cond-Gauss with a small kappa (or ERM); None leaves
    a stage out. ``data`` must be disjoint from the bound data: see :func:`pacbayes.split`.
    """
    check_stochastic(net)
    net.refuse_unnamed()
    data = as_data(data, classes=net.classes)
    for settings in (pretraining, training):
        if settings is not None:
            fit(net, data, settings=settings, callback=callback)
    # Also where another loop has trained on them.
    net.trained_on.note(data)
    net.freeze_prior()


def freeze_prior(net: StochasticNetwork, *data: Any) -> None:
    """Make the network, as it was trained in a loop of one's own on these data, the prior.

    The data, each :class:`~pacbayes.Data` or a pair (x, y), are remembered, and :func:`~pacbayes.certify` refuses
    data that overlap with them. Name all that had a part in it: the training, the choice of the epoch, of a
    preprocessing. What is not named cannot be noticed.
    """
    if not data:
        raise InvalidInput("name the data that shaped this prior: freeze_prior(net, prior_data)")
    check_stochastic(net)
    net.trained_on = net.trained_on.without(OF_A_LOOP, OF_A_RUN)
    for some in data:
        net.trained_on.note(as_data(some, classes=net.classes))
    net.freeze_prior()
