"""The genuine datasets, where they are at hand: in the folder that PACBAYES_DATA names."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pacbayes.data import load

FOLDER = Path(os.environ.get("PACBAYES_DATA") or "no folder")
MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def genuine(name, *rest):
    """A test case that is skipped where the folder holds no such dataset."""
    absent = not (FOLDER / name).is_dir()
    return pytest.param(name, *rest, marks=pytest.mark.skipif(absent, reason=f"no {name} in {FOLDER}"))


@pytest.mark.parametrize(
    ("name", "part", "counts"),
    [
        genuine("mnist", "train", MNIST_TRAIN),
        genuine("mnist", "test", MNIST_TEST),
        genuine("fashion-mnist", "train", [6000] * 10),
        genuine("fashion-mnist", "test", [1000] * 10),
    ],
)
def test_idx_datasets(name, part, counts):
    data = load(name, part, folder=FOLDER, download=False)
    assert data.x.shape == (sum(counts), 1, 28, 28)
    assert np.bincount(data.y).tolist() == counts
    assert data.x.min() == 0 and data.x.max() == 4
    assert len(data.class_names) == 10


@pytest.mark.parametrize("name", [genuine("mnist")])
def test_binary_mnist(name):
    data = load(f"{name}-binary", "test", folder=FOLDER, download=False)
    assert np.bincount(data.y).tolist() == [sum(MNIST_TEST[:5]), sum(MNIST_TEST[5:])]


UNPACKER = FOLDER / "unpack_cifar10.py"


@pytest.mark.skipif(not UNPACKER.is_file(), reason=f"no CIFAR-10 mosaics and {UNPACKER.name} in {FOLDER}")
def test_cifar10_test_batch_in_both_forms(tmp_path, encode_batch):
    pytest.importorskip("PIL")
    binary = tmp_path / "binary" / "cifar-10-batches-bin"
    command = [sys.executable, UNPACKER, FOLDER / "cifar10", binary, "test_batch"]
    subprocess.run(command, check=True, capture_output=True)
    data = load("cifar10", "test", folder=tmp_path / "binary", download=False)
    assert data.x.shape == (10_000, 3, 32, 32)
    assert np.bincount(data.y).tolist() == [1000] * 10
    assert data.x.min() == -2 and data.x.max() == 2
    # The first test image is the well-known cat, and the second a ship.
    assert [data.class_names[label] for label in data.y[:2]] == ["cat", "ship"]

    records = np.fromfile(binary / "test_batch.bin", np.uint8).reshape(-1, 3073)
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "test_batch").write_bytes(encode_batch(records[:, 1:], records[:, 0], "python2"))
    again = load("cifar10", "test", folder=tmp_path / "python", download=False)
    assert again.fingerprint() == data.fingerprint()
