"""Datasets of other libraries, known by their shape and not by import: torch's, and those of Hugging Face."""

import bisect
import operator
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from pacbayes.data.scaling import scaled
from pacbayes.errors import InvalidInput

MAX_BYTES = 2**33
_LABELS = ("label", "labels")

Arrays = tuple[Any, Any, tuple[str, ...]]
"""Inputs [m, ...], labels [m], and the names of the classes, if there are any."""


def arrays_of(dataset: Any) -> Arrays | None:
    """What a dataset of another library holds; None for anything else."""
    if isinstance(dataset, dict) and hasattr(dataset, "column_names"):
        raise InvalidInput(f"this is a set of splits: choose one, {' or '.join(map(repr, dataset))}")
    if hasattr(dataset, "column_names") and hasattr(dataset, "features"):
        return _from_columns(dataset)
    if _has_items(dataset):
        found = _from_items(dataset)
        kept = (_array(one, "an input").astype(np.float32) for one in found[0][:3])
        again = (_array(dataset[i][0], "an input").astype(np.float32) for i in range(min(3, len(dataset))))
        if not all(np.array_equal(one, other, equal_nan=True) for one, other in zip(kept, again, strict=True)):
            warnings.warn(
                "the dataset gives other inputs each time it is read, by a random transformation: they are kept as "
                "they came, but read again they are not known to be the same examples. Split what was read once: "
                "pacbayes.split(dataset)",
                stacklevel=4,
            )
        return found
    if isinstance(dataset, Dataset):
        raise InvalidInput(f"{type(dataset).__name__} has no length: a bound needs a fixed set of examples")
    return None


def reader_of(dataset: Any) -> Callable[[int, int], Arrays] | None:
    """What reads the examples from one place to another, so that they need not all be in memory; or None."""
    if hasattr(dataset, "column_names") and hasattr(dataset, "select"):
        return lambda start, stop: _from_columns(dataset.select(range(start, stop)))
    if _has_items(dataset):
        return lambda start, stop: _from_items(Subset(dataset, range(start, stop)))
    return None


def origins(dataset: Any) -> list[Any]:
    """Where each example is from, below every Subset and ConcatDataset of torch: equal ones are the same example."""
    return [_origin(dataset, place) for place in range(len(dataset))]


def _origin(dataset: Any, place: Any) -> tuple[int, Any]:
    while True:
        try:
            place = operator.index(place)
        except TypeError:
            # The key of a dataset that has no places.
            return id(dataset), place if isinstance(place, Hashable) else repr(place)
        if place < 0:
            with suppress(TypeError, NotImplementedError):  # there may be no length
                place += len(dataset)
        if _looks_up_as(dataset, Subset):
            dataset, place = dataset.dataset, dataset.indices[place]
        elif _looks_up_as(dataset, ConcatDataset):
            part = bisect.bisect_right(dataset.cumulative_sizes, place)
            place -= dataset.cumulative_sizes[part - 1] if part else 0
            dataset = dataset.datasets[part]
        else:
            return id(dataset), place


def _looks_up_as(dataset: Any, kind: type) -> bool:
    """Whether its examples are those of this class, which one of one's own may change."""
    return isinstance(dataset, kind) and all(
        getattr(type(dataset), name) is getattr(kind, name) for name in ("__getitem__", "__len__")
    )


def _has_items(value: Any) -> bool:
    """Whether it is a dataset of torch whose examples have numbers."""
    return isinstance(value, Dataset) and hasattr(value, "__getitem__") and hasattr(value, "__len__")


def _from_items(dataset: Any) -> Arrays:
    """Each item of a torch Dataset, (x, y), read once: a random transformation is frozen as it comes."""
    # A subclass may give its items otherwise than it holds them.
    if type(dataset) is TensorDataset and len(dataset.tensors) == 2:
        return (*dataset.tensors, ())
    labels = []

    def inputs() -> Iterable[np.ndarray]:
        for i in range(len(dataset)):
            item = dataset[i]
            if not isinstance(item, tuple | list) or len(item) != 2:
                raise InvalidInput(f"item {i} of the dataset is not a pair (x, y)")
            label = _array(item[1], f"the label of item {i}")
            if label.size != 1:
                raise InvalidInput(
                    f"the label of item {i} has {label.size} numbers: give the class as one number, such as "
                    "one_hot.argmax()"
                )
            labels.append(label.item())
            yield _array(item[0], f"the input of item {i}")

    return _filled(len(dataset), inputs(), "the dataset"), np.array(labels), _names_of(dataset)


