"""How convolutions and products are computed: the same every time and to the last digit, or as fast as can be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from pacbayes.errors import InvalidInput


@contextmanager
def full_precision() -> Iterator[None]:
    """For numbers that others compute again: no rounding to TF32 or bf16, and no kernels picked by luck."""
    now = _cudnn()
    with ExitStack() as stack:
        stack.enter_context(_no_autocast())
        if getattr(torch.backends, "fp32_precision", "none") != "none":
            raise InvalidInput(
                "torch.backends.fp32_precision is set, which does not go with cuDNN's own settings: set it back to "
                "'none', and use torch.set_float32_matmul_precision"
            )
        stack.enter_context(now.flags(enabled=now.enabled, benchmark=False, deterministic=True, allow_tf32=False))
        stack.enter_context(products("highest"))
        yield


@contextmanager
def fullest_precision() -> Iterator[None]:
    """:func:`full_precision`, for numbers that are only looked at: settings that do not go with it are left alone."""
    with ExitStack() as stack:
        try:
            stack.enter_context(full_precision())
        except InvalidInput:
            stack.enter_context(_no_autocast())
        yield


@contextmanager
def _no_autocast() -> Iterator[None]:
    with ExitStack() as stack:
        for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            stack.enter_context(torch.autocast(device, enabled=False))
        yield


@contextmanager
def products(precision: str) -> Iterator[None]:
    """Products of float32 at this precision: "highest", or "high" for TF32 on a GPU."""
    # Newer versions of PyTorch have a setting for each kind of computation, of which the older one sets two.
    backends: Any = torch.backends
    kinds = []
    if hasattr(backends.mkldnn, "conv"):
        kinds = [backends.cuda.matmul, backends.mkldnn.matmul, backends.mkldnn.conv]
    each = [kind.fp32_precision for kind in kinds]
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:  # the two do not agree
        before = None
    torch.set_float32_matmul_precision(precision)
    if kinds and precision == "highest":
        backends.mkldnn.conv.fp32_precision = "ieee"
    try:
        yield
    finally:
        if before is not None:
            torch.set_float32_matmul_precision(before)
        for kind, own in zip(kinds, each, strict=True):
            kind.fp32_precision = own


@contextmanager
def fastest_convolutions() -> Iterator[None]:
    """Let a GPU try its kernels for each convolution and keep the fastest: for training, where sizes stay the same."""
    now = _cudnn()
    with now.flags(enabled=now.enabled, benchmark=True, deterministic=now.deterministic, allow_tf32=now.allow_tf32):
        yield


def _cudnn() -> Any:
    """cuDNN's settings, all of the one kind that PyTorch can put back."""
    now: Any = torch.backends.cudnn
    try:
        now.allow_tf32  # noqa: B018
    except RuntimeError:
        raise InvalidInput(
            "torch.backends.cudnn.conv.fp32_precision or rnn.fp32_precision is set, which does not go with cuDNN's "
            "other settings: set both back to 'none', or use torch.backends.cudnn.allow_tf32"
        ) from None
    return now
