"""What users have in memory, as ``Data``: pairs of arrays, tensors, lists, tables, and datasets of other libraries."""

import operator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Subset

from pacbayes.data.dataset import Data, check_inputs, check_labels, refuse_gradient
from pacbayes.data.labels import number_labels, refuse_missing
from pacbayes.data.objects import arrays_of, origins
from pacbayes.data.streamed import Streamed
from pacbayes.errors import InvalidInput


def as_data(data: Any, *, classes: int | None = None, name: str = "data") -> Data:
    """``Data`` as it is; or a pair ``(x, y)`` of arrays, tensors, lists or pandas' tables, checked and copied into one.

    x: numbers, [m, ...]; y: whole numbers or words, [m]. ``classes`` defaults to the number of words, or to the largest
    label plus one. Also a torch ``Dataset`` of pairs (each read once) and a Hugging Face dataset of numbers or images.
    An x that is mapped from a file, ``np.load("x.npy", mmap_mode="r")``, is not copied but read as it is needed.
    """
    if isinstance(data, Data):
        _check_outputs(data.classes, classes)
        return data
    given = data
    class_names: tuple[str, ...] = ()
    if (arrays := arrays_of(data)) is not None:
        *data, class_names = arrays
    if not isinstance(data, tuple | list) or len(data) != 2:
        of_loader = ": give its dataset, loader.dataset" if isinstance(data, DataLoader) else ""
        raise InvalidInput(f"expected Data, a pair (x, y) or a dataset, not {type(data).__name__}{of_loader}")
    if classes is not None:
        try:
            classes = operator.index(classes)
        except TypeError:
            raise InvalidInput(f"classes must be an integer, not {classes!r}") from None
    if (words := _words(data[1])) is not None:
        values, class_names = number_labels(words, class_names)
        data = data[0], values
    x, labels = Streamed(data[0]) if _mapped(data[0]) else as_inputs(data[0]), _labels(data[1])
    if len(labels) != len(x):
        raise InvalidInput(f"x has {len(x)} examples but y has {len(labels)} labels")
    if class_names:
        _check_outputs(len(class_names), classes)
    if classes is None:
        classes = len(class_names) or count_classes(labels)
    check_labels(labels, classes)
    found = Data(x, torch.from_numpy(labels.astype(np.int64)), classes, name, class_names)
    return _marked(found, origins(given)) if isinstance(given, Subset | ConcatDataset) else found


def _marked(data: Data, whence: list[Any]) -> Data:
    """Data some of which were taken twice, as by Data.take(): whatever counts the examples must know."""
    first: dict[Any, int] = {}
    places = [first.setdefault(origin, place) for place, origin in enumerate(whence)]
    return data if len(first) == len(places) else replace(data, source=(data, np.array(places)))


def _check_outputs(found: int, classes: int | None) -> None:
    if classes not in (None, found):
        raise InvalidInput(
            f"the data have {found} classes, and the network {classes} outputs, where it needs one for "
            "each class. The last nn.Linear that a model registers is taken for its output: "
            "stochastic(model, output=...) names another"
        )


def _mapped(x: Any) -> bool:
    """Whether x is a file that this process does not write to."""
    return isinstance(x, np.memmap) and not x.flags.writeable


def _words(y: Any) -> list[str] | None:
    """Labels that are words; None where they are not."""
    if isinstance(y, Tensor):
        return None
    try:
        values = np.asarray(y)
    except (ValueError, TypeError, RuntimeError):
        return None
    words = values.tolist() if values.ndim == 1 and values.dtype.kind in "UOT" else []
    refuse_missing(words)
    return words if words and all(isinstance(word, str) for word in words) else None


def count_classes(*parts: Any) -> int:
    """The largest label plus one: how many classes the labels of all parts show when nobody says."""
    for part in parts:
        check_labels(_labels(part), None)
    labels = np.concatenate([_labels(part) for part in parts])
    if labels.size and labels.min() > 0:
        raise InvalidInput(
            f"no label is 0, the smallest is {labels.min()}: labels count from 0 (np.unique(y, return_inverse=True)[1] "
            "makes them so)"
        )
    return int(labels.max(initial=0)) + 1


def as_inputs(values: Any) -> Tensor:
    """Inputs without labels as a float32 tensor [m, ...] of its own memory, checked like ``Data.x``."""
    # Overflow to float32 infinity is reported by the check that follows, with its place.
    with np.errstate(over="ignore"):
        x = torch.from_numpy(_numbers(values, "x").astype(np.float32, order="C"))
    check_inputs(x)
    return x


def _numbers(values: Any, what: str) -> np.ndarray:
    """``values`` as an array of booleans, integers or floats."""
    if isinstance(values, Tensor):
        refuse_gradient(values)
        if values.layout != torch.strided:
            raise InvalidInput(f"{what} is sparse: take {what}.to_dense()")
        # numpy knows no bfloat16.
        values = (values.float() if values.is_floating_point() else values).numpy(force=True)
    if np.ma.is_masked(values):
        raise InvalidInput(f"{what} has masked values: fill them in, or leave these examples out")
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InvalidInput(f"{what} is not an array: {error}") from None
    if array.dtype.kind == "O" and hasattr(values, "iloc") and hasattr(values, "dtypes") and array.ndim == 2:
        array = _table(values)
    if array.dtype.kind not in "biuf":
        sparse = f": take {what}.toarray()" if hasattr(values, "toarray") else ""
        raise InvalidInput(f"{what} must hold real numbers, not {array.dtype}{sparse}")
    return array


def _table(values: Any) -> np.ndarray:
    """The columns of a pandas table, which may be of different kinds of numbers."""
    for place, kind in enumerate(values.dtypes):
        if getattr(kind, "kind", "O") not in "biuf":
            raise InvalidInput(f"column {values.columns[place]!r} does not hold numbers, but {kind}")
    columns = [values.iloc[:, place].to_numpy(np.float64, na_value=np.nan) for place in range(values.shape[1])]
    return np.stack(columns, 1)


def _labels(values: Any) -> np.ndarray:
    labels = _numbers(values, "y")
    if labels.ndim != 1:
        remedy = ""
        if labels.ndim == 2:
            remedy = f": take y.{'argmax(1)' if labels.shape[1] > 1 else 'ravel()'}"
        raise InvalidInput(f"y must hold one label an example, shape [m], not {list(labels.shape)}{remedy}")
    # In half precision even the comparison with a limit overflows.
    return labels.astype(np.float64) if labels.dtype.kind == "f" else labels
