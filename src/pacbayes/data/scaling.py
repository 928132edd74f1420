"""Pixels as numbers of size about 1, by constants that no data were asked for."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Scaling:
    """x = (pixel / levels - offset) / scale."""

    levels: int = 255
    offset: float = 0.5
    scale: float = 0.25

    def __str__(self) -> str:
        share = f"pixel / {self.levels}"
        return f"({share} - {self.offset:g}) / {self.scale:g}" if self.offset else f"{share} / {self.scale:g}"

    @staticmethod
    def known(record: object) -> bool:
        """Whether a record, which may be anybody's, is of a scaling of bytes."""
        return (
            isinstance(record, dict)
            and {name: type(value) for name, value in record.items()}
            == {"levels": int, "offset": float, "scale": float}
            and 1 <= record["levels"] <= 255
            and 0 < record["scale"] < 1e6
            and abs(record["offset"]) < 1e6
        )

    @property
    def in_words(self) -> str:
        """What becomes of a pixel, and which pixels there are."""
        return f"{self} of pixels of 0 to {self.levels}"

    def table(self) -> np.ndarray:
        """The value of each pixel, float32: so that it is the same on every machine."""
        return ((np.arange(256) / self.levels - self.offset) / self.scale).astype(np.float32)

    def ends(self) -> tuple[float, float]:
        """What black and white become."""
        return (0 - self.offset) / self.scale, (1 - self.offset) / self.scale


IMAGES = Scaling()
"""Of image files."""

_TABLE = IMAGES.table()


def scaled(pixels: np.ndarray, table: np.ndarray = _TABLE) -> np.ndarray:
    """The values of pixels of 0 to 255, float32."""
    values: np.ndarray = table[pixels]
    return values
