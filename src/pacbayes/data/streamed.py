"""``Streamed``: inputs that are read a few rows at a time, because they do not fit into memory, or onto a device."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pacbayes.errors import DataError, InvalidInput

# What is left of a device's memory for weights and what is made of a batch.
_ROOM_FOR_INPUTS = 0.75


class Streamed:
    """Inputs [m, ...], of which a few at a time are made float32 tensors: by index, by slice, or with ``split``.

    values: numbers [m, ...], mapped from a file, whose every use makes sure that the file has not changed; or in
    memory. places: the rows that are meant, if not all of them. device: where the tensors are given.
    """

    dtype = torch.float32

    places: np.ndarray | None = None
    device = torch.device("cpu")

    def __init__(self, values: np.ndarray):
        if values.dtype.kind not in "biuf":
            raise InvalidInput(f"x must hold real numbers, not {values.dtype}")
        self.values = np.asarray(values)
        self.file = values.filename if isinstance(values, np.memmap) else None
        self.stamp = _stamp(self.file)
        # Set once all values are known to be finite; that of a part follows.
        self.checked = values.dtype.kind != "f"

    def __repr__(self) -> str:
        return f"Streamed({list(self.shape)} from {self.file or 'memory'})"

    def __len__(self) -> int:
        return len(self.values) if self.places is None else len(self.places)

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self), *self.values.shape[1:]) if self.values.ndim else ())

    @property
    def ndim(self) -> int:
        return self.values.ndim

    def numel(self) -> int:
        return self.shape.numel()

    def read(self, rows: np.ndarray) -> np.ndarray:
        """These rows, float32 in memory of their own."""
        if _stamp(self.file) != self.stamp:
            raise DataError(f"{self.file} has changed since it was opened: what was computed from it is void")
        chosen = self.values[rows if self.places is None else self.places[rows]]
        # Overflow to infinity is found by the check that all the inputs go through.
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(chosen, np.float32)

    def __getitem__(self, index: int | slice | Tensor | np.ndarray | list[int]) -> Tensor:
        if isinstance(index, int):
            return self[torch.tensor([range(len(self))[index]])][0]
        if isinstance(index, np.ndarray | list):
            index = torch.as_tensor(index)
        if isinstance(index, slice):
            rows = np.arange(*index.indices(len(self)))
        elif isinstance(index, Tensor) and index.ndim == 1 and not index.is_floating_point():
            rows = (index.nonzero().squeeze(1) if index.dtype == torch.bool else index).numpy(force=True)
        else:
            raise InvalidInput("inputs that are not in memory are picked by row alone: x[7], x[:100] or x[indices]")
        found = torch.from_numpy(self.read(rows))
        if self.device.type != "cuda":
            return found.to(self.device)
        # From pinned memory the copy is made while this process goes on.
        return found.pin_memory().to(self.device, non_blocking=True)

    def split(self, size: int) -> Iterator[Tensor]:
        """All of it, in pieces of so many rows."""
        return (self[start : start + size] for start in range(0, len(self), size))

    def take(self, rows: np.ndarray) -> Streamed:
        """A part: nothing is read."""
        return self._with(places=rows if self.places is None else self.places[rows])

    def given_on(self, device: torch.device) -> Streamed:
        return self._with(device=device)

    def _with(self, **changes: Any) -> Streamed:
        other = copy.copy(self)
        vars(other).update(changes)
        return other


Inputs = Tensor | Streamed


def on_device(x: Inputs, device: torch.device) -> Inputs:
    """Inputs to be indexed: all of them there if there is room, else copied whenever some are asked for."""
    if isinstance(x, Tensor) and x.is_cuda:
        return x.to(device)
    if not has_room(device, 4 * x.numel()):
        return (Streamed(x.numpy(force=True)) if isinstance(x, Tensor) else x).given_on(device)
    if isinstance(x, Tensor):
        return x.to(device)
    if device.type == "cpu":
        return x
    there = torch.empty(x.shape, dtype=torch.float32, device=device)
    start = 0
    for piece in x.split(rows_of_bytes(x.shape[1:], 2**26)):
        there[start : start + len(piece)] = piece
        start += len(piece)
    return there


def has_room(device: torch.device, size: int) -> bool:
    """Whether so many bytes may be kept on the device; main memory holds what it holds already."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return size <= _ROOM_FOR_INPUTS * (free + cached)


def rows_of_bytes(shape: tuple[int, ...], size: int) -> int:
    """How many examples of this shape, float32, are so many bytes; one at least."""
    return max(1, size // (4 * max(1, math.prod(shape))))


def _stamp(file: Any) -> tuple[int, ...] | None:
    if file is None:
        return None
    try:
        found = Path(file).stat()
    except OSError as error:
        raise DataError(f"{file} cannot be read any more: {error.strerror}") from error
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
