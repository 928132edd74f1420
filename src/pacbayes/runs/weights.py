"""The weight files of a run, read as if by an enemy's hand: the header is checked before anything is made from it."""

from __future__ import annotations

import math
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from pacbayes.errors import RunError
from pacbayes.files import strict_json

# A network of a thousand tensors needs a tenth of this.
_LARGEST_HEADER = 2**20
_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


def bytes_of_weights(content: bytes, name: str) -> int:
    """The number of bytes that the tensors of a file take, if its header tells the truth about them."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or not 0 < length <= min(_LARGEST_HEADER, len(content) - 8):
        raise RunError(f"{name} is not a safetensors file: its header does not have the length that it states")
    try:
        header = strict_json(content[8 : 8 + length])
        header.pop("__metadata__", None)
        spans = sorted(_span(entry) for entry in header.values())
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise RunError(f"{name} is not a safetensors file: {error}") from None
    ends = [0, *(end for _, end in spans)]
    if [start for start, _ in spans] != ends[:-1] or ends[-1] != len(content) - 8 - length:
        raise RunError(f"{name} is not a safetensors file: its tensors do not fill it from end to end")
    return ends[-1]


def checked_weights(content: bytes, name: str) -> dict[str, Tensor]:
    """The tensors of a file whose header tells the truth."""
    bytes_of_weights(content, name)
    return read_weights(content, name)


def read_weights(content: bytes, name: str) -> dict[str, Tensor]:
    """The tensors of a file."""
    try:
        return safetensors.torch.load(content)
    except (SafetensorError, ValueError, LookupError, TypeError, RuntimeError, OverflowError) as error:
        raise RunError(f"{name} is not a safetensors file: {error}") from None


def _span(entry: dict[str, Any]) -> tuple[int, int]:
    """(start, end) of a tensor's bytes."""
    shape, offsets = entry["shape"], entry["data_offsets"]
    if entry["dtype"] not in _BYTES or not isinstance(shape, list) or not isinstance(offsets, list):
        raise ValueError("it holds a tensor of another type")
    start, end = offsets
    if not all(type(n) is int and 0 <= n < 2**40 for n in (*shape, start, end)) or len(shape) > 16:
        raise ValueError("it states a size that cannot be")
    if end - start != _BYTES[entry["dtype"]] * math.prod(shape):
        raise ValueError("it holds a tensor whose shape does not fit its bytes")
    return start, end
