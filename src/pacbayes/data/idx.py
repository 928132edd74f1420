"""IDX files, the format of MNIST: a big-endian header with the sizes, then the bytes; gzipped or not."""

import gzip
import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pacbayes.errors import DataError

_GZIP_MAGIC = b"\x1f\x8b"
_UNSIGNED_BYTES = 8
_CHUNK = 2**20


def read_idx(path: Path, shape: Sequence[int]) -> np.ndarray:
    """The unsigned bytes of an IDX file, uint8, of ``shape``; no more is read, or decompressed."""
    try:
        with path.open("rb") as raw:
            zipped = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            if not zipped:
                return _read_stream(raw, path, shape)
            with gzip.GzipFile(fileobj=raw) as stream:
                return _read_stream(stream, path, shape)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: the gzip file is truncated or corrupt ({error})") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error})") from error


def read_images(paths: Sequence[Path], shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Pixels, uint8 of ``shape`` = (m, 1, height, width), and labels, uint8 [m], from two IDX files."""
    images, labels = paths
    count, _, height, width = shape
    return read_idx(images, (count, height, width)).reshape(shape), read_idx(labels, (count,))


def _read_stream(stream: BinaryIO | gzip.GzipFile, path: Path, shape: Sequence[int]) -> np.ndarray:
    dims = len(shape)
    magic = stream.read(4)
    expected = bytes([0, 0, _UNSIGNED_BYTES, dims])
    if magic != expected:
        raise DataError(
            f"{path}: expected an IDX file of unsigned bytes in {dims} dimension(s), which begins with "
            f"{expected.hex(' ')}; found {magic.hex(' ') or 'an empty file'}"
        )
    header = stream.read(4 * dims)
    if len(header) < 4 * dims:
        raise DataError(f"{path}: truncated within its header")
    sizes = tuple(int(n) for n in np.frombuffer(header, ">u4"))
    if sizes != tuple(shape):
        raise DataError(f"{path}: expected sizes {' x '.join(map(str, shape))}, found {' x '.join(map(str, sizes))}")
    total = math.prod(sizes)
    # One byte more than announced shows that the file goes on, and makes gzip check its checksum.
    body = _read_up_to(stream, total + 1)
    if len(body) != total:
        found = "more" if len(body) > total else str(len(body))
        raise DataError(f"{path}: its header announces {total} bytes, found {found}")
    return np.frombuffer(body, np.uint8).reshape(sizes)


def _read_up_to(stream: BinaryIO | gzip.GzipFile, limit: int) -> bytearray:
    body = bytearray()
    while len(body) < limit and (chunk := stream.read(min(_CHUNK, limit - len(body)))):
        body += chunk
    return body
