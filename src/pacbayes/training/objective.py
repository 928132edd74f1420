"""``objective``: the loss of Algorithm 1 on a batch, for a training loop of one's own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pacbayes.checks import check_one_of, check_type, plain
from pacbayes.data.dataset import refuse_gradient
from pacbayes.errors import InvalidInput
from pacbayes.networks.normals import normals_like
from pacbayes.networks.shaping import OF_A_LOOP
from pacbayes.networks.stochastic import StochasticNetwork, check_stochastic
from pacbayes.training.loss import batch_loss, divergence_of, objective_of
from pacbayes.training.settings import Settings

OPTIONS = (
    "objective", "method", "kappa", "weighted", "divergence", "delta", "sampling", "dropout", "p_min", "estimator",
    "samples", "nodes",
)  # fmt: skip
"""The fields of :class:`~pacbayes.Settings` that say what is minimised; the others belong to the loop."""


def objective(
    net: StochasticNetwork,
    batch: tuple[Tensor, Tensor],
    *,
    m: int,
    generator: torch.Generator | None = None,
    **options: Any,
) -> Tensor:
    """What :func:`~pacbayes.fit` minimises on one batch: a differentiable scalar, and nothing else is imposed.

    ``batch`` is a pair (x, y): inputs [b, ...] and labels, int64 [b], on the network's device. ``m`` is the number of
    bound data, all of them, not the batch's. ``options`` are fields of :class:`~pacbayes.Settings`:
    objective, method, kappa, weighted, divergence, delta, sampling, dropout and those of the estimator; lambda is
    always the best one. ``net.parameters()`` are what to train. Each call draws new weights, from ``generator`` if
    there is one.

    Trained this way on the bound data, the network is certified as after :func:`~pacbayes.fit`: the bound holds for
    any posterior, however it was found. But a loop that shapes the *prior* must end in :func:`~pacbayes.freeze_prior`,
    which is told its data: no record is kept of the batches.

    >>> from pacbayes.networks import build, stochastic
    >>> net = stochastic(build("mlp", (4,), 2))
    >>> loss = objective(net, (torch.randn(8, 4), torch.arange(8) % 2), m=64)
    >>> loss.backward()
    """
    check_stochastic(net)
    for name in options:
        check_one_of("option", name, OPTIONS)
    settings = Settings.of(lam="best", **options)
    check_type("m", m := plain(m), int)
    x, y = _checked(batch, net.classes)
    net.objective = settings.name
    if torch.is_grad_enabled():
        net.trained_on.note(OF_A_LOOP)
    normals = normals_like(net.mean, generator)
    loss, _ = batch_loss(net, x, y, settings, normals)
    # In the weights' own precision: only the gradient matters here. Certificates use the exact one.
    return objective_of(loss, divergence_of(net, net.mean, net.rho, settings), settings, m)


def _checked(batch: Any, classes: int) -> tuple[Tensor, Tensor]:
    if not isinstance(batch, tuple | list) or len(batch) != 2 or not all(isinstance(part, Tensor) for part in batch):
        raise InvalidInput(f"a batch is a pair of tensors (x, y), and this is a {type(batch).__name__}")
    x, y = batch
    if x.ndim < 2 or y.dtype != torch.int64 or y.shape != x.shape[:1] or not len(y):
        raise InvalidInput(
            f"a batch is x [b, ...] and y, int64 [b], and this one has {x.dtype} {list(x.shape)} and "
            f"{y.dtype} {list(y.shape)}"
        )
    refuse_gradient(x)
    # On a GPU a look at the labels would wait for it, and there the loss itself stops at a wrong one.
    if y.device.type == "cpu" and len(wrong := y[(y < 0) | (y >= classes)]):
        raise InvalidInput(f"labels must lie from 0 to {classes - 1}, and one is {int(wrong[0])}")
    return x, y
