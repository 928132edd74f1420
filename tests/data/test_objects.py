"""Datasets of other libraries: the same examples, labels and names."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from pacbayes.data import as_data, objects, split
from pacbayes.errors import InvalidInput

X = np.arange(24, dtype=np.float32).reshape(4, 6)
Y = np.array([0, 1, 2, 1])


class Items(Dataset):
    classes = ["ash", "beech", "cedar"]

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Columns:
    """What a Hugging Face dataset looks like from outside."""

    def __init__(self, columns, names=()):
        self.columns, self.column_names = columns, list(columns)
        self.features = {name: object() for name in columns}
        if names:
            self.features["kind"] = type("ClassLabel", (), {"names": list(names)})()

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name):
        return self.columns[name]


def same(data, names=()):
    assert data.fingerprint() == as_data((X, Y)).fingerprint()
    assert data.class_names == tuple(names)


@pytest.mark.parametrize("convert", [torch.from_numpy, np.asarray, lambda x: x.tolist()])
@pytest.mark.parametrize("label", [int, torch.tensor, np.int64])
def test_items_of_a_torch_dataset(convert, label):
    same(as_data(Items([(convert(x), label(y)) for x, y in zip(X, Y, strict=True)])), Items.classes)


def test_tensor_datasets_and_subsets():
    whole = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    same(as_data(whole))
    items = Items(list(zip(X, Y, strict=True)))
    part = as_data(Subset(items, [3, 0]))
    assert part.x.tolist() == X[[3, 0]].tolist() and part.class_names == ("ash", "beech", "cedar")
    assert part.classes == 3


def test_they_can_be_split():
    prior_data, bound_data = split(TensorDataset(torch.randn(40, 3), torch.arange(40) % 2), 0.5)
    assert len(prior_data) == len(bound_data) == 20


class Endless(IterableDataset):
    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (Items([]), "no examples"),
        (Items([(X[0], 0), (X[1][:5], 1)]), r"item 1 of the dataset has shape \[5\], and item 0 \[6\]"),
        (Items([X[0]]), "item 0 of the dataset is not a pair"),
        (Items([(Image.new("L", (2, 2)), 0)]), "input of item 0 is a Image, not numbers: give the dataset a"),
        (Items([(X[0], "ash")]), "the label of item 0 is a str"),
        (Items([(X[0], 0), (X[1], 7)]), r"y\[1\] is 7"),
        (Endless(), "has no length"),
    ],
)
def test_bad_torch_datasets_are_named(dataset, words):
    with pytest.raises(InvalidInput, match=words):
        as_data(dataset)


def test_sizes_are_bounded(monkeypatch):
    monkeypatch.setattr(objects, "MAX_BYTES", 50)
    for dataset in (Items([(x, 0) for x in X]), Columns({"x": list(X), "label": Y})):
        with pytest.raises(InvalidInput, match=r"4 examples of shape \[6\] take 96 bytes; the limit is 50"):
            as_data(dataset)


def test_columns_of_numbers_and_arrays():
    same(as_data(Columns({"x": list(X), "label": list(Y)})))
    same(as_data(Columns({"kind": list(Y), "x": X.tolist()}, ["a", "b", "c"])), ["a", "b", "c"])
    same(as_data(Columns({f"c{i}": list(X[:, i]) for i in range(6)} | {"labels": list(Y)})))
    assert as_data(Columns({"x": [1.0, 2.0], "label": ["no", "yes"]})).class_names == ("no", "yes")


def test_columns_of_images():
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 5, 3), np.uint8)
    data = as_data(Columns({"image": [Image.fromarray(p) for p in pixels], "label": [0, 1]}))
    assert data.shape == (3, 3, 5)
    assert np.allclose(data.x.numpy(), (pixels.transpose(0, 3, 1, 2) / 255 - 0.5) / 0.25, atol=1e-6)
    assert as_data(Columns({"image": [Image.new("L", (5, 3))] * 2, "label": [0, 1]})).shape == (1, 3, 5)


class Splits(dict):
    column_names = None


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (Columns({"x": [1.0]}), "the columns are x"),
        (Columns({"text": ["good", "bad"], "label": [1, 0]}), "column 'text' holds str, not numbers: embed"),
        (Columns({"x": [X[0], X[0][:2]], "label": [0, 1]}), r"item 1 of column 'x' has shape"),
        (Columns({"x": list(X), "z": list(X), "label": Y}), "remove_columns: x, z"),
        (Columns({"label": [0, 1]}), "inputs must be one column"),
        (Splits(train=1, test=2), "choose one, 'train' or 'test'"),
    ],
)
def test_bad_columns_are_named(dataset, words):
    with pytest.raises(InvalidInput, match=words):
        as_data(dataset)


def test_pandas_tables():
    pandas = pytest.importorskip("pandas")
    names = pandas.Series(np.array(["ash", "beech", "cedar"])[Y])
    for y in (names, names.astype("category"), names.astype(object), names.tolist()):
        same(as_data((pandas.DataFrame(X), y)), Items.classes)
    same(as_data((pandas.DataFrame(X), pandas.Series(Y))))


class Halved(TensorDataset):
    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        return x / 2, y


def test_a_subclass_gives_its_items_as_it_says():
    x, y = torch.arange(12.0).view(6, 2), torch.arange(6) % 2
    assert torch.equal(as_data(Halved(x, y)).x, x / 2)


def test_items_that_change_are_pointed_out():
    class Noisy(TensorDataset):
        def __getitem__(self, i):
            x, y = super().__getitem__(i)
            return x + torch.randn(2), y

    with pytest.warns(UserWarning, match="other inputs each time"):
        as_data(Noisy(torch.zeros(6, 2), torch.arange(6) % 2))


@pytest.mark.parametrize(("mode", "channels"), [("P", 3), ("1", 1)])
def test_images_of_numbered_colours_are_seen_in_their_colours(mode, channels):
    images = [Image.new("RGB", (2, 2), colour).convert(mode) for colour in ("red", "white")]
    data = as_data(Columns({"image": images, "label": [0, 1]}))
    assert data.x.shape == (2, channels, 2, 2)
    plain = [image.convert("RGB" if channels == 3 else "L") for image in images]
    plain = as_data(Columns({"image": plain, "label": [0, 1]}))
    assert torch.equal(data.x, plain.x)
