"""``load``: a dataset by its name in the catalogue, or from a file or folder of one's own."""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np

from pacbayes.checks import did_you_mean
from pacbayes.data.csv_tables import read_csv, read_csv_inputs
from pacbayes.data.dataset import Data
from pacbayes.data.download import download as fetch
from pacbayes.data.download import unpack
from pacbayes.data.folders import ENVIRONMENT_VARIABLE, cache_folder, data_folders, expanded, find_file, parted
from pacbayes.data.image_folders import find_images, read_image_folder, read_images
from pacbayes.data.npy_folders import is_npy_folder, read_npy_folder, read_npy_inputs
from pacbayes.data.npz import read_npz, read_npz_inputs
from pacbayes.data.pixels import Pixels
from pacbayes.data.published import ENTRIES, Entry, File, Part
from pacbayes.data.scaling import IMAGES, Scaling
from pacbayes.data.streamed import Inputs
from pacbayes.errors import DataError, InvalidInput, MissingData

# Two-class versions, as in much of the literature: the first five classes against the last five.
_BINARY = {f"{name}-binary": name for name in ("digits", "mnist", "fashion-mnist")}

# Published data that are in memory already are not read and checked again: runs of one process share them.
_in_use: WeakValueDictionary[tuple[str, ...], Data] = WeakValueDictionary()


def load(
    name: str | os.PathLike[str],
    part: str = "train",
    *,
    folder: str | os.PathLike[str] | None = None,
    download: bool = True,
) -> Data:
    """The "train" or "test" part of a dataset.

    name: one of :func:`pacbayes.data.available`; or a path that ends in ``.npz`` (arrays x, y; x_test, y_test for the
    test part); or one that ends in ``.csv``, with ``#column`` behind it to say which holds the labels; or a folder of
    images, one subfolder a class, with ``#64`` behind it to scale them to 64 x 64 pixels; or a folder with x.npy and
    y.npy (x_test.npy, y_test.npy), whose inputs are not held in memory but read as they are needed.
    folder: searched first; then the folder PACBAYES_DATA names, then the user's cache. What lies in none of
    them is downloaded into the cache, unless ``download`` is False.
    """
    if not isinstance(name, str | os.PathLike):
        raise InvalidInput(f"data are known by a name or a path, and this is {name!r}; pairs (x, y) need no load()")
    # Data of one's own lie where their name says, and need no home folder.
    folders = [] if _reader(os.fspath(name)) else data_folders(folder)
    key = (os.fspath(name), part, *map(str, folders))
    if (data := _in_use.get(key)) is None:
        found = find(name, part, folder=folder, download=download)
        if isinstance(found, Data):
            return found
        _in_use[key] = data = found.take(np.arange(len(found)))
    return data


def find(
    name: str | os.PathLike[str],
    part: str = "train",
    *,
    folder: str | os.PathLike[str] | None = None,
    download: bool = True,
) -> Data | Pixels:
    """As ``load``, but a dataset of the catalogue stays in its pixels: a quarter of the memory, for fingerprints."""
    if part not in ("train", "test"):
        raise InvalidInput(f"part must be 'train' or 'test', not {part!r}")
    name = os.fspath(name)
    if (read := _reader(name)) is not None:
        return read(part)
    original = _BINARY.get(name, name)
    if original not in ENTRIES:
        names = [known for known, _ in available()]
        raise MissingData(
            f"no file, folder or dataset {name!r}: choose {', '.join(names)}, or a path that ends in .npz or .csv, or "
            f"that of a folder of images or of .npy files{did_you_mean(name, names)}"
        )
    folders = data_folders(folder)
    data = _load_entry(original, ENTRIES[original], part, folders, download)
    return data if name == original else _binary(data, name)


def load_inputs(
    name: str | os.PathLike[str], *, folder: str | os.PathLike[str] | None = None, features: Sequence[str] = ()
) -> Inputs:
    """Inputs to predict, float32 [m, ...], with labels or without.

    The array x of a ``.npz`` file or of a folder of ``.npy`` files; the columns of a ``.csv`` file but for that of the
    labels, in their order; all images of a folder with subfolders; or the test part of a dataset of the catalogue.
    features: the columns of a ``.csv`` file to take, by their names.
    """
    name = os.fspath(name)
    kind, path, detail = _own(name) or ("", Path(), "")
    if kind == "npz":
        return read_npz_inputs(path)
    if kind == "csv":
        return read_csv_inputs(path, detail, features)
    if kind == "npy":
        return read_npy_inputs(path)
    if kind == "images":
        images = find_images(path, detail)
        return read_images(images.files, images.shape, resize=bool(detail))
    return load(name, "test", folder=folder).x


