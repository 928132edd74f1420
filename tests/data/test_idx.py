import gzip
import struct
import zlib

import numpy as np
import pytest

from pacbayes.data import idx
from pacbayes.data.idx import read_idx, read_images
from pacbayes.errors import DataError

VALUES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("name", ["a-idx3-ubyte", "a-idx3-ubyte.gz"])
def test_reads_what_was_written(tmp_path, write_idx, name):
    path = write_idx(tmp_path / name, VALUES)
    assert np.array_equal(read_idx(path, VALUES.shape), VALUES)


def test_gzip_is_known_by_its_contents_not_its_name(tmp_path, write_idx):
    path = write_idx(tmp_path / "a.gz", VALUES).rename(tmp_path / "a")
    assert np.array_equal(read_idx(path, VALUES.shape), VALUES)


def test_read_images_pairs_two_files(tmp_path, write_idx):
    paths = write_idx(tmp_path / "images", VALUES), write_idx(tmp_path / "labels", np.array([7, 8]))
    pixels, labels = read_images(paths, (2, 1, 3, 4))
    assert pixels.shape == (2, 1, 3, 4) and labels.tolist() == [7, 8]


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "found an empty file"),
        (b"\x00\x00\x08", "found 00 00 08"),
        (b"<html>", "begins with 00 00 08 01; found 3c 68 74 6d"),
        (b"\x00\x00\x0d\x01" + struct.pack(">I", 1) + bytes(4), "unsigned bytes"),
        (b"\x00\x00\x08\x02" + struct.pack(">2I", 1, 1) + bytes(1), "1 dimension"),
        (b"\x00\x00\x08\x01\x00\x00", "truncated within its header"),
        (b"\x00\x00\x08\x01" + struct.pack(">I", 5) + bytes(4), "announces 5 bytes, found 4"),
        (b"\x00\x00\x08\x01" + struct.pack(">I", 5) + bytes(6), "announces 5 bytes, found more"),
        (b"\x00\x00\x08\x01" + struct.pack(">I", 2**32 - 1), "expected sizes 5, found 4294967295"),
    ],
)
def test_malformed_files_are_refused_by_name(tmp_path, raw, message, zipped):
    path = tmp_path / "labels"
    path.write_bytes(gzip.compress(raw) if zipped else raw)
    with pytest.raises(DataError, match=message) as caught:
        read_idx(path, (5,))
    assert str(path) in str(caught.value)


def test_wrong_counts_are_refused_before_the_body_is_read(tmp_path, write_idx):
    path = write_idx(tmp_path / "a", VALUES)
    with pytest.raises(DataError, match="expected sizes 2 x 3 x 5, found 2 x 3 x 4"):
        read_idx(path, (2, 3, 5))


@pytest.mark.parametrize("cut", [3, 15, 30, -9, -4, -1])
def test_truncated_gzip_is_refused(tmp_path, write_idx, cut):
    path = write_idx(tmp_path / "a.gz", VALUES)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match="truncated or corrupt"):
        read_idx(path, VALUES.shape)


def test_every_flipped_byte_of_a_gzip_body_is_noticed(tmp_path, write_idx):
    path = write_idx(tmp_path / "a.gz", VALUES)
    good = path.read_bytes()
    for place in range(10, len(good)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x55]) + good[place + 1 :])
        with pytest.raises(DataError):
            read_idx(path, VALUES.shape)


def test_a_gzip_bomb_is_refused_without_inflating_it(tmp_path, monkeypatch):
    # A header for 4 bytes, then 64 MiB of zeros.
    squeeze = zlib.compressobj(wbits=31)
    body = squeeze.compress(b"\x00\x00\x08\x01" + struct.pack(">I", 4))
    for _ in range(64):
        body += squeeze.compress(bytes(2**20))
    path = tmp_path / "bomb.gz"
    path.write_bytes(body + squeeze.flush())
    kept = []
    read_up_to = idx._read_up_to
    monkeypatch.setattr(idx, "_read_up_to", lambda *args: kept.append(read_up_to(*args)) or kept[-1])
    with pytest.raises(DataError, match="announces 4 bytes, found more"):
        read_idx(path, (4,))
    assert len(kept[0]) == 5


def test_a_missing_file_is_reported(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_idx(tmp_path / "none", VALUES.shape)
