"""Sources of standard normal variables: all the randomness of a pass comes through one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from pacbayes.bounds.misclassification import Normals
from pacbayes.checks import check_kind
from pacbayes.errors import UnsupportedModel


def normals_like(tensor: Tensor, generator: torch.Generator | None) -> Normals:
    """A source with this tensor's dtype and device."""
    check_kind("generator", generator, torch.Generator | None, "a torch.Generator")
    return partial(torch.randn, generator=generator, dtype=tensor.dtype, device=tensor.device)


class Tape:
    """Normals read from one vector, slice after slice: a step's noise is drawn in a single kernel."""

    def __init__(self, values: Tensor):
        self.values, self.used = values, 0

    def __call__(self, shape: tuple[int, ...]) -> Tensor:
        size = math.prod(shape)
        start, self.used = self.used, self.used + size
        if self.used > self.values.numel():
            raise UnsupportedModel(
                "which layers are applied, or to how much, depends on the example, and the noise was counted on "
                "another one: apply them all to every example, and choose among what they give"
            )
        return self.values[start : start + size].view(shape)


class Counted:
    """Zeros in place of normals, and how many were asked for."""

    def __init__(self, like: Tensor):
        self.like, self.used = like, 0

    def __call__(self, shape: tuple[int, ...]) -> Tensor:
        self.used += math.prod(shape)
        return self.like.new_zeros(shape)


class Rows:
    """Normals for some rows of a batch: all that the batch takes is drawn, and what is theirs is kept.

    So the noise of an example, and what all of them share, is the same however the batch is divided.
    """

    def __init__(self, normals: Normals, start: int, stop: int, total: int):
        self.normals, self.start, self.stop, self.total = normals, start, stop, total

    def __call__(self, shape: tuple[int, ...]) -> Tensor:
        return self.normals(shape)

    def of_examples(self, shape: tuple[int, ...], axis: int) -> Tensor:
        whole = list(shape)
        whole[axis] = self.total
        drawn = self.normals(tuple(whole))
        if shape[axis] == self.total:
            return drawn
        # A copy, so that the rest is not kept with it until the gradient is taken.
        return drawn.narrow(axis, self.start, self.stop - self.start).clone()


class Seeded:
    """Normals for examples that have a seed each: so an example's noise is the same whatever stands beside it."""

    def __init__(self, seeds: Sequence[int], like: Tensor):
        self.streams, self.like = [np.random.Generator(np.random.Philox(key=seed)) for seed in seeds], like

    def __call__(self, shape: tuple[int, ...]) -> Tensor:
        raise NotImplementedError("examples with seeds of their own share no noise")

    def of_examples(self, shape: tuple[int, ...], axis: int) -> Tensor:
        rest = list(shape)
        if rest.pop(axis) != len(self.streams):
            raise NotImplementedError("there must be a seed for each example")
        drawn = np.stack([stream.standard_normal(rest, dtype=np.float32) for stream in self.streams])
        # Counted from the front, where the examples are now.
        return torch.from_numpy(drawn).to(self.like).movedim(0, axis)


def of_examples(normals: Normals, axis: int = 0) -> Normals:
    """The source for what each example has for its own, with the examples on this axis."""
    return partial(normals.of_examples, axis=axis) if isinstance(normals, Rows | Seeded) else normals
