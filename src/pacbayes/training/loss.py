"""The objective on one batch: the body of Algorithm 1, for the Cond-Gauss (G) and the standard (S) method."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor

from pacbayes.bounds.misclassification import misclassification_probability
from pacbayes.bounds.pac_bayes import OBJECTIVES, lbd, penalty
from pacbayes.networks import divergence
from pacbayes.networks.layers import Draw
from pacbayes.networks.normals import Normals, of_examples
from pacbayes.networks.stochastic import StochasticNetwork
from pacbayes.training.settings import Settings


def batch_loss(
    net: StochasticNetwork,
    x: Tensor,
    y: Tensor,
    settings: Settings,
    normals: Normals,
    scales: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(loss, error): the differentiable risk that the objective is made of, and the estimated 0-1 risk.

    With ``scales``, the weights' deviations, it depends on these in place of the rhos. Who calls it notes the data.
    """
    if settings.method == "CE":
        outputs = net.drawn(x, Draw("mean", normals, settings.dropout, scales=scales), noted=False)
        return F.cross_entropy(outputs, y), _error(outputs, y)
    draw = Draw(settings.sampling, normals, settings.dropout, scales=scales)
    if settings.method == "S":
        outputs = net.drawn(x, draw, noted=False)
        return bounded_cross_entropy(outputs, y, settings.p_min), _error(outputs, y)
    risk = conditional_risk(net, x, y, settings, draw)
    return risk, risk.detach()


def divergence_of(net: StochasticNetwork, mean: Tensor, rho: Tensor, settings: Settings, exact: bool = False) -> Tensor:
    """KL(Q‖P), or the profile KL, of the posterior with these means and rhos."""
    return (divergence.profile_kl if settings.divergence == "profile" else divergence.kl)(net, mean, rho, exact)


def objective_of(loss: Tensor, kl: Tensor, settings: Settings, m: int, lam: Tensor | None = None) -> Tensor:
    """The objective at this loss and divergence; pre-training and ERM have no penalty."""
    if not settings.penalised:
        return loss
    whole = settings.weighted == "penalty"
    pen = penalty(kl, m, settings.delta, settings.kappa) if whole else penalty(settings.kappa * kl, m, settings.delta)
    if settings.objective == "lbd":
        return lbd(loss, pen, lam if settings.trains_lambda else None)
    return OBJECTIVES[settings.objective](loss, pen)


def conditional_risk(net: StochasticNetwork, x: Tensor, y: Tensor, settings: Settings, draw: Draw) -> Tensor:
    """The mean misclassification probability given a hidden draw: unbiased for the 0-1 risk (section 3.2)."""
    mean, variance = net.conditional_moments(x, draw, noted=False)
    estimator = None if settings.estimator == "auto" else settings.estimator
    normals = of_examples(draw.normals, axis=1)
    return misclassification_probability(
        mean, variance, y, estimator, samples=settings.samples, normals=normals, nodes=settings.nodes
    ).mean()


def bounded_cross_entropy(outputs: Tensor, y: Tensor, p_min: float) -> Tensor:
    """The mean of ``-log max(softmax_y, p_min) / log(1/p_min)``, in [0, 1] (Pérez-Ortiz et al. 2021)."""
    log_probability = F.log_softmax(outputs, -1).clamp_min(math.log(p_min))
    return F.nll_loss(log_probability, y) / math.log(1 / p_min)


def _error(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs.detach().argmax(-1) != y).to(outputs.dtype).mean()
