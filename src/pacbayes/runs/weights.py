"""The weight files of a run: tensors and nothing else, whoever wrote them."""

from __future__ import annotations

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from pacbayes.errors import RunError


def read_weights(content: bytes, name: str) -> dict[str, Tensor]:
    """The tensors of a safetensors file, whose header the library checks against its bytes."""
    try:
        return safetensors.torch.load(content)
    except (SafetensorError, ValueError, LookupError, TypeError, RuntimeError, OverflowError) as error:
        raise RunError(f"{name} is not a safetensors file: {error}") from None
