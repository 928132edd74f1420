"""Arrays in numpy's own format: headers that are not believed before they fit the file, and files mapped to memory."""

import io
import math
from pathlib import Path
from tokenize import TokenError
from typing import IO

import numpy as np

from pacbayes.data.faults import faults_of
from pacbayes.errors import DataError, MissingData

# What numpy's parser raises for a header that is truncated or corrupt.
BAD_HEADER = (
    OSError,
    EOFError,
    SyntaxError,
    LookupError,
    AttributeError,
    ArithmeticError,
    MemoryError,
    ValueError,
    TypeError,
    TokenError,
)
# Headers of arrays of numbers have some 100 bytes. Version 2 may announce 4 GiB, which numpy would read first.
_LONGEST_HEADER = 2**13
# The bytes of the header's length, and what reads both.
_HEADER_READERS = {
    (1, 0): (2, np.lib.format.read_array_header_1_0),
    (2, 0): (4, np.lib.format.read_array_header_2_0),
}


def read_header(stream: IO[bytes], what: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """(shape, whether in Fortran's order, dtype) of an array of numbers; anything else is refused."""
    version = np.lib.format.read_magic(stream)
    if version not in _HEADER_READERS:
        raise DataError(f"{what} is not of plain numbers (.npy version {version[0]}.{version[1]})")
    digits, reader = _HEADER_READERS[version]
    start = stream.read(digits)
    length = int.from_bytes(start, "little")
    if length > _LONGEST_HEADER:
        raise DataError(f"{what} has a header of {length} bytes, as no array of numbers has: write it with numpy.save")
    shape, fortran, dtype = reader(io.BytesIO(start + stream.read(length)))
    if dtype.kind not in "biuf":
        words = dtype.kind in "US" or (dtype.kind == "O" and what.startswith("array y"))
        remedy = ": number the classes 0, 1, ..., or take a .csv file, where they may be words" if words else ""
        raise DataError(f"{what} must hold real numbers, not {dtype}{remedy}")
    return shape, fortran, dtype


def map_array(path: Path) -> np.memmap:
    """The array in a ``.npy`` file, read-only; nothing but the header is read."""
    with faults_of(path, ".npy file", BAD_HEADER):
        if not path.is_file():
            raise MissingData(f"{path}: no such file")
        with path.open("rb") as file:
            shape, fortran, dtype = read_header(file, "the array")
            start = file.tell()
            size, found = math.prod(shape) * dtype.itemsize, file.seek(0, io.SEEK_END) - start
            if min(shape, default=0) < 1:
                raise DataError(f"the array holds no examples: its shape is {list(shape)}")
            if size != found:
                raise DataError(f"the array announces {size} bytes, and the file has {found}")
            if fortran:
                raise DataError(
                    "the array is in Fortran's order, so that every example is spread over the file: write "
                    "np.ascontiguousarray(x)"
                )
            return np.memmap(file, dtype, "r", start, shape)
