"""Images as the bytes they are published as, with the value that each byte stands for."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from pacbayes.data.dataset import Data, fingerprint_of_rows
from pacbayes.data.scaling import Scaling


@dataclass(frozen=True, eq=False)
class Pixels:
    """Labelled images, uint8 [m, ...]; as ``Data`` their inputs are ``table[pixels]``, four times as large."""

    pixels: np.ndarray
    labels: np.ndarray
    scaling: Scaling
    name: str
    class_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.pixels.shape[1:]

    @cached_property
    def table(self) -> np.ndarray:
        return self.scaling.table()

    @property
    def classes(self) -> int:
        return len(self.class_names)

    def take(self, indices: np.ndarray) -> Data:
        """The examples at ``indices``, in that order."""
        x = np.empty((len(indices), *self.shape), np.float32)
        # A few at a time: numpy makes eight bytes of each index into the table.
        for start in range(0, len(indices), 500):
            piece = slice(start, start + 500)
            np.take(self.table, self.pixels[indices[piece]], out=x[piece], mode="clip")
        y = torch.from_numpy(self.labels[indices])
        return Data(torch.from_numpy(x), y, self.classes, self.name, self.class_names, scaling=self.scaling)

    def fingerprint_of(self, indices: np.ndarray) -> str:
        """That of ``take(indices)``, which is not made."""

        def inputs(rows: np.ndarray) -> np.ndarray:
            return np.take(self.table, self.pixels[rows], mode="clip")

        return fingerprint_of_rows(inputs, self.labels, indices, self.shape, self.classes)
