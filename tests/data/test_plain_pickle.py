import os
import pickle
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacbayes.data import plain_pickle
from pacbayes.data.plain_pickle import PlainArray, read_plain
from pacbayes.errors import DataError

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31 - 1) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text(max_size=100), inner)
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(value=PLAIN, protocol=st.integers(3, 5))
def test_plain_data_reads_as_pickle_reads_it(value, protocol):
    assert read_plain(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", ["u1", "<i4", ">i4", "<f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_read(protocol, dtype, order):
    array = np.arange(6).reshape(2, 3).astype(dtype, order=order)
    note = read_plain(pickle.dumps(array, protocol))
    assert isinstance(note, PlainArray)
    assert np.array_equal(note.to_numpy(), array) and note.to_numpy().dtype == array.dtype


def test_python_2_strings_are_latin_1_text():
    assert read_plain(b"\x80\x02U\x02\xe9aq\x00.") == "\xe9a"


class Malicious:
    """Unpickled, it would leave a file behind."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch '{self.marker}'",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_malicious_pickle_is_refused_and_does_not_run(tmp_path, protocol):
    marker = tmp_path / "ran"
    pickled = pickle.dumps({"data": [Malicious(marker)]}, protocol)
    with pytest.raises(DataError, match="refused"):
        read_plain(pickled)
    assert not marker.exists()
    # The same bytes do harm in the hands of pickle, or the test would show nothing.
    pickle.loads(pickled)
    assert marker.exists()


@pytest.mark.parametrize(
    "value", [np.dtype("u1").type(3), 1.5, {1: 2}, {"k" * 101: 0}, {3}, range(3), ValueError, slice(1)]
)
def test_other_objects_are_refused(value):
    with pytest.raises(DataError, match="refused"):
        read_plain(pickle.dumps(value, 4))


def test_arrays_of_objects_are_refused(tmp_path):
    marker = tmp_path / "ran"
    with pytest.raises(DataError, match="refused"):
        read_plain(pickle.dumps(np.array([Malicious(marker)], object), 4))
    with pytest.raises(DataError, match="not of numbers"):
        read_plain(pickle.dumps(np.array([None], object), 4)).to_numpy()
    assert not marker.exists()


@pytest.mark.parametrize(
    "pickled",
    [
        b"",
        b"\x80\x02",
        b"\x80\x02.",
        b"\x80\x02K\x01K\x02.",
        b"\x80\x02h\x05.",
        b"\x80\x02K\x01a.",
        b"\x80\x02K\x01K\x01s.",
        b"\x80\x02](K\x01u.",
        b"\x80\x02t.",
        b"\x80\x02K\x01)R.",
        b"\x80\x02cnumpy\ndtype\n)R.",
        b"\x80\x02K\x01Nb.",
        b"\x80\x04]\x94]\x94\x93.",
        b"\x80\x02U\xffshort.",
        b"\xff\xff",
    ],
)
def test_corrupt_pickles_are_refused(pickled):
    with pytest.raises(DataError, match="pickle"):
        read_plain(pickled)


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@settings(deadline=None)
@given(pickled=st.binary(max_size=60))
def test_arbitrary_bytes_give_data_or_a_data_error(pickled):
    with suppress(DataError):
        value = read_plain(b"\x80\x02" + pickled + b".")
        if isinstance(value, PlainArray):
            value.to_numpy()


ARRAY = pickle.dumps(np.arange(12, dtype=np.uint8).reshape(3, 4), 2)


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@settings(deadline=None)
@given(place=st.integers(0, len(ARRAY) - 1), byte=st.integers(0, 255))
def test_a_damaged_array_gives_data_or_a_data_error(place, byte):
    with suppress(DataError):
        value = read_plain(ARRAY[:place] + bytes([byte]) + ARRAY[place + 1 :])
        if isinstance(value, PlainArray):
            value.to_numpy()


@pytest.mark.parametrize(
    "change",
    [
        {"shape": (2, 4)},
        {"shape": (-3, -4)},
        {"shape": (True, 12)},
        {"shape": (1,) * 70 + (12,)},
        {"shape": (0, 2**80), "raw": b""},
        {"shape": [12]},
        {"raw": "\u20ac" * 12},
        {"raw": None},
        {"dtype": None},
    ],
)
def test_arrays_that_describe_themselves_wrongly_are_refused(change):
    note = read_plain(ARRAY)
    for name, value in change.items():
        setattr(note, name, value)
    with pytest.raises(DataError):
        note.to_numpy()


def test_a_flood_of_opcodes_is_refused(monkeypatch):
    monkeypatch.setattr(plain_pickle, "_MAX_OPCODES", 1000)
    with pytest.raises(DataError, match="opcodes"):
        read_plain(b"\x80\x02" + b"}" * 2000 + b".")
