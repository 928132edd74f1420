"""CIFAR-10 batches, binary (a label byte, then 3,072 pixel bytes, channels first) and Python ones."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pacbayes.data.faults import faults_of
from pacbayes.data.plain_pickle import PlainArray, read_plain
from pacbayes.errors import DataError

CLASSES = 10
SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_MAX_BYTES = 2**26


def read_batches(paths: Sequence[Path], shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Pixels, uint8 of ``shape`` = (m, 3, 32, 32), and labels, uint8 [m], from batches of equal size."""
    count = shape[0] // len(paths)
    batches = [read_batch(path, count) for path in paths]
    return np.concatenate([pixels for pixels, _ in batches]), np.concatenate([labels for _, labels in batches])


def read_batch(path: Path, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Pixels, uint8 [m, 3, 32, 32], and labels, uint8 [m], of a file; binary if it is called ``.bin``."""
    try:
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise DataError(f"{path}: {size} bytes is too large for a CIFAR-10 batch (at most {_MAX_BYTES})")
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    pixels, labels = _parse_binary(raw, path) if path.suffix == ".bin" else _parse_python(raw, path)
    if len(labels) != count:
        raise DataError(f"{path}: expected {count} images, found {len(labels)}")
    if (labels >= CLASSES).any():
        bad = int((labels >= CLASSES).argmax())
        raise DataError(f"{path}: label {bad} is {labels[bad]}, expected 0 to {CLASSES - 1}")
    return pixels.reshape(-1, *SHAPE), labels


def _parse_binary(raw: bytes, path: Path) -> tuple[np.ndarray, np.ndarray]:
    record = 1 + _PIXELS
    if not raw or len(raw) % record:
        raise DataError(f"{path}: expected a multiple of {record} bytes, found {len(raw)}")
    records = np.frombuffer(raw, np.uint8).reshape(-1, record)
    return records[:, 1:], records[:, 0]


def _parse_python(raw: bytes, path: Path) -> tuple[np.ndarray, np.ndarray]:
    with faults_of(path):
        batch = read_plain(raw)
        if not isinstance(batch, dict) or not isinstance(batch.get("data"), PlainArray):
            raise DataError("the pickle holds no dict with an array 'data'")
        pixels = batch["data"].to_numpy()
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != _PIXELS or not len(pixels):
        raise DataError(f"{path}: expected uint8 [m, {_PIXELS}], found {pixels.dtype} {list(pixels.shape)}")
    labels = batch.get("labels")
    if not isinstance(labels, list) or len(labels) != len(pixels):
        raise DataError(f"{path}: expected a list 'labels' with one label for each of {len(pixels)} images")
    if not all(type(label) is int and 0 <= label < 256 for label in labels):
        raise DataError(f"{path}: expected labels 0 to {CLASSES - 1}, found something else")
    return pixels, np.array(labels, np.uint8)
