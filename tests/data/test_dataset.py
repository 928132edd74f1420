import hashlib
import json

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch.utils.data import DataLoader, TensorDataset

from pacbayes.data import Data, as_data
from pacbayes.data.dataset import spread_rows
from pacbayes.errors import InvalidInput

X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.array([0, 1, 2, 1])


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor, lambda v: v.tolist(), lambda v: list(v)])
def test_arrays_tensors_and_lists_make_the_same_data(convert):
    data = as_data((convert(X), convert(Y)))
    assert data.x.dtype == torch.float32 and data.y.dtype == torch.int64
    assert len(data) == 4 and data.shape == (3,) and data.classes == 3 and data.name == "data"
    assert data.fingerprint() == as_data((X, Y)).fingerprint()


@pytest.mark.parametrize("dtype", ["u1", "i2", "i8", "f2", "f8", ">f4", ">i4"])
def test_any_real_dtype_is_converted(dtype):
    data = as_data((X.astype(dtype), Y.astype(dtype)))
    assert torch.equal(data.x, torch.from_numpy(X)) and torch.equal(data.y, torch.from_numpy(Y))


def test_bfloat16_and_booleans_are_converted():
    x = torch.ones(2, 3, dtype=torch.bfloat16)
    assert as_data((x, np.array([True, False]))).y.tolist() == [1, 0]


def test_inputs_that_are_being_trained_are_refused():
    x = torch.ones(2, 3, requires_grad=True)
    for made in (lambda: as_data((x, [0, 1])), lambda: Data(x, torch.tensor([0, 1]), 2)):
        with pytest.raises(InvalidInput, match="carry a gradient"):
            made()


def test_data_passes_through():
    data = as_data((X, Y), classes=5, name="mine")
    assert as_data(data) is data and as_data(data, classes=5) is data
    assert (data.classes, data.name) == (5, "mine")
    with pytest.raises(InvalidInput, match="have 5 classes, and the network 3 outputs"):
        as_data(data, classes=3)


def test_values_are_copied():
    x, y = X.copy(), torch.from_numpy(Y.copy())
    data = as_data((x, y))
    x[0, 0], y[0] = 99, 1
    assert data.x[0, 0] == 0 and data.y[0] == 0


def spoilt(value, row=2):
    x = X.copy()
    x[row, 1] = value
    return x


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (spoilt(np.nan), Y, r"x\[2\] holds nan"),
        (spoilt(-np.inf), Y, r"x\[2\] holds -inf"),
        (X.astype(np.float64) * 1e300, Y, r"x\[0\] holds inf; every value must be finite in float32"),
        (X, [0, 1, 1.5, -1], r"y\[2\] is 1.5"),
        (X, [0, 1, -1, 0], r"y\[2\] is -1"),
        (X, [0, np.nan, 1, 0], r"y\[1\] is nan"),
        (X, [0, np.inf, 1, 0], r"y\[1\] is inf"),
        (X, [0, 1, 2**40, 0], r"y\[2\] is 1099511627776"),
        (X, [b"a", b"b", b"c", b"d"], "y must hold real numbers"),
        (X, Y[:, None], r"one label an example, shape \[m\], not \[4, 1\]"),
        (X, np.eye(3)[Y], r"not \[4, 3\]: take y.argmax\(1\)"),
        (X, Y[:3], "4 examples but y has 3 labels"),
        (X, [0, 0, 0, 0], "classes must be at least 2, not 1"),
        (X[:0], Y[:0], "no examples"),
        (X[:, :0], Y, "no examples"),
        (X[:, 0], Y, "two dimensions or more"),
        (X.astype(str), Y, "x must hold real numbers"),
        (X.astype(complex), Y, "x must hold real numbers"),
        (X.astype(object), Y, "x must hold real numbers"),
        (csr_array(X), Y, r"take x.toarray\(\)"),
        (torch.tensor(X).to_sparse(), Y, r"take x.to_dense\(\)"),
        (np.ma.masked_array(X, X > 3), Y, "x has masked values"),
        (X, ["a", None, "b", "a"], r"label y\[1\] is missing"),
        ([[1.0, 2.0], [3.0]], [0, 1], "x is not an array"),
    ],
)
def test_bad_values_are_refused(x, y, message):
    with pytest.raises(InvalidInput, match=message):
        as_data((x, y))


@pytest.mark.parametrize(
    ("classes", "message"),
    [(2, r"y\[2\] is 2, not a whole number from 0 to 1"), (1, "from 0 to 0"), (2.5, "must be an integer")],
)
def test_bad_classes_are_refused(classes, message):
    with pytest.raises(InvalidInput, match=message):
        as_data((X, Y), classes=classes)


def test_tables_of_several_kinds_of_numbers():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1] > 4, "c": pandas.array(X[:, 2].astype(int), dtype="Int64")})
    expected = np.stack([X[:, 0], X[:, 1] > 4, X[:, 2]], 1)
    assert np.array_equal(as_data((table, Y)).x.numpy(), expected)
    table.loc[2, "c"] = pandas.NA
    with pytest.raises(InvalidInput, match=r"x\[2\] holds nan"):
        as_data((table, Y))
    with pytest.raises(InvalidInput, match="column 'd' does not hold numbers"):
        as_data((table.assign(c=0, d="word"), Y))
    with pytest.raises(InvalidInput, match="column 'e' does not hold numbers"):
        as_data((table.assign(c=0, e=pandas.Timestamp(0)), Y))
    alike = pandas.DataFrame(X, columns=["a", "a", "b"])
    assert np.array_equal(as_data((alike, Y)).x.numpy(), X)
    with pytest.raises(InvalidInput, match=r"label y\[1\] is missing"):
        as_data((X, pandas.Series(["u", None, "v", "u"], dtype="string")))


