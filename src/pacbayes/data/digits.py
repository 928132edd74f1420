"""The 8 x 8 digits that scikit-learn carries, cut into a train and a test part."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pacbayes.data.splits import permutation

TRAIN = 1437
_SEED = 0


def read_digits(paths: Sequence[Path], shape: tuple[int, ...], *, test: bool) -> tuple[np.ndarray, np.ndarray]:
    """Pixels 0 to 16, uint8 of ``shape``, and labels, uint8 [m].

    scikit-learn gives no test part: the train part is the first 1,437 examples of ``permutation(1797, 0)``, the
    test part the other 360. There are no files to read, so ``paths`` is empty.
    """
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = permutation(len(labels), _SEED)
    chosen = order[TRAIN:] if test else order[:TRAIN]
    return pixels[chosen].astype(np.uint8).reshape(shape), labels[chosen].astype(np.uint8)
