"""The catalogue on small datasets: the published entries with other counts, addresses and checksums."""

import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import torch

from pacbayes.data import available, load
from pacbayes.data.folders import cache_folder
from pacbayes.data.published import ENTRIES
from pacbayes.errors import DataError, InvalidInput, MissingData

M = 20


def digest(*arrays):
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


@pytest.fixture
def small_mnist(monkeypatch, images):
    """(pixels [m, 28, 28], labels) that the catalogue now takes for the train part of MNIST."""
    pixels, labels = images(M, (28, 28))
    entry = ENTRIES["mnist"]
    train = replace(entry.train, count=M, sha256=digest(pixels, labels))
    monkeypatch.setitem(ENTRIES, "mnist", replace(entry, train=train))
    return pixels, labels


@pytest.fixture
def small_cifar(monkeypatch, images):
    """Likewise for the test part of CIFAR-10: (pixels [m, 3, 32, 32], labels)."""
    pixels, labels = images(M, (3, 32, 32))
    entry = ENTRIES["cifar10"]
    test = replace(entry.test, count=M, sha256=digest(pixels, labels))
    monkeypatch.setitem(ENTRIES, "cifar10", replace(entry, test=test))
    return pixels, labels


def write_mnist(
    write_idx, folder, arrays, images_name="train-images-idx3-ubyte", labels_name="train-labels-idx1-ubyte"
):
    write_idx(folder / images_name, arrays[0])
    write_idx(folder / labels_name, arrays[1])


def test_available_names_can_all_be_looked_up():
    names = dict(available())
    assert set(names) == {
        *("digits", "strokes", "mnist", "fashion-mnist", "cifar10"),
        *("digits-binary", "mnist-binary", "fashion-mnist-binary"),
    }
    assert all(line and "\n" not in line for line in names.values())


@pytest.mark.parametrize("name", ["mnits", "", "data.txt", "MNIST"])
def test_unknown_names_are_refused_with_the_choices(name):
    with pytest.raises(MissingData, match="choose digits, strokes, mnist"):
        load(name)


def test_a_near_miss_gets_a_hint():
    with pytest.raises(MissingData, match="did you mean 'fashion-mnist'"):
        load("fashion_mnist")


@pytest.mark.parametrize("name", ["digits", "a.npz"])
def test_unknown_parts_are_refused(name):
    with pytest.raises(InvalidInput, match="part must be 'train' or 'test', not 'valid'"):
        load(name, "valid")


@pytest.mark.parametrize("below", ["mnist", ""])
@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("spelling", ["-idx", ".idx"])
def test_idx_files_are_found_by_every_spelling(tmp_path, write_idx, small_mnist, below, ending, spelling):
    names = f"train-images{spelling}3-ubyte{ending}", f"train-labels{spelling}1-ubyte{ending}"
    write_mnist(write_idx, tmp_path / below, small_mnist, *names)
    data = load("mnist", folder=tmp_path, download=False)
    assert data.x.shape == (M, 1, 28, 28) and data.classes == 10 and data.name == "mnist"
    assert np.array_equal(data.y, small_mnist[1])
    expected = (small_mnist[0][:, None] / 255 / 0.25).astype(np.float32)
    assert torch.equal(data.x, torch.from_numpy(expected))


def test_binary_mnist(tmp_path, write_idx, small_mnist):
    write_mnist(write_idx, tmp_path / "mnist", small_mnist)
    data = load("mnist-binary", folder=tmp_path, download=False)
    assert data.classes == 2 and np.array_equal(data.y, small_mnist[1] >= 5)


def test_folders_are_searched_in_order(tmp_path, write_idx, small_mnist, monkeypatch):
    """A bad copy shows which folder was read."""
    monkeypatch.setenv("PACBAYES_DATA", str(tmp_path / "environment"))
    places = [tmp_path / "argument", tmp_path / "environment", cache_folder()]
    write_mnist(write_idx, places[2] / "mnist", small_mnist)
    assert len(load("mnist", folder=places[0], download=False)) == M
    for place in (places[1], places[0]):
        write_mnist(write_idx, place / "mnist", (small_mnist[0], small_mnist[1][::-1]))
        with pytest.raises(DataError, match="not those published") as caught:
            load("mnist", folder=places[0], download=False)
        assert str(place / "mnist") in str(caught.value)


@pytest.mark.parametrize("form", ["binary", "python2", "protocol 4"])
@pytest.mark.parametrize("below", ["", "cifar10", "cifar10/cifar-10-batches-bin", "cifar-10-batches-py"])
def test_cifar_batches_of_either_form(tmp_path, encode_batch, small_cifar, form, below):
    path = tmp_path / below / ("test_batch.bin" if form == "binary" else "test_batch")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_batch(*small_cifar, form))
    data = load("cifar10", "test", folder=tmp_path, download=False)
    assert data.x.shape == (M, 3, 32, 32) and data.class_names[0] == "airplane"
    assert np.array_equal(data.y, small_cifar[1])
    expected = ((small_cifar[0] / 255 - 0.5) / 0.25).astype(np.float32)
    assert torch.equal(data.x, torch.from_numpy(expected))


