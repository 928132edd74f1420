import io
import zipfile
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pacbayes.data import load, load_inputs, npz
from pacbayes.data.npz import read_npz, read_npz_inputs
from pacbayes.errors import DataError

X = np.arange(12, dtype=np.float64).reshape(4, 3)
Y = np.array([0, 1, 2, 1])


def save(path, compressed=False, **arrays):
    (np.savez_compressed if compressed else np.savez)(path, **arrays)
    return path


def npy(array, allow_pickle=False):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=allow_pickle)
    return stream.getvalue()


def save_members(path, compression=zipfile.ZIP_DEFLATED, **members):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, raw in members.items():
            archive.writestr(f"{name}.npy", raw)
    return path


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("x", [X, np.asfortranarray(X), X.astype(np.uint8), X.astype(">f4"), X > 3])
def test_train_part(tmp_path, x, compressed):
    data = load(save(tmp_path / "mine.npz", compressed, x=x, y=Y))
    assert data.name == "mine" and data.classes == 3 and data.y.tolist() == Y.tolist()
    assert torch.equal(data.x, torch.from_numpy(x.astype(np.float32)))


def test_test_part_has_the_classes_of_both(tmp_path):
    path = save(tmp_path / "a.npz", x=X, y=Y, x_test=X[:2], y_test=np.array([0, 0]))
    test = load(str(path), "test")
    assert len(test) == 2 and test.classes == load(path).classes == 3


def test_missing_parts_are_named(tmp_path):
    path = save(tmp_path / "a.npz", x=X, y=Y)
    with pytest.raises(DataError, match="no test part: it holds no array x_test and no array y_test"):
        load(path, "test")
    with pytest.raises(DataError, match="no train part: it holds no array y$"):
        load(save(tmp_path / "b.npz", x=X))


def test_inputs_need_no_labels(tmp_path):
    for path in (save(tmp_path / "a.npz", x=X), save(tmp_path / "b.npz", x=X, y=Y)):
        x = load_inputs(path)
        assert x.dtype == torch.float32 and x.shape == (4, 3)
    with pytest.raises(DataError, match="no array x"):
        load_inputs(save(tmp_path / "c.npz", y=Y))
    with pytest.raises(DataError, match="nan"):
        load_inputs(save(tmp_path / "d.npz", x=X * np.nan))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X, "y": Y[:3]}, "4 examples but y has 3"),
        ({"x": X, "y": Y - 1}, r"y\[0\] is -1"),
        ({"x": X, "y": Y / 2}, r"y\[1\] is 0.5"),
        ({"x": X + np.inf, "y": Y}, r"x\[0\] holds inf"),
        ({"x": X[:0], "y": Y[:0]}, "no examples"),
        ({"x": X, "y": np.array(list("abcd"))}, "array y must hold real numbers"),
        ({"x": X.astype(complex), "y": Y}, "array x must hold real numbers"),
        ({"x": np.zeros(4, [("a", "f4")]), "y": Y}, "array x must hold real numbers"),
        ({"x": np.zeros(4, "M8[s]"), "y": Y}, "array x must hold real numbers"),
    ],
)
def test_bad_arrays_are_refused_with_the_file(tmp_path, arrays, message):
    path = save(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_object_arrays_are_refused(tmp_path):
    raw = npy(np.array([[1], [None]], object), allow_pickle=True)
    with pytest.raises(DataError, match="must hold real numbers, not object"):
        load_inputs(save_members(tmp_path / "a.npz", x=raw))


def test_arrays_over_the_limit_are_refused_before_they_are_read(tmp_path, monkeypatch):
    path = save(tmp_path / "a.npz", x=X, y=Y)
    monkeypatch.setattr(npz, "MAX_BYTES", 96)
    assert len(read_npz(path)) == 4
    monkeypatch.setattr(npz, "MAX_BYTES", 95)
    with pytest.raises(DataError, match="x would take 96 bytes; the limit is 95"):
        read_npz(path)
    with pytest.raises(DataError, match="the limit is 95"):
        read_npz_inputs(path)


def header(shape):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return stream.getvalue()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (header((4, 3)) + bytes(95), "announces 96 bytes, the archive 95"),
        (header((4, 3)) + bytes(97), "announces 96 bytes, the archive 97"),
        (header((2**20, 2**11)) + bytes(96), "the limit is"),
        (header((2**20, 2**9)) + bytes(96), "announces 4294967296 bytes, the archive 96"),
        (header((-4, -3)) + bytes(96), "not a readable"),
        (header((4, 3))[:40], "not a readable"),
        (header((4, 3)).replace(b"}", b"(") + bytes(96), "not a readable"),
        (b"\x93NUMPY\x09\x00" + bytes(200), "version 9.0"),
        (b"\x93NUMPY\x02\x00\x00\x00\x01\x00" + bytes(2**16), "a header of 65536 bytes"),
        (b"\x93NUMPY\x02\x00\x00", "not a readable"),
        (b"hello", "not a readable"),
        (b"", "not a readable"),
    ],
)
def test_headers_that_lie_are_refused(tmp_path, raw, message):
    with pytest.raises(DataError, match=message):
        read_npz_inputs(save_members(tmp_path / "a.npz", x=raw))


def test_a_zip_bomb_is_refused(tmp_path):
    # 64 MiB of zeros in 64 kB; the archive's own size fields are made to lie in both places.
    path = save_members(tmp_path / "a.npz", x=header((2, 2)) + bytes(2**26))
    with pytest.raises(DataError, match="announces 32 bytes, the archive 67108864"):
        load_inputs(path)
    true_size = (len(header((2, 2))) + 2**26).to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace(true_size, (len(header((2, 2))) + 32).to_bytes(4, "little")))
    with pytest.raises(DataError, match="not a readable"):
        load_inputs(path)


def test_other_compression_is_refused(tmp_path):
    with pytest.raises(DataError, match="compressed in a way"):
        load_inputs(save_members(tmp_path / "a.npz", zipfile.ZIP_LZMA, x=npy(X)))


def test_files_that_are_no_archive_are_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        load(tmp_path / "none.npz")
    path = tmp_path / "a.npz"
    for raw in (b"", b"hello", npy(X), save(tmp_path / "b.npz", x=X, y=Y).read_bytes()[:-30]):
        path.write_bytes(raw)
        with pytest.raises(DataError, match="not a readable .npz"):
            load(path)


ARCHIVE = save_members(io.BytesIO(), zipfile.ZIP_STORED, x=npy(X)).getvalue()


@settings(deadline=None)
@given(place=st.integers(0, len(ARCHIVE) - 1), byte=st.integers(0, 255))
def test_a_damaged_archive_gives_the_same_data_or_a_data_error(tmp_path_factory, place, byte):
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    path.write_bytes(ARCHIVE[:place] + bytes([byte]) + ARCHIVE[place + 1 :])
    with suppress(DataError):
        assert torch.equal(load_inputs(path), torch.from_numpy(X).float())


def test_the_test_part_may_lack_the_first_class(tmp_path):
    x = np.zeros((4, 2), np.float32)
    np.savez(tmp_path / "a.npz", x=x, y=[0, 1, 2, 1], x_test=x[:2], y_test=[1, 2])
    assert [load(tmp_path / "a.npz", part).classes for part in ("train", "test")] == [3, 3]
