"""The weight files of a run: tensors and nothing else, whoever wrote them."""

from __future__ import annotations

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from pacbayes.errors import RunError

# The largest of our networks has some 100 tensors, of 100 bytes each.
_LONGEST_HEADER = 2**20


def read_weights(content: bytes, name: str) -> dict[str, Tensor]:
    """The tensors of a safetensors file, whose header the library checks against its bytes."""
    # It begins with the length of its header, which may name millions of empty tensors.
    if (length := int.from_bytes(content[:8], "little")) > _LONGEST_HEADER:
        raise RunError(f"{name} is not a safetensors file of a network: its header has {length} bytes")
    try:
        return safetensors.torch.load(content)
    except (SafetensorError, ValueError, LookupError, TypeError, RuntimeError, OverflowError) as error:
        raise RunError(f"{name} is not a safetensors file: {error}") from None