def test_wrong_counts_other_data_and_damage_say_what_to_do(tmp_path, write_idx, small_mnist):
    pixels, labels = small_mnist
    again = "Delete it and get mnist .train part. again from https://ossci-datasets"
    write_mnist(write_idx, tmp_path, (pixels[:-1], labels))
    with pytest.raises(DataError, match=f"expected sizes 20 x 28 x 28, found 19 x 28 x 28.*{again}"):
        load("mnist", folder=tmp_path)
    write_mnist(write_idx, tmp_path, (pixels ^ 1, labels))
    with pytest.raises(DataError, match=f"not those published.*{again}"):
        load("mnist", folder=tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(gzip.compress(path.read_bytes())[:-20])
    with pytest.raises(DataError, match=f"truncated or corrupt.*{again}"):
        load("mnist", folder=tmp_path)


def test_the_published_counts_are_asked_for(tmp_path, write_idx, images):
    write_mnist(write_idx, tmp_path, images(M, (28, 28)))
    with pytest.raises(DataError, match="expected sizes 60000 x 28 x 28"):
        load("fashion-mnist", folder=tmp_path)


def test_a_missing_dataset_says_what_where_and_how(tmp_path, monkeypatch):
    monkeypatch.setenv("PACBAYES_DATA", str(tmp_path / "environment"))
    with pytest.raises(DataError) as caught:
        load("mnist", folder=tmp_path / "argument", download=False)
    message = str(caught.value)
    for part in (
        *("train-images-idx3-ubyte.gz", "train-images.idx3-ubyte", "downloading was switched off"),
        *(str(tmp_path / "argument" / "mnist"), str(tmp_path / "environment"), str(cache_folder())),
        *("https://ossci-datasets.s3.amazonaws.com/mnist/train-images-idx3-ubyte.gz", "440fcabf73cc"),
    ):
        assert part in message
    assert "\n" not in message


def test_without_pooch_the_message_adds_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(DataError, match=r"found no data_batch_1.bin.*pip install pooch.*cifar-10-binary.tar.gz"):
        load("cifar10")


def publish(monkeypatch, name, part_name, files):
    """Make `files` those of a part in the catalogue."""
    entry = ENTRIES[name]
    part = replace(getattr(entry, part_name), files=tuple(files))
    monkeypatch.setitem(ENTRIES, name, replace(entry, **{part_name: part}))


def served_file(file, server, raw):
    """`file` as the local server has it."""
    folder, address = server
    name = file.url.rsplit("/", 1)[1]
    (folder / name).write_bytes(raw)
    return replace(file, url=address + name, sha256=hashlib.sha256(raw).hexdigest())


@pytest.fixture
def online_mnist(tmp_path, monkeypatch, write_idx, small_mnist, server):
    """The small MNIST, to be had from the local server only."""
    files = [
        served_file(file, server, write_idx(tmp_path / "file.gz", values).read_bytes())
        for file, values in zip(ENTRIES["mnist"].train.files, small_mnist, strict=True)
    ]
    publish(monkeypatch, "mnist", "train", files)
    return files


def test_missing_files_are_downloaded_once(tmp_path, server, online_mnist):
    first = load("mnist", folder=tmp_path / "empty")
    for path in server[0].iterdir():
        path.unlink()
    assert load("mnist", download=False).fingerprint() == first.fingerprint()
    assert (cache_folder() / "mnist" / "train-images-idx3-ubyte.gz").is_file()


def test_a_download_with_another_hash_is_refused(monkeypatch, online_mnist):
    publish(monkeypatch, "mnist", "train", [replace(file, sha256="0" * 64) for file in online_mnist])
    with pytest.raises(DataError, match="found no train-images.*failed.*hash.*put it"):
        load("mnist")
    assert list((cache_folder() / "mnist").iterdir()) == []


def test_the_cifar_archive_is_unpacked_and_removed(monkeypatch, encode_batch, small_cifar, server):
    batch = encode_batch(*small_cifar, "binary")
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for stem in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{stem}.bin")
            info.size = len(batch)
            tar.addfile(info, io.BytesIO(batch))
    publish(
        monkeypatch,
        "cifar10",
        "test",
        [served_file(ENTRIES["cifar10"].test.files[0], server, stream.getvalue())],
    )
    first = load("cifar10", "test")
    assert load("cifar10", "test", download=False).fingerprint() == first.fingerprint()
    names = {path.name for path in (cache_folder() / "cifar10").iterdir()}
    assert names == {*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"}


def test_importing_is_light():
    heavy = "{'sklearn', 'pooch', 'matplotlib'}"
    script = f"import sys, pacbayes.data; sys.exit(', '.join({heavy} & set(sys.modules)) or 0)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
