"""The state of one training stage and one step of SGD on it. Everything a step changes is a tensor on the device.

A step of Algorithm 1 is, in plain words (and in ``objective.py``, for loops of one's own),

    objective(loss(mean, s(rho)), KL(mean, rho)).backward(), then SGD on mean and rho.

Here it is cut at the chain rule's joints, so that a GPU goes over the weights once: ``measure`` gives the loss, and by
autograd its gradients in the means and in ``scale = s(rho)``; ``combine`` the objective, and its slopes in the loss and
the KL; ``update`` adds the two parts up, with the KL's own gradient and the slope of ``s``, takes the step, and keeps
``scale`` and ``kl`` for the next one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pacbayes.data import Data
from pacbayes.data.streamed import on_device
from pacbayes.networks.distributions import scale_of, slope_of
from pacbayes.networks.layers import Draw
from pacbayes.networks.normals import Normals
from pacbayes.networks.stochastic import StochasticNetwork
from pacbayes.processes import Share
from pacbayes.training.loss import batch_loss, conditional_risk, divergence_of, objective_of
from pacbayes.training.settings import Settings

# Adam's memory of squared gradients, and what keeps its quotient finite.
_SQUARES_DECAY, _EPSILON = 0.999, 1e-8

LAMBDA_RANGE = (1e-3, 1 - 1e-3)

# What each step is watched for. A gradient that is not finite shows in the next step, or in the weights at the end.
WATCHED = ("the risk", "the objective")


class Stage:
    """A network in training: its weights, the optimiser's velocities, lambda, and the sums of the present epoch."""

    def __init__(self, net: StochasticNetwork, data: Data, settings: Settings):
        self.net, self.settings, self.m = net, settings, len(data)
        self.device = net.mean.device
        self.x, self.y = on_device(data.x, self.device), data.y.to(self.device)
        self.resident = isinstance(self.x, Tensor)
        # Rows that this process reads are named here: it need not wait for a device to learn which.
        self.index_device = self.device if self.resident else torch.device("cpu")
        self.velocity_mean, self.velocity_rho = torch.zeros_like(net.mean), torch.zeros_like(net.rho)
        if settings.optimiser == "adam":
            self.squares_mean, self.squares_rho = torch.zeros_like(net.mean), torch.zeros_like(net.rho)
            self.adam_steps = torch.zeros((), device=self.device)
        # The posterior's deviations and divergence, kept up to date by what changes the weights.
        self.scale = torch.zeros_like(net.rho.detach()).requires_grad_()
        self.kl = net.mean.detach().new_zeros(())
        self.lam, self.velocity_lam = (torch.tensor(v, device=self.device) for v in (0.5, 0.0))
        self.rate = torch.zeros((), device=self.device)
        # Sums over the epoch, each batch by its size: the last one may be short.
        self.objective_sum, self.error_sum = torch.zeros(2, dtype=torch.float64, device=self.device)
        self.steps = torch.zeros((), dtype=torch.int64, device=self.device)
        self.finite_steps = torch.zeros(len(WATCHED), dtype=torch.int64, device=self.device)
        self._follow()

    def state(self) -> dict[str, Tensor]:
        """Copies of all that outlives an epoch."""
        return {name: t.detach().clone() for name, t in self.lasting().items()}

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor]) -> None:
        for name, tensor in self.lasting().items():
            tensor.copy_(tensors[name])

    def lasting(self) -> dict[str, Tensor]:
        adam = ("squares_mean", "squares_rho", "adam_steps") if self.settings.optimiser == "adam" else ()
        return {
            **{name: getattr(self, name) for name in adam},
            "mean": self.net.mean,
            "rho": self.net.rho,
            "velocity_mean": self.velocity_mean,
            "velocity_rho": self.velocity_rho,
            "lam": self.lam,
            "velocity_lam": self.velocity_lam,
        }

    @torch.no_grad()
    def begin_epoch(self, rate: float) -> None:
        self.rate.fill_(rate)
        self._follow()
        for total in (self.objective_sum, self.error_sum, self.steps, self.finite_steps):
            total.zero_()

    def step(self, batch: Tensor, normals: Normals, share: Share | None = None) -> None:
        """One gradient step for means and rhos on the examples with these indices, which may be a share of a batch.

        The objective is not linear in the loss, so it is taken at the loss of the whole batch.
        """
        loss, error = self.measure(batch, normals)
        by_weights: Sequence[Tensor | None]
        by_weights = torch.autograd.grad(loss, (self.net.mean, self.scale), allow_unused=True)
        size = len(batch)
        if share is not None:
            size = share.total
            loss, error, by_weights = share.mean(loss, error, by_weights)
        # By the chain rule: the divergence's own gradient is taken where the weights are updated, in the same sweep.
        parts = (loss.detach().requires_grad_(), self.kl.detach().requires_grad_())
        objective = self.combine(*parts, self.lam)
        by_loss, by_kl = torch.autograd.grad(objective, parts, allow_unused=True)
        self.update(size, error, objective, by_loss, by_kl, *by_weights)

    def lambda_step(self, batch: Tensor, normals: Normals, share: Share | None = None) -> None:
        """One gradient step for the lambda of ``lbd``; the weights stay."""
        lam = self.lam.clone().requires_grad_()
        with torch.no_grad():
            loss, error = self.measure(batch, normals)
        size = len(batch)
        if share is not None:
            size = share.total
            loss, error, _ = share.mean(loss, error)
        objective = self.combine(loss, self.kl, lam)
        (by_lam,) = torch.autograd.grad(objective, lam)
        with torch.no_grad():
            _sgd(self.lam, self.velocity_lam, by_lam, self.settings.momentum, self.rate)
            self.lam.clamp_(*LAMBDA_RANGE)
            self._count(size, error, objective)

    def measure(self, batch: Tensor, normals: Normals) -> tuple[Tensor, Tensor]:
        """(loss, error): the network's part of the objective, matrix products in the settings' precision."""
        bf16 = self.settings.precision == "bf16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
            return batch_loss(self.net, self.x[batch], self.y[batch], self.settings, normals, self.scale)

    def divergence_at(self, mean: Tensor, rho: Tensor, exact: bool = False) -> Tensor:
        """The settings' divergence at these means and rhos; ``exact`` as in :meth:`StochasticNetwork.kl`."""
        return divergence_of(self.net, mean, rho, self.settings, exact)

    def combine(self, loss: Tensor, kl: Tensor, lam: Tensor) -> Tensor:
        """The objective, from its parts."""
        return objective_of(loss, kl, self.settings, self.m, lam)

    @torch.no_grad()
    def update(
        self,
        size: int,
        error: Tensor,
        objective: Tensor,
        by_loss: Tensor,
        by_kl: Tensor | None,
        by_mean: Tensor | None,
        by_scale: Tensor | None,
    ) -> None:
        """A step of the optimiser, and the sums. None: the objective does not depend on that."""
        net = self.net
        if self.settings.optimiser == "adam":
            self.adam_steps += 1
        kl_gradients = (
            (None, None) if by_kl is None else torch.func.grad(self.divergence_at, argnums=(0, 1))(net.mean, net.rho)
        )
        by_rho = None if by_scale is None else by_scale * slope_of(net.rho)
        for which, *gradients in zip(("mean", "rho"), (by_mean, by_rho), kl_gradients, strict=True):
            pairs = zip((by_loss, by_kl), gradients, strict=True)
            terms = [a * b for a, b in pairs if a is not None and b is not None]
            if terms:
                self._descend(which, sum(terms[1:], terms[0]))
        if by_scale is not None or by_kl is not None:
            self._follow()
        self._count(size, error, objective)

    @torch.no_grad()
    def _follow(self) -> None:
        """Deviations and divergence for the next step, while the weights are still in a GPU's cache."""
        self.scale.copy_(scale_of(self.net.rho))
        if self.settings.penalised:
            self.kl.copy_(self.divergence_at(self.net.mean, self.net.rho))  # its gradient alone matters in a step

    def _descend(self, which: str, gradient: Tensor) -> None:
        weight, velocity, momentum = (
            getattr(self.net, which),
            getattr(self, f"velocity_{which}"),
            self.settings.momentum,
        )
        if self.settings.optimiser == "sgd":
            _sgd(weight, velocity, gradient, momentum, self.rate)
            return
        squares = getattr(self, f"squares_{which}")
        velocity.lerp_(gradient, 1 - momentum)
        squares.lerp_(gradient.square(), 1 - _SQUARES_DECAY)
        # Both start at 0, and are divided by the weight that the gradients so far have in them.
        size = (squares / (1 - _SQUARES_DECAY**self.adam_steps)).sqrt() + _EPSILON
        weight.sub_(self.rate / (1 - momentum**self.adam_steps) * velocity / size)

    @torch.no_grad()
    def risk(self, batch: Tensor, normals: Normals) -> Tensor:
        """The conditional risk of the weights as they are, without dropout."""
        draw = Draw(self.settings.sampling, normals)
        return conditional_risk(self.net, self.x[batch], self.y[batch], self.settings, draw)

    def _count(self, size: int, error: Tensor, objective: Tensor) -> None:
        self.objective_sum += objective.detach().double() * size
        self.error_sum += error.double() * size
        finite = torch.stack([v.isfinite() for v in (error, objective)])
        self.finite_steps += finite & (self.finite_steps == self.steps)
        self.steps += 1


def _sgd(weight: Tensor, velocity: Tensor, gradient: Tensor, momentum: float, rate: Tensor) -> None:
    velocity.mul_(momentum).add_(gradient)
    weight.sub_(rate * velocity)
