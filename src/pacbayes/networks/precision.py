"""How a GPU computes convolutions: the same every time and to the last digit, or as fast as it can."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def full_precision() -> Iterator[None]:
    """For numbers that others compute again: no rounding to TF32, and no kernels picked by luck."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        yield


@contextmanager
def fastest_convolutions() -> Iterator[None]:
    """Let a GPU try its kernels for each convolution and keep the fastest: for training, where sizes stay the same."""
    now = torch.backends.cudnn
    with now.flags(enabled=True, benchmark=True, deterministic=now.deterministic, allow_tf32=now.allow_tf32):
        yield
