"""Running a stage's steps: plainly, one after the other, wherever the network is."""

from __future__ import annotations

from functools import partial

import torch

from pacbayes.seeds import derived_seed
from pacbayes.training.stage import Stage

EVALUATION = 2**62  # in place of an epoch number


class PlainEngine:
    """Steps as PyTorch runs them. All the randomness of an epoch comes from (seed, epoch number)."""

    def __init__(self, stage: Stage):
        self.stage = stage
        self.generator = torch.Generator(stage.device)
        self.normals = partial(torch.randn, generator=self.generator, dtype=stage.net.mean.dtype, device=stage.device)

    def epoch(self, number: int, rate: float) -> None:
        """One pass over the data in random batches."""
        stage = self.stage
        self.generator.manual_seed(derived_seed(stage.settings.seed, number))
        stage.begin_epoch(rate)
        # With a trained lambda, odd epochs leave the weights alone and even ones lambda.
        step = stage.lambda_step if stage.settings.trains_lambda and number % 2 else stage.step
        order = torch.randperm(stage.m, generator=self.generator, device=stage.device)
        for batch in order.split(stage.settings.batch_size):
            step(batch, self.normals)

    def risk(self) -> float:
        """The empirical risk of the weights as they are: one pass over the data.

        The same noise every time, so that epochs are compared by their weights and not by their luck.
        """
        stage = self.stage
        self.generator.manual_seed(derived_seed(stage.settings.seed, EVALUATION))
        batches = torch.arange(stage.m, device=stage.device).split(stage.settings.batch_size)
        total = sum((stage.risk(batch, self.normals).double() * len(batch) for batch in batches), torch.zeros(()))
        return float(total) / stage.m
