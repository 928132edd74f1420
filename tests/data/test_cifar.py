import pickle

import numpy as np
import pytest

from pacbayes.data import cifar
from pacbayes.data.cifar import read_batch, read_batches
from pacbayes.errors import DataError

FORMS = ["binary", "python2", "protocol 2", "protocol 3", "protocol 4", "protocol 5"]


def file_name(form, stem="data_batch_1"):
    return f"{stem}.bin" if form == "binary" else stem


@pytest.mark.parametrize("form", FORMS)
def test_each_form_reads_as_it_was_written(tmp_path, images, encode_batch, form):
    pixels, labels = images(300, (3, 32, 32))
    path = tmp_path / file_name(form)
    path.write_bytes(encode_batch(pixels, labels, form))
    found_pixels, found_labels = read_batch(path, 300)
    assert np.array_equal(found_pixels, pixels) and np.array_equal(found_labels, labels)
    assert found_pixels.dtype == found_labels.dtype == np.uint8


def test_batches_are_joined_in_order(tmp_path, images, encode_batch):
    paths, pixels = [], []
    for i, form in enumerate(["binary", "python2"]):
        batch, labels = images(4, (3, 32, 32), seed=i)
        paths.append(tmp_path / file_name(form, f"data_batch_{i}"))
        paths[-1].write_bytes(encode_batch(batch, labels, form))
        pixels.append(batch)
    found, labels = read_batches(paths, (8, 3, 32, 32))
    assert np.array_equal(found, np.concatenate(pixels)) and labels.tolist() == [0, 1, 2, 3] * 2


@pytest.mark.parametrize("form", FORMS)
def test_bad_labels_and_counts_are_refused(tmp_path, images, encode_batch, form):
    pixels, labels = images(5, (3, 32, 32))
    path = tmp_path / file_name(form)
    path.write_bytes(encode_batch(pixels, labels, form))
    with pytest.raises(DataError, match="expected 6 images, found 5"):
        read_batch(path, 6)
    labels[3] = 10
    path.write_bytes(encode_batch(pixels, labels, form))
    with pytest.raises(DataError, match="label 3 is 10, expected 0 to 9"):
        read_batch(path, 5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cut", [0, 1, 3000, -1])
def test_truncated_batches_are_refused(tmp_path, images, encode_batch, form, cut):
    path = tmp_path / file_name(form)
    path.write_bytes(encode_batch(*images(5, (3, 32, 32)), form)[:cut])
    with pytest.raises(DataError) as caught:
        read_batch(path, 5)
    assert str(path) in str(caught.value)


DATA = np.zeros((2, 3072), np.uint8)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([1, 2], "no dict"),
        ({"labels": [0, 1]}, "no dict with an array"),
        ({"data": [0], "labels": [0, 1]}, "no dict with an array"),
        ({"data": DATA.astype(np.int16), "labels": [0, 1]}, r"expected uint8 \[m, 3072\], found int16"),
        ({"data": DATA[:, :-1].copy(), "labels": [0, 1]}, r"found uint8 \[2, 3071\]"),
        ({"data": DATA.reshape(-1), "labels": [0, 1]}, r"found uint8 \[6144\]"),
        ({"data": DATA}, "expected a list 'labels'"),
        ({"data": DATA, "labels": [0]}, "expected a list 'labels'"),
        ({"data": DATA, "labels": [0, -1]}, "expected labels 0 to 9"),
        ({"data": DATA, "labels": [0, 2**20]}, "expected labels 0 to 9"),
        ({"data": DATA, "labels": [0, "1"]}, "expected labels 0 to 9"),
    ],
)
def test_python_batches_with_other_contents_are_refused(tmp_path, batch, message):
    path = tmp_path / "test_batch"
    path.write_bytes(pickle.dumps(batch, 4))
    with pytest.raises(DataError, match=message):
        read_batch(path, 2)


def test_large_and_missing_files_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "data_batch_1.bin"
    with pytest.raises(DataError, match="cannot be read"):
        read_batch(path, 1)
    path.write_bytes(bytes(3073))
    monkeypatch.setattr(cifar, "_MAX_BYTES", 3072)
    with pytest.raises(DataError, match="too large"):
        read_batch(path, 1)
