"""Data that need not fit into memory: a folder with ``x.npy``, ``y.npy``; for the test, ``x_test.npy``, ``y_test.npy``.

It is what a ``.npz`` file unpacks to. The inputs are mapped, and read as they are needed; the labels are in memory. A
file ``classes.txt``, if there is one, names the classes, one a line.
"""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from pacbayes.data.arrays import as_data, count_classes
from pacbayes.data.dataset import Data, check_inputs
from pacbayes.data.faults import faults_of
from pacbayes.data.npy import map_array
from pacbayes.data.streamed import Streamed
from pacbayes.errors import DataError, MissingData

CLASS_NAMES = "classes.txt"
_MAX_LABEL_BYTES, _MAX_NAME_BYTES = 2**33, 2**20
_TRAIN, _TEST = ("x.npy", "y.npy"), ("x_test.npy", "y_test.npy")


def is_npy_folder(path: Path) -> bool:
    return path.is_dir() and next(path.glob("*.npy"), None) is not None


def part_files(part: str) -> tuple[str, str]:
    """The names of the files of inputs and labels."""
    return _TRAIN if part == "train" else _TEST


def read_npy_folder(path: Path, part: str = "train") -> Data:
    """The train or test part; the classes are counted over both, so that they agree, or those of ``classes.txt``."""
    present = [file for name in (*_TRAIN, *_TEST, CLASS_NAMES) if (file := path / name).is_file()]
    stamps = [(stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in (file.stat() for file in present)]
    return _read(path.absolute(), part, tuple(zip((file.name for file in present), stamps, strict=True)))


@lru_cache(maxsize=4)
def _read(path: Path, part: str, present: tuple[tuple[str, object], ...]) -> Data:
    """Once, as long as the files stay as they are: all the inputs are passed over, to check them."""
    files = dict(present)
    x, y = part_files(part)
    if missing := [name for name in (x, y) if name not in files]:
        words = f"{path}: has no {part} part: there is no {' and no '.join(missing)} in it"
        raise MissingData(words) if len(missing) == 2 or part == "train" else DataError(f"{words}; it needs both")
    names = read_class_names(path)
    labels = {name: _labels(path / name) for name in (_TRAIN[1], _TEST[1]) if name in files}
    inputs = map_array(path / x)
    with faults_of(path):
        classes = len(names) or count_classes(*labels.values())
        data = as_data((inputs, labels[y]), classes=classes, name=path.name)
        return replace(data, class_names=names)


def read_npy_inputs(path: Path) -> Streamed:
    """The inputs in ``x.npy``, to predict, with labels or without."""
    x = Streamed(map_array(path / "x.npy"))
    with faults_of(path / "x.npy"):
        check_inputs(x)
    return x


def _labels(path: Path) -> np.ndarray:
    labels = map_array(path)
    if labels.nbytes > _MAX_LABEL_BYTES:
        raise DataError(f"{path}: the labels take {labels.nbytes} bytes; the limit is {_MAX_LABEL_BYTES}")
    return np.array(labels)


def read_class_names(folder: Path) -> tuple[str, ...]:
    """The lines of ``classes.txt``; none if there is no such file."""
    path = folder / CLASS_NAMES
    if not path.is_file():
        return ()
    if (size := path.stat().st_size) > _MAX_NAME_BYTES:
        raise DataError(f"{path}: has {size} bytes; the limit is {_MAX_NAME_BYTES}")
    try:
        names = path.read_text("utf-8").removesuffix("\n").split("\n")
    except (UnicodeDecodeError, OSError) as error:
        raise DataError(f"{path}: not a readable list of class names ({error})") from error
    if "" in names:
        raise DataError(f"{path}: line {names.index('') + 1} is empty, and must name a class")
    return tuple(names)
