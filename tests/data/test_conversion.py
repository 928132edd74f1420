"""Datasets of all kinds, written to a folder a few examples at a time: the same data as in memory."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from pacbayes.data import Data, Streamed, as_data, conversion, image_folders, load, store
from pacbayes.errors import DataError, InvalidInput, MissingData, RunError

X = np.random.default_rng(0).normal(size=(30, 2, 3)).astype(np.float32)
Y = np.arange(30) % 3
NAMES = ("ash", "beech", "cedar")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(conversion, "_PIECE_BYTES", 4 * 6 * 7)


class Items(Dataset):
    classes = list(NAMES)

    def __init__(self, x, y):
        self.x, self.y, self.asked = x, y, []

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        self.asked.append(i)
        return self.x[i], self.y[i]


class Columns:
    """What a Hugging Face dataset looks like from outside."""

    def __init__(self, **columns):
        self.columns, self.column_names, self.features = columns, list(columns), dict.fromkeys(columns)

    def __len__(self):
        return len(self.columns["label"])

    def __getitem__(self, name):
        return self.columns[name]

    def select(self, rows):
        assert len(rows) < len(self)
        return Columns(**{name: [values[i] for i in rows] for name, values in self.columns.items()})


def same(stored, held):
    assert isinstance(stored.x, Streamed)
    assert stored.fingerprint() == held.fingerprint() and stored.class_names == held.class_names


@pytest.mark.parametrize(
    "dataset",
    [
        (X, Y),
        as_data((X, Y)).take(np.arange(29, -1, -1)),
        Data(torch.from_numpy(X), torch.from_numpy(Y), 3, class_names=NAMES),
        TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)),
        Items(X, Y),
        Columns(x=list(X), label=Y),
        Columns(a=X[:, 0, 0], b=X[:, 0, 1], label=[NAMES[y] for y in Y]),
        Columns(a=X[:, 0, 0], label=Y),
    ],
)
def test_the_same_data_as_in_memory(tmp_path, dataset):
    same(store(dataset, tmp_path / "new" / "folder"), as_data(dataset))
    assert {file.name for file in (tmp_path / "new" / "folder").iterdir()} <= {"x.npy", "y.npy", "classes.txt"}


def test_each_item_is_read_once_and_in_order(tmp_path):
    items = Items(X, Y)
    store(items, tmp_path)
    assert items.asked == [*range(30)]


def test_classes_that_the_labels_do_not_show(tmp_path):
    data = Data(torch.from_numpy(X), torch.from_numpy(Y), 5)
    stored = store(data, tmp_path)
    assert stored.fingerprint() == data.fingerprint() and stored.class_names == ("0", "1", "2", "3", "4")


def test_images_beyond_the_limit_of_memory(tmp_path, monkeypatch):
    generator = np.random.default_rng(0)
    for part, count in (("train", 5), ("test", 2)):
        for name in NAMES[:2]:
            (tmp_path / "photos" / part / name).mkdir(parents=True)
            for i in range(count):
                # All but one are grey: all have three channels.
                shape = (4, 6, 3) if (part, name, i) == ("train", "beech", 4) else (4, 6)
                pixels = generator.integers(0, 256, shape, np.uint8)
                Image.fromarray(pixels).save(tmp_path / "photos" / part / name / f"{i}.png")
    source = f"{tmp_path / 'photos'}#3"
    held = load(source)
    monkeypatch.setattr(image_folders, "MAX_BYTES", 100)
    with pytest.raises(DataError, match="with 'pacbayes store'"):
        load(source)
    same(store(source, tmp_path / "stored"), held)
    test = store(source, tmp_path / "stored", "test")
    assert len(test) == 4 and test.classes == 2 and test.shape == (1, 3, 3)


def test_both_parts_in_one_folder(tmp_path):
    store(Items(X, Y), tmp_path)
    words = Columns(x=list(X[:4]), label=["cedar", "ash", "ash", "cedar"])
    assert store(words, tmp_path, "test").y.tolist() == [2, 0, 0, 2]
    for part in ("train", "test"):
        with pytest.raises(DataError, match="is there already: name another folder"):
            store(Items(X, Y), tmp_path, part)
    for name in ("x.npy", "y.npy"):
        (tmp_path / name).unlink()
    with pytest.raises(DataError, match="names other classes"):
        store(Data(torch.from_numpy(X), torch.from_numpy(Y), 3, class_names=("a", "b", "c")), tmp_path)


class Meanwhile(Items):
    """Amid which another process comes."""

    def __init__(self, x, y, comes):
        super().__init__(x, y)
        self.comes = comes

    def __getitem__(self, i):
        if i == 9:
            self.comes()
        return super().__getitem__(i)


def test_two_processes_do_not_write_to_one_folder_at_a_time(tmp_path):
    def comes():
        with pytest.raises(RunError, match="another process is at work in"):
            store((X, Y), tmp_path)

    same(store(Meanwhile(X, Y, comes), tmp_path), as_data(Items(X, Y)))


def test_what_another_process_wrote_meanwhile_is_kept(tmp_path, monkeypatch):
    source = conversion._source
    monkeypatch.setattr(conversion, "_source", lambda *a: (monkeypatch.undo(), store((X, Y), tmp_path), source(*a))[2])
    with pytest.raises(DataError, match="is there already"):
        store((X[:4], Y[:4]), tmp_path)
    assert len(load(tmp_path)) == 30


@pytest.mark.parametrize(
    ("dataset", "error", "words"),
    [
        (Items([], []), InvalidInput, "no examples"),
        (Items([*X[:20], X[20][:1], *X[21:]], Y), InvalidInput, "shape"),
        (Items(np.where(np.arange(30)[:, None] == 17, np.inf, 1.0), Y), InvalidInput, r"x\[17\] holds inf"),
        (Items(X, Y - 1), InvalidInput, r"y\[0\] is -1"),
        (Items(X[:, 0, 0], Y), InvalidInput, "two dimensions"),
        (Columns(x=list(X), label=["a\nb", *["c"] * 29]), InvalidInput, "must be a line of text"),
        ("nowhere", MissingData, "no file, folder or dataset 'nowhere'"),
        (7, InvalidInput, "expected Data"),
    ],
)
def test_what_is_no_data_leaves_nothing(tmp_path, dataset, error, words):
    with pytest.raises(error, match=words):
        store(dataset, tmp_path / "new")
    assert not (tmp_path / "new").exists() or not list((tmp_path / "new").iterdir())


def test_a_part_that_is_not_there(tmp_path):
    (tmp_path / "photos" / "ash").mkdir(parents=True)
    with pytest.raises(MissingData):
        store(tmp_path / "photos", tmp_path / "new", "test")
    with pytest.raises(InvalidInput, match="'train' or 'test', not 'all'"):
        store((X, Y), tmp_path / "new", "all")
