"""A prior learnt from its own part of the data: pre-training of the means, then training of the whole law."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from pacbayes.data import as_data
from pacbayes.errors import InvalidInput
from pacbayes.networks.shaping import OF_A_LOOP, OF_A_RUN, OF_A_STATE
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
    pretraining: Settings | Mapping[str, Any] | None = PRETRAINING,
    training: Settings | Mapping[str, Any] | None = PRIOR_TRAINING,
    callback: Callable[[Epoch], None] | None = None,
) -> None:
    """Train the network on the prior data, and make the result its prior.

    First the means by cross-entropy, then means and variances by Cond-Gauss with a small kappa (or ERM). A dict changes
    some of a stage's settings, :class:`~pacbayes.Settings` replaces them all, None leaves the stage out. ``data`` must
    be disjoint from the bound data: see :func:`pacbayes.split`.

    >>> net = pb.stochastic(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), prior_variance=0.001)
    >>> learn_prior(net, (torch.randn(40, 4), torch.arange(40) % 2), pretraining={"epochs": 3}, training=None)
    """
    check_stochastic(net)
    net.refuse_unnamed()
    data = as_data(data, classes=net.classes)
    stages = [_changed(PRETRAINING, pretraining), _changed(PRIOR_TRAINING, training)]
    for settings in stages:
        if settings is not None:
            fit(net, data, settings=settings, callback=callback)
    # Also where another loop has trained on them.
    net.trained_on.note(data)
    net.freeze_prior()


def _changed(default: Settings, given: Settings | Mapping[str, Any] | None) -> Settings | None:
    return Settings.of(**{**asdict(default), **given}) if isinstance(given, Mapping) else given


def freeze_prior(net: StochasticNetwork, *data: Any) -> None:
    """Make the network, as it was trained in a loop of one's own on these data, the prior.

    The data, each :class:`~pacbayes.Data` or a pair (x, y), are remembered, and :func:`~pacbayes.certify` refuses
    data that overlap with them. Name all that had a part in it: the training, the choice of the epoch, of a
    preprocessing. What is not named cannot be noticed.
    """
    if not data:
        raise InvalidInput("name the data that shaped this prior: freeze_prior(net, prior_data)")
    check_stochastic(net)
    net.trained_on = net.trained_on.without(OF_A_LOOP, OF_A_RUN, OF_A_STATE)
    for some in data:
        net.trained_on.note(as_data(some, classes=net.classes))
    net.freeze_prior()