def _own(name: str) -> tuple[str, Path, str] | None:
    """(kind, path, what stands behind #), if this is a path to data of one's own."""
    place, detail = parted(name)
    path = expanded(place)
    if not place or name in ENTRIES or name in _BINARY:
        return None
    if name.lower().endswith(".npz"):
        return "npz", expanded(name), ""
    if place.lower().endswith(".csv"):
        return "csv", path, detail
    if is_npy_folder(path) and not detail:
        return "npy", path, ""
    if is_npy_folder(path):
        raise InvalidInput(f"{place} has inputs of one shape, in a file: leave out #{detail}")
    return ("images", path, detail) if path.is_dir() else None


def _reader(name: str) -> Callable[[str], Data] | None:
    """What reads the train or test part, if this is a path to data of one's own."""
    if (own := _own(name)) is None:
        return None
    kind, path, detail = own
    readers: dict[str, Callable[[str], Data]] = {
        "npz": partial(read_npz, path),
        "csv": partial(read_csv, path, detail),
        "npy": partial(read_npy_folder, path),
        "images": partial(read_image_folder, path, detail),
    }
    return readers[kind]


def image_folder(name: str) -> tuple[Path, str] | None:
    """(folder, side), if this is a folder of images."""
    kind, path, side = _own(name) or ("", Path(), "")
    return (path, side) if kind == "images" else None


def image_scaling(name: str) -> Scaling | None:
    """What was made of the pixels of these data; None if they are no images."""
    entry = ENTRIES.get(_BINARY.get(name, name))
    if entry is None:
        return IMAGES if image_folder(name) is not None else None
    return entry.scaling


def is_embedded(name: str) -> bool:
    """Whether a dataset comes with the package, and so lies in no folder."""
    entry = ENTRIES.get(_BINARY.get(name, name))
    return entry is not None and not entry.train.files


def available() -> list[tuple[str, str]]:
    """Each name of the catalogue with a line that describes it."""
    binary = [(name, f"{original}, classes 0 to 4 against 5 to 9") for name, original in _BINARY.items()]
    return [(name, entry.description) for name, entry in ENTRIES.items()] + binary


def _binary(data: Pixels, name: str) -> Pixels:
    return replace(data, labels=(data.labels >= 5).astype(np.int64), name=name, class_names=("0 to 4", "5 to 9"))


def _load_entry(name: str, entry: Entry, part_name: str, folders: list[Path], download: bool) -> Pixels:
    part: Part = getattr(entry, part_name)
    paths = [_locate(file, name, entry, folders, download) for file in part.files]
    try:
        pixels, labels = part.read(paths, (part.count, *entry.shape))
        _check_contents(pixels, labels, part, paths)
    except DataError as error:
        source = ", ".join(dict.fromkeys(file.url for file in part.files)) or "scikit-learn"
        raise DataError(f"{error}. Delete it and get {name} ({part_name} part) again from {source}") from error
    return Pixels(pixels, labels.astype(np.int64), entry.scaling, name, entry.class_names)


def _check_contents(pixels: np.ndarray, labels: np.ndarray, part: Part, paths: list[Path]) -> None:
    digest = hashlib.sha256(np.ascontiguousarray(pixels).data)
    digest.update(np.ascontiguousarray(labels).data)
    if digest.hexdigest() != part.sha256:
        raise DataError(
            f"{', '.join(map(str, paths)) or 'the data'}: the pixels or labels are not those published: "
            f"expected SHA-256 {part.sha256}, found {digest.hexdigest()}"
        )


def _locate(file: File, name: str, entry: Entry, folders: list[Path], download: bool) -> Path:
    """The file in the first folder that has it, or else a fresh copy in the cache."""
    places = [base / below for top in folders for base in (top / name, top) for below in ("", *entry.subfolders)]
    if (found := find_file(file.names, places)) is not None:
        return found
    reason = "downloading was switched off"
    if download:
        try:
            return _fetch(file, entry, cache_folder() / name)
        except DataError as error:
            reason = str(error)
    raise MissingData(
        f"{name}: found no {' or '.join(file.names)} in {', '.join(map(str, folders))}, nor in {name} below; "
        f"{reason}. Get {file.url} (SHA-256 {file.sha256}) and put it, unpacked if it is a tar archive, "
        f"into {folders[0] / name}, or set {ENVIRONMENT_VARIABLE} to the folder that holds it"
    )


def _fetch(file: File, entry: Entry, target: Path) -> Path:
    fetched = fetch(file.url, file.sha256, target)
    if not fetched.name.endswith(".tar.gz"):
        return fetched
    # Everything wanted is taken out at once, and the archive goes: it would double the space.
    unpack(fetched, [other.names[0] for other in (*entry.train.files, *entry.test.files)], target)
    fetched.unlink(missing_ok=True)
    return target / file.names[0]
