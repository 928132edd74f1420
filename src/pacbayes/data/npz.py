"""Data of one's own: ``.npz`` files with arrays ``x`` and ``y``, and ``x_test`` and ``y_test`` for the test part."""

import math
import os
import zipfile
import zlib
from pathlib import Path

import numpy as np
from torch import Tensor

from pacbayes.data.arrays import as_data, as_inputs, count_classes
from pacbayes.data.dataset import Data
from pacbayes.data.faults import faults_of
from pacbayes.data.npy import BAD_HEADER, read_header
from pacbayes.errors import DataError, MissingData

MAX_BYTES = 2**33
# A small file may be made to unpack into one that fills the memory. Beyond this size it may grow so many times.
UNPACKED_BYTES = 2**26
MOST_EXPANSION = 100
# What is raised for files that are truncated, corrupt, encrypted or no archive.
_UNREADABLE = (*BAD_HEADER, RuntimeError, zipfile.BadZipFile, zlib.error)


def read_npz(path: str | os.PathLike[str], part: str = "train") -> Data:
    """The train part (``x``, ``y``) or the test part (``x_test``, ``y_test``) of a file.

    The classes are counted over both parts, so that they agree.
    """
    path = Path(path)
    x, y = ("x", "y") if part == "train" else ("x_test", "y_test")
    arrays = _read_arrays(path, {x, "y", "y_test"})
    if missing := [name for name in (x, y) if name not in arrays]:
        words = f"{path}: has no {part} part: it holds no array {' and no array '.join(missing)}"
        raise MissingData(words) if len(missing) == 2 or part == "train" else DataError(f"{words}; it needs both")
    with faults_of(path):
        classes = count_classes(*(arrays[name] for name in ("y", "y_test") if name in arrays))
        return as_data((arrays[x], arrays[y]), classes=classes, name=path.stem)


def read_npz_inputs(path: str | os.PathLike[str]) -> Tensor:
    """The array ``x`` of a ``.npz`` file as float32 [m, ...]: inputs to predict, with labels or without."""
    path = Path(path)
    arrays = _read_arrays(path, {"x"})
    if "x" not in arrays:
        raise DataError(f"{path}: holds no array x")
    with faults_of(path):
        return as_inputs(arrays["x"])


def _read_arrays(path: Path, names: set[str]) -> dict[str, np.ndarray]:
    """Those of the named arrays that the file holds."""
    with faults_of(path, ".npz file", _UNREADABLE):
        if not path.is_file():
            raise MissingData(f"{path}: no such file")
        with zipfile.ZipFile(path) as archive:
            present = names & {name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")}
            return {name: _read_array(archive, name) for name in sorted(present)}


def _read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """One array; its header is believed only once it agrees with the archive and with the limit."""
    member = archive.getinfo(f"{name}.npy")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DataError(f"array {name} is compressed in a way numpy does not write")
    with archive.open(member) as stream:
        shape, fortran, dtype = read_header(stream, f"array {name}")
        size = math.prod(shape) * dtype.itemsize
        if size > MAX_BYTES:
            raise DataError(
                f"array {name} would take {size} bytes; the limit is {MAX_BYTES}. Unpack the file (unzip) into a "
                "folder: its arrays are then read from disk as they are needed"
            )
        if stream.tell() + size != member.file_size:
            raise DataError(f"array {name} announces {size} bytes, the archive {member.file_size - stream.tell()}")
        if size > max(UNPACKED_BYTES, MOST_EXPANSION * member.compress_size):
            raise DataError(
                f"array {name} unpacks to more than {MOST_EXPANSION} times its size, as no data do: if it is meant, "
                "write it with numpy.savez, uncompressed"
            )
        values = bytearray()
        while len(values) < size and (chunk := stream.read(min(2**20, size - len(values)))):
            values += chunk
    if len(values) != size:
        raise DataError(f"array {name} announces {size} bytes, found {len(values)}")
    return np.frombuffer(values, dtype).reshape(shape, order="F" if fortran else "C")
