"""How convolutions and products are computed: the same every time and to the last digit, or as fast as can be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def full_precision() -> Iterator[None]:
    """For numbers that others compute again: no rounding to TF32 or bf16, and no kernels picked by luck."""
    now = torch.backends.cudnn
    with now.flags(enabled=now.enabled, benchmark=False, deterministic=True, allow_tf32=False), _whole_products():
        yield


@contextmanager
def _whole_products() -> Iterator[None]:
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:  # set by names that PyTorch does not let one mix with this one
        before = ""
    products: tuple[Any, ...] = ()
    if not before:
        products = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
    each = [product.fp32_precision for product in products]
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        if before:
            torch.set_float32_matmul_precision(before)
        for product, precision in zip(products, each, strict=True):
            product.fp32_precision = precision


@contextmanager
def fastest_convolutions() -> Iterator[None]:
    """Let a GPU try its kernels for each convolution and keep the fastest: for training, where sizes stay the same."""
    now = torch.backends.cudnn
    with now.flags(enabled=now.enabled, benchmark=True, deterministic=now.deterministic, allow_tf32=now.allow_tf32):
        yield
