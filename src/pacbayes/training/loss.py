"""The objective on one batch: the body of Algorithm 1, for the Cond-Gauss (G) and the standard (S) method."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor

from pacbayes.bounds.misclassification import misclassification_probability
from pacbayes.bounds.pac_bayes import OBJECTIVES, lbd, penalty
from pacbayes.networks.distributions import Normals
from pacbayes.networks.layers import Draw
from pacbayes.networks.stochastic import StochasticNetwork
from pacbayes.training.settings import Settings


def batch_objective(
    net: StochasticNetwork,
    x: Tensor,
    y: Tensor,
    settings: Settings,
    m: int,
    normals: Normals,
    lam: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(objective, error): what is minimised on this batch, and an unbiased estimate of the empirical 0-1 risk.

    ``m`` is the number of examples the penalty is for, not the batch's. ``lam`` is the trained lambda of ``lbd``.
    """
    if settings.method == "CE":
        outputs = net.drawn(x, Draw("mean", normals, settings.dropout))
        return F.cross_entropy(outputs, y), _error(outputs, y)
    draw = Draw(settings.sampling, normals, settings.dropout)
    if settings.method == "S":
        outputs = net.drawn(x, draw)
        risk, error = bounded_cross_entropy(outputs, y, settings.p_min), _error(outputs, y)
    else:
        risk = conditional_risk(net, x, y, settings, draw)
        error = risk.detach()
    if settings.objective == "ERM":
        return risk, error
    # In the weights' own precision: only the gradient matters here. Bounds that are reported use the exact one.
    pen = penalty(net.kl(exact=False), m, settings.delta, settings.kappa)
    if settings.objective == "lbd":
        return lbd(risk, pen, lam), error
    return OBJECTIVES[settings.objective](risk, pen), error


def conditional_risk(net: StochasticNetwork, x: Tensor, y: Tensor, settings: Settings, draw: Draw) -> Tensor:
    """The mean misclassification probability given a hidden draw: unbiased for the 0-1 risk (section 3.2)."""
    mean, variance = net.conditional_moments(x, draw)
    estimator = None if settings.estimator == "auto" else settings.estimator
    return misclassification_probability(
        mean, variance, y, estimator, samples=settings.samples, normals=draw.normals
    ).mean()


def bounded_cross_entropy(outputs: Tensor, y: Tensor, p_min: float) -> Tensor:
    """The mean of ``-log max(softmax_y, p_min) / log(1/p_min)``, in [0, 1] (Pérez-Ortiz et al. 2021)."""
    log_probability = F.log_softmax(outputs, -1).clamp_min(math.log(p_min))
    return F.nll_loss(log_probability, y) / math.log(1 / p_min)


def _error(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs.detach().argmax(-1) != y).to(outputs.dtype).mean()
