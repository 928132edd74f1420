"""The state of one training stage and one step of SGD on it. Everything a step changes is a tensor on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from pacbayes.data import Data
from pacbayes.networks.distributions import Normals
from pacbayes.networks.layers import Draw
from pacbayes.networks.stochastic import StochasticNetwork
from pacbayes.training.loss import batch_loss, conditional_risk, objective_of
from pacbayes.training.settings import Settings

LAMBDA_RANGE = (1e-3, 1 - 1e-3)

# What each step is watched for, in the order in which one makes the next non-finite.
WATCHED = ("the risk", "the objective", "the gradient of the means", "the gradient of rho")


class Stage:
    """A network in training: its weights, the optimiser's velocities, lambda, and the sums of the present epoch."""

    def __init__(self, net: StochasticNetwork, data: Data, settings: Settings):
        self.net, self.settings, self.m = net, settings, len(data)
        self.device = net.mean.device
        self.x, self.y = data.x.to(self.device), data.y.to(self.device)
        self.velocity_mean, self.velocity_rho = torch.zeros_like(net.mean), torch.zeros_like(net.rho)
        self.lam, self.velocity_lam = (torch.tensor(v, device=self.device) for v in (0.5, 0.0))
        self.rate = torch.zeros((), device=self.device)
        # Sums over the epoch, each batch by its size: the last one may be short.
        self.objective_sum, self.error_sum = torch.zeros(2, dtype=torch.float64, device=self.device)
        self.steps = torch.zeros((), dtype=torch.int64, device=self.device)
        self.finite_steps = torch.zeros(len(WATCHED), dtype=torch.int64, device=self.device)

    def state(self) -> dict[str, Tensor]:
        """Copies of all that outlives an epoch."""
        return {name: t.detach().clone() for name, t in self._lasting().items()}

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor]) -> None:
        for name, tensor in self._lasting().items():
            tensor.copy_(tensors[name])

    def _lasting(self) -> dict[str, Tensor]:
        return {
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
        for total in (self.objective_sum, self.error_sum, self.steps, self.finite_steps):
            total.zero_()

    def step(self, batch: Tensor, normals: Normals) -> None:
        """One gradient step for means and rhos on the examples with these indices."""
        objective, error = self.objective(batch, normals, self.lam)
        gradients = torch.autograd.grad(objective, (self.net.mean, self.net.rho), allow_unused=True)
        self.update(len(batch), error, objective, *gradients)

    def lambda_step(self, batch: Tensor, normals: Normals) -> None:
        """One gradient step for the lambda of ``lbd``; the weights stay."""
        lam = self.lam.clone().requires_grad_()
        objective, error = self.objective(batch, normals, lam)
        (by_lam,) = torch.autograd.grad(objective, lam)
        with torch.no_grad():
            self._descend(self.lam, self.velocity_lam, by_lam)
            self.lam.clamp_(*LAMBDA_RANGE)
            self._count(len(batch), error, objective, by_lam, None)

    def objective(self, batch: Tensor, normals: Normals, lam: Tensor) -> tuple[Tensor, Tensor]:
        """(objective, error) on the batch, as :func:`~pacbayes.training.loss.batch_objective` has it."""
        loss, error, kl = self.measure(batch, normals)
        return self.combine(loss, kl, lam), error

    def measure(self, batch: Tensor, normals: Normals) -> tuple[Tensor, Tensor, Tensor]:
        """(loss, error, KL): the network's part of the objective, matrix products in the settings' precision."""
        bf16 = self.settings.precision == "bf16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
            loss, error = batch_loss(self.net, self.x[batch], self.y[batch], self.settings, normals)
        return loss, error, self.net.kl(exact=False)

    def combine(self, loss: Tensor, kl: Tensor, lam: Tensor) -> Tensor:
        """The objective, from its parts."""
        return objective_of(loss, kl, self.settings, self.m, lam)

    @torch.no_grad()
    def update(
        self, size: int, error: Tensor, objective: Tensor, by_mean: Tensor | None, by_rho: Tensor | None
    ) -> None:
        """SGD with momentum, and the sums."""
        self._descend(self.net.mean, self.velocity_mean, by_mean)
        self._descend(self.net.rho, self.velocity_rho, by_rho)
        self._count(size, error, objective, by_mean, by_rho)

    @torch.no_grad()
    def risk(self, batch: Tensor, normals: Normals) -> Tensor:
        """The conditional risk of the weights as they are, without dropout."""
        draw = Draw(self.settings.sampling, normals)
        return conditional_risk(self.net, self.x[batch], self.y[batch], self.settings, draw)

    def _descend(self, parameter: Tensor, velocity: Tensor, gradient: Tensor | None) -> None:
        # None: the objective does not depend on the parameter (rho, in pre-training).
        if gradient is not None:
            velocity.mul_(self.settings.momentum).add_(gradient)
            parameter.sub_(self.rate * velocity)

    def _count(self, size: int, error: Tensor, objective: Tensor, *gradients: Tensor | None) -> None:
        self.objective_sum += objective.detach().double() * size
        self.error_sum += error.double() * size
        watched = (error if v is None else v for v in (error, objective, *gradients))
        finite = torch.stack([v.isfinite().all() for v in watched])
        self.finite_steps += finite & (self.finite_steps == self.steps)
        self.steps += 1
