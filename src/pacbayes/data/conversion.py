"""``store``: any dataset as a folder of ``.npy`` files, written a few examples at a time, which ``load`` then maps."""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from pacbayes.data.arrays import as_data, count_classes
from pacbayes.data.catalogue import image_folder, load
from pacbayes.data.dataset import Data
from pacbayes.data.folders import expanded
from pacbayes.data.image_folders import find_images, point_out_empty_classes
from pacbayes.data.labels import number_labels
from pacbayes.data.npy import map_array
from pacbayes.data.npy_folders import CLASS_NAMES, part_files, read_class_names, read_npy_folder
from pacbayes.data.objects import Arrays, origins, reader_of
from pacbayes.data.streamed import rows_of_bytes
from pacbayes.errors import DataError, InvalidInput
from pacbayes.files import alone_in, write_atomically

# How much is in memory at a time.
_PIECE_BYTES = 2**24


def store(dataset: Any, folder: str | os.PathLike[str], part: str = "train") -> Data:
    """Write a dataset into a folder whose inputs :func:`load` reads as they are needed; the data as they are there.

    dataset: a folder of images, ``"photos#64"``, or anything else that :func:`load` takes by name; a torch ``Dataset``
    or a Hugging Face dataset, each example of which is read once, in order; ``Data``, or a pair ``(x, y)``. Images and
    datasets need not fit into memory.
    part: "train" or "test"; one folder can have both.
    """
    if part not in ("train", "test"):
        raise InvalidInput(f"part must be 'train' or 'test', not {part!r}")
    target = expanded(folder)
    _check_free(target, part)
    count, read = _source(dataset, part)
    target.mkdir(parents=True, exist_ok=True)
    with alone_in(target):
        _check_free(target, part)  # another process may have come to its end meanwhile
        _write(target, part, count, read)
    return read_npy_folder(target, part)


def _check_free(target: Path, part: str) -> None:
    if there := [target / name for name in part_files(part) if os.path.lexists(target / name)]:
        raise DataError(f"{there[0]} is there already: name another folder, or remove it")


def _write(target: Path, part: str, count: int, read: Callable[[int, int], Arrays]) -> None:
    x, y = (target / name for name in part_files(part))
    unfinished = x.with_name(f".{x.name}.partial")
    try:
        labels, names = _write_inputs(unfinished, count, read)
        known = read_class_names(target)
        if labels.dtype.kind == "U":
            labels, names = number_labels(labels.tolist(), names or known)
        if names and known and names != known:
            raise DataError(f"{target / CLASS_NAMES} names other classes than these data have: name another folder")
        # Whatever is wrong with the data is found before they have their names.
        classes = len(names or known) or count_classes(labels, *([[0, 1]] if part == "test" else []))
        data = as_data((map_array(unfinished), labels), classes=classes)
        if names and not known:
            write_atomically(target / CLASS_NAMES, _lines(names))
        content = io.BytesIO()
        np.save(content, data.y.numpy())
        write_atomically(y, content.getvalue())
        unfinished.replace(x)
    finally:
        unfinished.unlink(missing_ok=True)


def _source(dataset: Any, part: str) -> tuple[int, Callable[[int, int], Arrays]]:
    """How many examples there are, and what reads them from one place to another."""
    if isinstance(dataset, str | os.PathLike):
        if (place := image_folder(os.fspath(dataset))) is not None:
            images = find_images(*place, part)
            point_out_empty_classes(place[0])
            return len(images), lambda start, stop: (
                images.read(slice(start, stop)),
                images.labels[start:stop],
                images.class_names,
            )
        dataset = load(dataset, part)
    if (read := reader_of(dataset)) is not None:
        count = len(dataset)
        if isinstance(dataset, Dataset):
            _refuse_repeats(len(set(origins(dataset))) < count)
        return count, read
    data = as_data(dataset)
    _refuse_repeats(data.repeats)
    names = data.class_names
    if not names and data.classes > count_classes(data.y):
        # The labels do not show how many there are.
        names = tuple(map(str, range(data.classes)))
    return len(data), lambda start, stop: (
        data.x[start:stop].numpy(force=True),
        data.y[start:stop].numpy(force=True),
        names,
    )


def _refuse_repeats(repeats: bool) -> None:
    if repeats:
        raise InvalidInput("some examples are taken twice, which nobody could tell from the folder: take each once")


def _write_inputs(path: Path, count: int, read: Callable[[int, int], Arrays]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Write the inputs, float32; the labels as they come, and the names of the classes, if there are any."""
    if count < 1:
        raise InvalidInput("the dataset holds no examples")
    path.unlink(missing_ok=True)
    labels, start, step = [], 0, 1
    shape: tuple[int, ...] = ()
    with path.open("xb") as file:
        while start < count:
            stop = min(count, start + step)
            inputs, some, names = read(start, stop)
            with np.errstate(over="ignore"):
                values = np.ascontiguousarray(inputs, "<f4")
            if start == 0:
                shape = values.shape[1:]
                form = {"descr": "<f4", "fortran_order": False, "shape": (count, *shape)}
                np.lib.format.write_array_header_1_0(file, form)
                step = rows_of_bytes(shape, _PIECE_BYTES)
            if values.shape[1:] != shape:
                raise InvalidInput(
                    f"example {start} has shape {list(values.shape[1:])}, and example 0 has {list(shape)}"
                )
            file.write(values.data)
            labels.append(np.asarray(some))
            start = stop
    return np.concatenate(labels), names


def _lines(names: tuple[str, ...]) -> bytes:
    if bad := [name for name in names if not name or "\n" in name or "\r" in name]:
        raise InvalidInput(f"{bad[0]!r} is no name of a class: it must be a line of text")
    return "".join(f"{name}\n" for name in names).encode("utf-8", "backslashreplace")
