"""Convolutions that give the same on every run and lose no digits: for numbers that others compute again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def full_precision() -> Iterator[None]:
    """On a GPU convolutions would round to TF32, and pick their kernels by luck."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        yield
