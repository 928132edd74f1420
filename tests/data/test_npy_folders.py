"""Folders of `.npy` files: the same data as in memory, read as needed; and files that are not what they say."""

import copy
import io
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pacbayes.data import as_data, load, load_inputs, split
from pacbayes.data.streamed import Streamed, on_device
from pacbayes.errors import DataError, InvalidInput, MissingData

X = np.random.default_rng(0).normal(size=(40, 2, 3)).astype(np.float32)
Y = np.arange(40) % 3


def folder(path, **arrays):
    path.mkdir(exist_ok=True)
    for name, array in arrays.items():
        np.save(path / f"{name}.npy", array)
    return path


@pytest.mark.parametrize("x", [X, X.astype(np.float64), X.astype(">f4"), (50 * X).astype(np.int8), X > 0])
def test_the_same_data_as_in_memory(tmp_path, x):
    arrays = {"x": x, "y": Y, "x_test": x[:5], "y_test": Y[:5].astype(np.uint8)}
    np.savez(tmp_path / "mine.npz", **arrays)
    place = folder(tmp_path / "mine", **arrays)
    for part in ("train", "test"):
        stored, held = load(place, part), load(tmp_path / "mine.npz", part)
        assert isinstance(stored.x, Streamed) and isinstance(held.x, torch.Tensor)
        assert (len(stored), stored.shape, stored.classes, stored.name) == (len(held), held.shape, 3, "mine")
        assert stored.fingerprint() == held.fingerprint() and torch.equal(stored.y, held.y)
        assert stored.summary() == held.summary()
    stored, held = load(place), load(tmp_path / "mine.npz")
    assert torch.equal(stored.x[:], held.x) and torch.equal(load_inputs(place)[:], held.x)
    for a, b in zip(split(stored, 0.5, seed=3), split(held, 0.5, seed=3), strict=True):
        assert isinstance(a.x, Streamed) and a.x.values.base is stored.x.values.base  # a view, not a copy
        assert a.fingerprint() == b.fingerprint() == stored.fingerprint_of(a.source[1])
        assert torch.equal(a.take([3, 1]).x[:], b.take([3, 1]).x)


def test_a_folder_may_have_a_mark_in_its_name(tmp_path):
    assert len(load(folder(tmp_path / "a#b", x=X, y=Y))) == len(Y)
    with pytest.raises(InvalidInput, match="leave out #8"):
        load(f"{tmp_path / 'a#b'}#8")


def test_rows_are_picked_as_those_of_a_tensor(tmp_path):
    place = folder(tmp_path / "a", x=X, y=Y)
    whole = torch.from_numpy(X)
    order = torch.randperm(40)
    for x, rows in ((load(place).x, torch.arange(40)), (load(place).take(order.numpy()).x, order)):
        expected = whole[rows]
        assert (x.shape, x.ndim, x.dtype, len(x), x.numel()) == (expected.shape, 3, torch.float32, 40, 240)
        picks = (0, -1, slice(None), slice(3, 9), slice(30, 99), slice(5, 5), torch.tensor([4, 4, -2]), rows % 2 == 0)
        for pick in (*picks, [4, 4, -2], np.array([4, 4, -2]), (rows % 2 == 0).numpy()):
            assert torch.equal(x[pick], expected[pick]), pick
        assert all(torch.equal(a, b) for a, b in zip(x.split(16), expected.split(16), strict=True))
    x[0].zero_()  # what was read is the reader's own
    assert torch.equal(load(place).x[:], whole)
    for pick in ((0, 0), (slice(None), 0), [[0]], [0.5]):
        with pytest.raises(InvalidInput, match="by row alone"):
            x[pick]


def test_overlaps_are_noticed(tmp_path):
    stored = load(folder(tmp_path / "a", x=X, y=Y))
    prior, bound = split(stored, 0.5)
    assert not prior.overlaps(bound) and prior.overlaps(stored) and not bound.repeats and bound.take([1, 1]).repeats
    # The same by their values, where they come from elsewhere.
    held_prior, held_bound = split((X, Y), 0.5)
    other = as_data((X[::2], Y[::2]), classes=3)
    assert not held_prior.overlaps(bound) and held_bound.overlaps(bound) and bound.overlaps(other)
    assert not bound.overlaps(as_data((X + 1, Y)))


def test_a_copy_of_what_holds_data_does_not_read_them(tmp_path):
    stored = load(folder(tmp_path / "a", x=X, y=Y))
    assert copy.deepcopy([stored])[0] is stored


def test_mapped_arrays_stay_on_disk(tmp_path):
    folder(tmp_path / "a", x=X, y=Y)
    mapped = np.load(tmp_path / "a" / "x.npy", mmap_mode="r")
    data = as_data((mapped[10:], Y[10:]))
    assert isinstance(data.x, Streamed) and data.fingerprint() == as_data((X[10:], Y[10:])).fingerprint()
    # One that may be written to is copied, as all others are.
    assert isinstance(as_data((np.load(tmp_path / "a" / "x.npy", mmap_mode="r+"), Y)).x, torch.Tensor)