def _array(value: Any, what: str) -> np.ndarray:
    if isinstance(value, Tensor):
        value = (value.float() if value.is_floating_point() else value).numpy(force=True)
    array = np.asarray(value) if isinstance(value, np.ndarray | np.generic | int | float | Sequence) else None
    if array is None or array.dtype.kind not in "biuf":
        raise InvalidInput(
            f"{what} is a {type(value).__name__}, not numbers: give the dataset a transformation that makes a tensor"
        )
    return array


def _filled(examples: int, inputs: Iterable[np.ndarray], whose: str) -> np.ndarray:
    """All inputs in one array."""
    room: np.ndarray | None = None
    for i, one in enumerate(inputs):
        if room is None:
            if (size := 4 * examples * int(np.prod(one.shape, dtype=object))) > MAX_BYTES:
                raise InvalidInput(
                    f"{examples} examples of shape {list(one.shape)} take {size} bytes; the limit is {MAX_BYTES}: "
                    "pacbayes.store(dataset, folder) writes them to a folder that is read as needed"
                )
            room = np.empty((examples, *one.shape), np.float32)
        if one.shape != room.shape[1:]:
            raise InvalidInput(f"item {i} of {whose} has shape {list(one.shape)}, and item 0 {list(room.shape[1:])}")
        room[i] = one
    if room is None:
        raise InvalidInput("the dataset holds no examples")
    return room


def _names_of(dataset: Any) -> tuple[str, ...]:
    """``classes``, as torchvision's datasets have it, also of the whole that a subset is of."""
    while not hasattr(dataset, "classes") and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    return _words(getattr(dataset, "classes", ()))


def _words(names: Any) -> tuple[str, ...]:
    listed = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    return tuple(names) if listed else ()


def _from_columns(dataset: Any) -> Arrays:
    """A Hugging Face dataset: its ClassLabel (or a column label or labels), and all the other columns."""
    columns = list(dataset.column_names)
    features = dataset.features or {}
    names = {column: _words(getattr(features.get(column), "names", ())) for column in columns}
    found = [c for c in columns if names[c]] or [c for c in columns if c in _LABELS]
    if len(found) != 1:
        raise InvalidInput(f"one column must be a ClassLabel, or be called label; the columns are {', '.join(columns)}")
    label = found[0]
    inputs = [_column(dataset, column) for column in columns if column != label]
    if len(inputs) == 1:
        x = inputs[0] if inputs[0].ndim > 1 else inputs[0][:, None]
    elif inputs and all(values.ndim == 1 for values in inputs):
        x = np.stack(inputs, 1)
    else:
        raise InvalidInput(
            f"the inputs must be one column, or several of single numbers; remove others with remove_columns: "
            f"{', '.join(c for c in columns if c != label)}"
        )
    return x, list(dataset[label]), names[label]


def _column(dataset: Any, column: str) -> np.ndarray:
    """Numbers as they are; images scaled as those of a folder are, channels first."""

    def inputs() -> Iterable[np.ndarray]:
        for value in dataset[column]:
            if getattr(value, "mode", "") in ("P", "PA", "1"):
                value = value.convert("L" if value.mode == "1" else "RGB")  # numbers of colours, or of bits
            one = np.asarray(value)
            if hasattr(value, "getbands") and one.dtype == np.uint8:
                one = scaled(one[None] if one.ndim == 2 else one.transpose(2, 0, 1))
            if one.dtype.kind not in "biuf":
                raise InvalidInput(
                    f"column {column!r} holds {type(value).__name__}, not numbers: embed or encode it, or remove the "
                    "column"
                )
            yield one

    return _filled(len(dataset), inputs(), f"column {column!r}")
