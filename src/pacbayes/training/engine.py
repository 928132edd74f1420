"""Engines run a stage's steps: plainly, one after the other, or on a GPU as captured graphs."""

from __future__ import annotations

import warnings
from typing import Protocol

import torch
from torch import Tensor

from pacbayes import processes
from pacbayes.devices import has_triton
from pacbayes.networks.normals import Rows, normals_like
from pacbayes.seeds import derived_seed
from pacbayes.training.stage import Stage

EVALUATION = 2**62  # in place of an epoch number


class Engine(Protocol):
    """What training asks of an engine. All the randomness of an epoch comes from (seed, epoch number)."""

    def epoch(self, number: int, rate: float) -> None:
        """Start one pass over the data in random batches; a GPU may still be at it when this returns."""
        ...

    def collect(self) -> None:
        """Wait until the stage's tensors can be read."""
        ...

    def risk(self) -> float:
        """The empirical risk of the weights as they are: one pass over the data.

        The same noise every time, so that epochs are compared by their weights and not by their luck.
        """
        ...


def engine_for(stage: Stage) -> Engine:
    """The fastest engine for the device the network is on, and for its layers.

    The plain one for several processes, where the data are not on the device but read batch by batch, and where
    nothing can be compiled.
    """
    plain = stage.device.type != "cuda" or not has_triton() or not stage.resident
    if plain or not stage.net.drawn_by_rules or processes.size() > 1:
        return PlainEngine(stage)
    from pacbayes.training.cuda_graphs import GraphEngine, NotCompiled

    engine = GraphEngine(stage)
    try:
        engine.prepare()
    except NotCompiled as error:
        warnings.warn(
            f"PyTorch cannot compile this model, so its training takes plain steps, which are slower: {error}",
            stacklevel=2,
        )
        return PlainEngine(stage)
    return engine


class PlainEngine:
    """Steps as PyTorch runs them, on any device.

    Several processes take the steps of one: each draws the order and the noise of whole batches, and uses its rows.
    """

    def __init__(self, stage: Stage):
        self.stage = stage
        self.generator = torch.Generator(stage.device)
        self.normals = normals_like(stage.net.mean, self.generator)

    def epoch(self, number: int, rate: float) -> None:
        stage = self.stage
        self.generator.manual_seed(derived_seed(stage.settings.seed, number))
        # Equal already, unless the machines round differently; that must not add up.
        for tensor in stage.lasting().values():
            processes.copy_from_first(tensor.detach())
        stage.begin_epoch(rate)
        # With a trained lambda, odd epochs leave the weights alone and even ones lambda.
        step = stage.lambda_step if stage.settings.trains_lambda and number % 2 else stage.step
        order = torch.randperm(stage.m, generator=self.generator, device=stage.device)
        for batch in order.to(stage.index_device).split(stage.settings.batch_size):
            share = processes.Share.of(len(batch))
            step(*self._rows(batch, share), share)

    def collect(self) -> None:
        return

    def risk(self) -> float:
        stage = self.stage
        self.generator.manual_seed(derived_seed(stage.settings.seed, EVALUATION))
        batches = torch.arange(stage.m, device=stage.index_device).split(stage.settings.batch_size)
        total = torch.zeros((), dtype=torch.float64, device=stage.device)
        for batch in batches:
            share = processes.Share.of(len(batch))
            total += stage.risk(*self._rows(batch, share)).double() * (share.weight * len(batch))
        return float(processes.add(total)) / stage.m

    def _rows(self, batch: Tensor, share: processes.Share) -> tuple[Tensor, Rows]:
        """This process's part of a batch, and the source of its noise."""
        return batch[share.start : share.stop], Rows(self.normals, share.start, share.stop, share.total)
