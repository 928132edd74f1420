"""The state of one training stage, one step of SGD on it, and one epoch of steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pacbayes.data import Data
from pacbayes.networks.stochastic import StochasticNetwork
from pacbayes.seeds import derived_seed
from pacbayes.training.loss import batch_objective, conditional_risk
from pacbayes.training.settings import Settings

LAMBDA_RANGE = (1e-3, 1 - 1e-3)

_EVALUATION = 2**62  # in place of an epoch number

# What each step is watched for, in the order in which one makes the next non-finite.
WATCHED = ("the risk", "the objective", "the gradient of the means", "the gradient of rho")


@dataclass
class EpochSums:
    """Sums over an epoch, on the training device; nothing is read back before the epoch ends."""

    objective: Tensor
    error: Tensor
    finite_steps: Tensor  # [len(WATCHED)]: steps before the first that was not finite
    examples: int = 0
    steps: int = 0


class Stage:
    """A network in training: its weights, the optimiser's velocities, and lambda."""

    def __init__(self, net: StochasticNetwork, data: Data, settings: Settings):
        self.net, self.settings, self.m = net, settings, len(data)
        self.device = net.mean.device
        self.x, self.y = data.x.to(self.device), data.y.to(self.device)
        self.velocity = [torch.zeros_like(net.mean), torch.zeros_like(net.rho)]
        self.lam = torch.tensor(0.5, device=self.device) if settings.trains_lambda else None
        self.lam_velocity = torch.zeros((), device=self.device)
        self.generator = torch.Generator(self.device)

    def state(self) -> dict[str, Tensor]:
        """Copies of all that a step changes."""
        tensors = {
            "mean": self.net.mean,
            "rho": self.net.rho,
            "velocity_mean": self.velocity[0],
            "velocity_rho": self.velocity[1],
        }
        if self.lam is not None:
            tensors |= {"lam": self.lam, "lam_velocity": self.lam_velocity}
        return {name: t.detach().clone() for name, t in tensors.items()}

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor]) -> None:
        self.net.mean.copy_(tensors["mean"])
        self.net.rho.copy_(tensors["rho"])
        self.velocity[0].copy_(tensors["velocity_mean"])
        self.velocity[1].copy_(tensors["velocity_rho"])
        if self.lam is not None:
            self.lam.copy_(tensors["lam"])
            self.lam_velocity.copy_(tensors["lam_velocity"])

    def epoch(self, number: int, rate: float) -> EpochSums:
        """One pass over the data in random batches. All its randomness comes from (seed, epoch number)."""
        self.generator.manual_seed(derived_seed(self.settings.seed, number))
        order = torch.randperm(self.m, generator=self.generator, device=self.device)
        zero = torch.zeros((), dtype=torch.float64, device=self.device)
        sums = EpochSums(zero, zero.clone(), torch.zeros(len(WATCHED), dtype=torch.int64, device=self.device))
        # Odd epochs of a trained lambda leave the weights alone, even ones leave lambda alone.
        step = self._lambda_step if self.lam is not None and number % 2 else self._step
        for batch in order.split(self.settings.batch_size):
            step(self.x[batch], self.y[batch], rate, sums)
        return sums

    @torch.no_grad()
    def risk(self) -> float:
        """The empirical risk of the weights as they are: one conditional pass, without dropout.

        The same noise every time, so that epochs are compared by their weights and not by their luck.
        """
        self.generator.manual_seed(derived_seed(self.settings.seed, _EVALUATION))
        batches = torch.arange(self.m, device=self.device).split(self.settings.batch_size)
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for batch in batches:
            risk = conditional_risk(self.net, self.x[batch], self.y[batch], self.settings, self.generator)
            total += risk.double() * len(batch)
        return float(total) / self.m

    def _step(self, x: Tensor, y: Tensor, rate: float, sums: EpochSums) -> None:
        net = self.net
        objective, error = batch_objective(net, x, y, self.settings, self.m, self.lam, self.generator)
        gradients = torch.autograd.grad(objective, (net.mean, net.rho), allow_unused=True)
        with torch.no_grad():
            for parameter, velocity, gradient in zip((net.mean, net.rho), self.velocity, gradients, strict=True):
                if gradient is not None:
                    velocity.mul_(self.settings.momentum).add_(gradient)
                    parameter.sub_(velocity, alpha=rate)
            self._count(sums, objective, error, len(y), gradients)

    def _lambda_step(self, x: Tensor, y: Tensor, rate: float, sums: EpochSums) -> None:
        assert self.lam is not None
        lam = self.lam.clone().requires_grad_()
        objective, error = batch_objective(self.net, x, y, self.settings, self.m, lam, self.generator)
        (gradient,) = torch.autograd.grad(objective, lam)
        with torch.no_grad():
            self.lam_velocity.mul_(self.settings.momentum).add_(gradient)
            self.lam.sub_(self.lam_velocity, alpha=rate).clamp_(*LAMBDA_RANGE)
            self._count(sums, objective, error, len(y), (gradient, None))

    def _count(
        self,
        sums: EpochSums,
        objective: Tensor,
        error: Tensor,
        size: int,
        gradients: tuple[Tensor | None, ...],
    ) -> None:
        # Batches count by their size: the last one may be short.
        sums.objective += objective.detach().double() * size
        sums.error += error.double() * size
        sums.examples += size
        # A gradient is None where the objective does not depend on the parameter.
        watched = (error if v is None else v for v in (error, objective, *gradients))
        finite = torch.stack([v.isfinite().all() for v in watched])
        sums.finite_steps += finite & (sums.finite_steps == sums.steps)
        sums.steps += 1