def test_class_names(tmp_path):
    place = folder(tmp_path / "a", x=X, y=Y, x_test=X, y_test=Y)
    (place / "classes.txt").write_text("ash\nbeech\ncedar\nréd oak\n", "utf-8")
    for part in ("train", "test"):
        assert load(place, part).class_names == ("ash", "beech", "cedar", "réd oak") and load(place, part).classes == 4
    (place / "classes.txt").write_text("ash\nbeech\n")
    with pytest.raises(DataError, match=r"a: label y\[2\] is 2, not a whole number from 0 to 1"):
        load(place)
    (place / "classes.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="not a readable list of class names"):
        load(place)


@pytest.mark.parametrize(
    ("arrays", "error", "message"),
    [
        ({"x": X}, MissingData, "no train part: there is no y.npy in it"),
        ({"inputs": X, "labels": Y}, MissingData, "no train part: there is no x.npy and no y.npy in it"),
        ({"x": X, "y": Y[:3]}, DataError, "40 examples but y has 3"),
        ({"x": X, "y": Y + 0.5}, DataError, r"y\[0\] is 0.5"),
        ({"x": X, "y": Y[:, None]}, DataError, "one label an example"),
        ({"x": X, "y": Y + 1}, DataError, "no label is 0"),
        ({"x": X[:, 0, 0], "y": Y}, DataError, "two dimensions or more"),
        ({"x": X[:0], "y": Y[:0]}, DataError, "holds no examples"),
        ({"x": np.where(np.arange(40)[:, None] == 33, np.nan, 1.0), "y": Y}, DataError, r"x\[33\] holds nan"),
        ({"x": np.full((40, 2), 1e300), "y": Y}, DataError, r"x\[0\] holds inf"),
        ({"x": X.astype(complex), "y": Y}, DataError, "x.npy: the array must hold real numbers, not complex128"),
        ({"x": np.zeros(40, [("a", "f4")]), "y": Y}, DataError, "must hold real numbers"),
        ({"x": X, "y": np.array(["a"] * 40)}, DataError, "y.npy: the array must hold real numbers"),
        ({"x": np.asfortranarray(X), "y": Y}, DataError, "Fortran's order"),
    ],
)
def test_bad_folders_are_refused_with_their_place(tmp_path, arrays, error, message):
    place = folder(tmp_path / "a", **arrays)
    with pytest.raises(error, match=message) as caught:
        load(place)
    assert str(place) in str(caught.value)


def test_a_missing_test_part_is_named(tmp_path):
    with pytest.raises(MissingData, match="no test part: there is no x_test.npy and no y_test.npy"):
        load(folder(tmp_path / "a", x=X, y=Y), "test")


def header(shape, descr="<f4"):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue()


OBJECT = io.BytesIO()
np.save(OBJECT, np.array([[1], [None]], object), allow_pickle=True)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (OBJECT.getvalue(), "must hold real numbers, not object"),
        (header((4, 3)) + bytes(47), "announces 48 bytes, and the file has 47"),
        (header((4, 3)) + bytes(49), "announces 48 bytes, and the file has 49"),
        (header((2**40, 2**40)) + bytes(48), "announces 4835703278458516698824704 bytes, and the file has 48"),
        (header((-4, -3)) + bytes(48), "holds no examples"),
        (header((2**62, 0)) + bytes(48), "holds no examples"),
        (header((4, 3), "|V12") + bytes(144), "must hold real numbers"),
        (header((4, 3)).replace(b"(4, 3)", b"(4,X3)") + bytes(48), "not a readable .npy"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(2**16), "a header of 4294967295 bytes"),
        (b"\x93NUMPY\x09\x00" + bytes(200), "version 9.0"),
        (header((4, 3))[:40], "not a readable .npy"),
        (b"", "not a readable .npy"),
    ],
)
def test_headers_that_lie_are_refused(tmp_path, raw, message):
    place = folder(tmp_path / "a", y=Y)
    (place / "x.npy").write_bytes(raw)
    for read in (load, load_inputs):
        with pytest.raises(DataError, match=message):
            read(place)


PLAIN = header((4, 3)) + np.arange(12, dtype="<f4").tobytes()


@settings(deadline=None)
@given(place=st.integers(0, len(header((4, 3))) - 1), byte=st.integers(0, 255))
@pytest.mark.filterwarnings("ignore")
def test_a_damaged_header_gives_numbers_or_a_data_error(tmp_path_factory, place, byte):
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.mkdir(exist_ok=True)
    (path / "x.npy").write_bytes(PLAIN[:place] + bytes([byte]) + PLAIN[place + 1 :])
    with suppress(DataError):
        assert load_inputs(path)[:].numel() in (12, 24)


def test_a_file_that_changes_under_way_is_noticed(tmp_path):
    data = load(folder(tmp_path / "a", x=X, y=Y))
    first = data.fingerprint()
    folder(tmp_path / "a", x=X + 1)
    with pytest.raises(DataError, match=r"x.npy has changed since it was opened"):
        data.x[:1]
    assert load(tmp_path / "a").fingerprint() != first
    (tmp_path / "a" / "x.npy").unlink()
    with pytest.raises(DataError, match=r"x.npy cannot be read any more"):
        data.take([1]).x[:]


def test_what_has_no_room_on_a_device_is_copied_row_by_row(tmp_path, monkeypatch):
    """A device without room is stood in for by the CPU."""
    stored, held = load(folder(tmp_path / "a", x=X, y=Y)), as_data((X, Y))
    cpu = torch.device("cpu")
    assert on_device(held.x, cpu) is held.x and on_device(stored.x, cpu) is stored.x
    monkeypatch.setattr("pacbayes.data.streamed.has_room", lambda device, size: size < 960)
    for data in (stored, held):
        given = on_device(data.x, cpu)
        assert isinstance(given, Streamed) and given.device == cpu
        assert torch.equal(given[torch.tensor([5, 2])], held.x[[5, 2]])
        assert on_device(data.take([1]).x, cpu) is not given