def test_of_a_loader_its_dataset_is_asked_for():
    with pytest.raises(InvalidInput, match=r"not DataLoader: give its dataset"):
        as_data(DataLoader(TensorDataset(torch.tensor(X), torch.tensor(Y))))


@pytest.mark.parametrize("value", [X, (X,), (X, Y, Y), None, "mnist", {"x": X}])
def test_what_is_no_pair_is_refused(value):
    with pytest.raises(InvalidInput, match="expected Data, a pair"):
        as_data(value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(4, 3, dtype=torch.float64)}, "must be float32"),
        ({"y": torch.zeros(4, dtype=torch.int32)}, "must be float32 and y int64"),
        ({"y": torch.zeros(3, dtype=torch.int64)}, "4 examples but y has 3"),
        ({"y": torch.zeros(4, 1, dtype=torch.int64)}, "one label an example"),
        ({"y": torch.tensor([0, 1, 3, 1])}, r"y\[2\] is 3"),
        ({"x": torch.full((4, 3), torch.nan)}, "nan"),
        ({"classes": 1}, "at least 2"),
        ({"class_names": ("a", "b")}, "2 class names for 3 classes"),
    ],
)
def test_data_cannot_be_built_bad(change, message):
    good = {"x": torch.from_numpy(X), "y": torch.from_numpy(Y), "classes": 3}
    Data(**good)
    with pytest.raises(InvalidInput, match=message):
        Data(**good | change)


@pytest.mark.parametrize("indices", [[2, 0, 2], np.array([2, 0, 2], np.uint8), torch.tensor([2, 0, 2])])
def test_take_keeps_the_order(indices):
    data = as_data((X, Y), classes=7, name="mine")
    part = data.take(indices)
    assert part.y.tolist() == [2, 0, 2] and torch.equal(part.x, data.x[[2, 0, 2]])
    assert (part.classes, part.name) == (7, "mine")


@pytest.mark.parametrize("indices", [[4], [-1], [], [0.5], [True, False, True, True], [[0]], 1])
def test_take_refuses_bad_indices(indices):
    with pytest.raises(InvalidInput, match="ind(ex|ices)"):
        as_data((X, Y)).take(indices)


def test_fingerprint_is_the_documented_hash():
    header = json.dumps({"classes": 3, "shape": [4, 3]})
    expected = hashlib.sha256(b"pacbayes-data-1 " + header.encode() + b"\n")
    expected.update(X.astype("<f4").tobytes() + Y.astype("<i8").tobytes())
    assert as_data((X, Y)).fingerprint() == expected.hexdigest()


def test_fingerprint_sees_every_change_of_value_but_not_names_or_memory():
    data = as_data((X, Y))
    others = [
        as_data((spoilt(np.nextafter(np.float32(7), np.float32(8))), Y)),
        as_data((X, [0, 1, 2, 2])),
        as_data((X, Y), classes=4),
        as_data((X.reshape(4, 3, 1), Y)),
        data.take([1, 0, 2, 3]),
    ]
    assert len({data.fingerprint(), *(other.fingerprint() for other in others)}) == 6
    strided = Data(torch.from_numpy(np.asfortranarray(X)), data.y, 3, "other", ("a", "b", "c"))
    assert strided.fingerprint() == data.fingerprint()


def test_fingerprint_is_computed_once(monkeypatch):
    data = as_data((X, Y))
    first = data.fingerprint()
    monkeypatch.setattr(hashlib, "sha256", None)
    assert data.fingerprint() == first


def test_the_summary_counts_the_classes():
    data = Data(torch.zeros(4, 3), torch.tensor([0, 1, 1, 2]), 3, "trees", ("ash", "beech", "cedar"))
    assert data.class_counts() == [1, 2, 1]
    lines = data.summary().splitlines()
    assert lines == [
        "trees: 4 examples of shape 3, 3 classes",
        "classes: ash 25.0 %, beech 50.0 %, cedar 25.0 %",
    ]


def test_the_summary_says_what_an_imbalance_means():
    data = Data(torch.zeros(100, 2, 2), torch.tensor([0] * 95 + [1] * 5), 3, "fraud")
    assert data.class_counts() == [95, 5, 0]
    text = data.summary()
    assert "shape 2 x 2" in text and "imbalanced: 2 has 0 of 100 examples, and always answering 0 errs on 5.0 %" in text
    many = Data(torch.zeros(50, 1), torch.arange(50), 50)
    assert "and 30 more" in many.summary() and "imbalanced" not in many.summary()


def test_words_for_labels_name_the_classes():
    data = as_data((X, ["oak", "ash", "elm", "ash"]))
    assert data.y.tolist() == [2, 0, 1, 0] and data.class_names == ("ash", "elm", "oak")
    with pytest.raises(InvalidInput, match=r"3 classes, and the network 4 outputs.*output="):
        as_data((X, ["oak", "ash", "elm", "ash"]), classes=4)
    with pytest.raises(InvalidInput, match="y must hold real numbers"):
        as_data((X, np.array(["oak", 1, 2, 3], object)))


@pytest.mark.parametrize("m", [1, 5, 719, 16_777_220, 20_000_000, 2**40 + 1])
def test_rows_spread_from_the_first_to_the_last(m):
    rows = spread_rows(m, 32)
    assert int(rows[0]) == 0 and int(rows[-1]) == m - 1 and len(rows) == min(m, 32)


def test_classes_counted_by_numpy():
    data = Data(torch.zeros(4, 2), torch.tensor([0, 1, 2, 0]), classes=np.int64(3))
    assert type(data.classes) is int and data.fingerprint()
