"""`Data`: labelled examples, checked once so that nothing downstream has to."""

import hashlib
import json
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from pacbayes.data.labels import number_labels
from pacbayes.data.objects import arrays_of
from pacbayes.data.streamed import Inputs, Streamed, rows_of_bytes
from pacbayes.errors import InvalidInput

# Labels beyond this are a mistake (a hash, a time stamp), and would not fit the arithmetic below.
LABEL_LIMIT = 2**31

# How much is in memory at a time when all the inputs are passed over.
_PASS_BYTES = 2**22


@dataclass(frozen=True, eq=False)
class Data:
    """Labelled examples.

    x: float32, [m, ...], finite: a tensor, or what is read from a file as it is needed (`x[rows]` and `x[:]` are
    tensors in either case); y: int64, [m], each in 0..classes-1; class_names: none, or one a class.
    Nothing is to be changed in place: the fingerprint is computed once.
    """

    x: Inputs
    y: Tensor
    classes: int
    name: str = "data"
    class_names: tuple[str, ...] = ()
    source: "tuple[Data, np.ndarray] | None" = None
    """For a subset made by `take`: the data it was taken from and the indices there."""
    feature_names: tuple[str, ...] = ()
    """Of the columns of a table, where it names them."""
    made_with: "tuple[Data | Trace, ...]" = ()
    """Of features: the data that had shaped the model which they are from."""

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise InvalidInput(
                f"classes must be at least 2, not {self.classes}; where not every class is among the labels, "
                f"say how many there are with classes="
            )
        if self.class_names and len(self.class_names) != self.classes:
            raise InvalidInput(f"{len(self.class_names)} class names for {self.classes} classes")
        if self.x.dtype != torch.float32 or self.y.dtype != torch.int64:
            raise InvalidInput(f"x must be float32 and y int64, not {self.x.dtype} and {self.y.dtype}; see as_data")
        check_inputs(self.x)
        if self.y.ndim != 1:
            raise InvalidInput(f"y must hold one label an example, shape [m], not {list(self.y.shape)}")
        if len(self.x) != len(self.y):
            raise InvalidInput(f"x has {len(self.x)} examples but y has {len(self.y)} labels")
        _check_labels(self.y.numpy(force=True), self.classes)

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        return f"Data({self._size()})"

    def _size(self) -> str:
        shape = " x ".join(map(str, self.shape))
        return f"{self.name}: {len(self)} examples of shape {shape}, {self.classes} classes"

    def __deepcopy__(self, memo: dict[int, Any]) -> "Data":
        # A network remembers its data; a copy of it needs none of its own.
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return tuple(self.x.shape[1:])

    def class_counts(self) -> list[int]:
        """How many examples each class has."""
        return torch.bincount(self.y, minlength=self.classes).tolist()

    def summary(self) -> str:
        """Size, shape and classes in a few lines, with what an uneven distribution of the classes means."""
        counts = self.class_counts()
        names = self.class_names or tuple(str(i) for i in range(self.classes))
        shares = [f"{name} {100 * count / len(self):.1f} %" for name, count in zip(names, counts, strict=True)]
        more = f", and {len(shares) - 20} more" if len(shares) > 20 else ""
        lines = [
            self._size(),
            f"classes: {', '.join(shares[:20])}{more}",
        ]
        if max(counts) > 3 * min(counts):
            rarest = counts.index(min(counts))
            lines.append(
                f"imbalanced: {names[rarest]} has {counts[rarest]} examples, and always answering "
                f"{names[counts.index(max(counts))]} errs on {100 * (1 - max(counts) / len(self)):.1f} %. A "
                "certificate is about all examples together: a rare class may err far more often"
            )
        return "\n".join(lines)

    def take(self, indices: Any) -> "Data":
        """The examples at `indices` (whole numbers from 0 to m-1), in that order."""
        chosen = np.asarray(indices)
        if chosen.ndim != 1 or chosen.size == 0 or chosen.dtype.kind not in "iu":
            raise InvalidInput(f"indices must be a non-empty list of integers, not {chosen.dtype} {chosen.shape}")
        outside = (chosen < 0) | (chosen >= len(self))
        if outside.any():
            raise InvalidInput(f"index {chosen[outside.argmax()]} is outside 0..{len(self) - 1}")
        chosen = chosen.astype(np.int64)
        rows = torch.from_numpy(chosen).to(self.y.device)
        whole, places = self.source or (self, np.arange(len(self)))
        x = self.x.take(chosen) if isinstance(self.x, Streamed) else self.x[rows]
        return replace(self, x=x, y=self.y[rows], source=(whole, places[chosen]))

    def overlaps(self, *others: "Data | Trace") -> bool:
        """Whether these and the others hold some of the same examples.

        Exact where both were taken from the same data. Otherwise by the inputs: one row in a hundred may recur, and
        as many more as recur within these data; data of few distinct values repeat without being the same examples.
        What was rescaled or redrawn is not recognised.
        """
        whole, places = self.source or (self, np.arange(len(self)))
        apart = []
        for other in others:
            known = _places_in(whole, other)
            if known is None:
                apart.append(other)
            elif np.isin(places, known).any():
                return True
        if not apart:
            return False
        # Together too: what each has too little of to be recognised, they may have among them.
        own, found = self.trace, [*map(_trace, apart), _together(apart)]
        # By what they were made of, and as they are: features of the same examples may have been made apart.
        return any(_overlap(own.origins, them.origins) or _overlap(own.rows, them.rows) for them in found)

    def copied_from(self, *others: "Data | Trace") -> int:
        """How many have input and label of one of the others. 0 for whole numbers, which recur by themselves."""
        whole, _ = self.source or (self, None)
        if not others or not bool((whole.x[:1000] % 1).any()):
            return 0
        own, theirs = self.trace, _together(others)
        known = set(zip(theirs.origins.tolist(), theirs.labels.tolist(), strict=True))
        return sum(pair in known for pair in zip(own.origins.tolist(), own.labels.tolist(), strict=True))

    @cached_property
    def trace(self) -> "Trace":
        """What is enough to recognise these examples, without them."""
        whole, places = self.source or (self, np.arange(len(self)))
        origins = whole._row_digests[places]
        rows = origins if np.array_equal(origins, self._row_digests) else self._row_digests
        return Trace(origins, rows, self.y.numpy(force=True), places, whole.fingerprint())

    @property
    def repeats(self) -> bool:
        """Whether `take` was given an index twice: examples that are counted more often than they were drawn."""
        return self.source is not None and len(np.unique(self.source[1])) < len(self)

    @cached_property
    def copies(self) -> int:
        """How many examples have both input and label of an earlier one."""
        pairs = np.stack([self._row_digests.view(np.int64), self.y.numpy(force=True)])
        return len(self) - np.unique(pairs, axis=1).shape[1]

    @cached_property
    def _row_digests(self) -> np.ndarray:
        """64 bits of a hash of each input: the chance that any two of 10⁸ different ones are alike is 1 in 3700."""
        pieces = self.x.split(rows_of_bytes(self.shape, _PASS_BYTES))
        rows = (row + 0.0 for piece in pieces for row in piece.numpy(force=True))  # which makes 0 of -0
        digests = (hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in rows)
        return np.fromiter((int.from_bytes(digest) for digest in digests), np.uint64, len(self))

    def fingerprint(self) -> str:
        """SHA-256 (hex) of shape, classes and every value: equal data, and only it, has an equal fingerprint.

        Names do not count. Values are hashed little-endian, so that it is the same on every machine.
        """
        return self._fingerprint

    def fingerprint_of(self, indices: np.ndarray) -> str:
        """The fingerprint of `take(indices)`, which is not made: large data need no second copy."""
        read = self.x.read if isinstance(self.x, Streamed) else self.x.numpy(force=True).__getitem__
        return fingerprint_of_rows(read, self.y.numpy(force=True), indices, self.shape, self.classes)

    @cached_property
    def _fingerprint(self) -> str:
        return self.fingerprint_of(np.arange(len(self)))


@dataclass(frozen=True, eq=False)
class Trace:
    """Digests of examples: of the inputs that they were made of, and of the inputs as they are; labels and places."""

    origins: np.ndarray
    rows: np.ndarray
    labels: np.ndarray
    places: np.ndarray
    whole: str
    """Which examples of which data they were, by the fingerprint of those."""


def _trace(seen: Data | Trace) -> Trace:
    return seen if isinstance(seen, Trace) else seen.trace


def _together(seen: Sequence[Data | Trace]) -> Trace:
    """All of these as one."""
    traces = [_trace(some) for some in seen]
    origins, rows, labels = (
        np.concatenate([getattr(trace, name) for trace in traces]) for name in ("origins", "rows", "labels")
    )
    return Trace(origins, rows, labels, places=np.arange(0), whole="")


def _places_in(whole: Data, seen: Data | Trace) -> np.ndarray | None:
    """Where in these data the others were taken from; None if they were not."""
    if isinstance(seen, Trace):
        return seen.places if seen.whole == whole.fingerprint() else None
    theirs, places = seen.source or (seen, np.arange(len(seen)))
    same = whole is theirs or (len(whole) == len(theirs) and whole.fingerprint() == theirs.fingerprint())
    return places if same else None


def _overlap(rows: np.ndarray, others: np.ndarray) -> bool:
    """Whether two lists of digests have more in common than recurs by itself."""
    counts = np.unique(rows, return_counts=True)[1]
    recurring = counts[counts > 1].sum()
    if np.isin(rows, others).sum() > 0.01 * len(rows) + recurring or np.array_equal(np.sort(rows), np.sort(others)):
        return True
    # A few of these are no large share of them, but may be all of the others.
    return bool(recurring <= 0.01 * len(rows) and np.isin(others, rows).sum() > 0.01 * len(others) + 1)


def fingerprint_of_rows(
    inputs: Callable[[np.ndarray], np.ndarray], y: np.ndarray, rows: np.ndarray, shape: tuple[int, ...], classes: int
) -> str:
    """What `Data.fingerprint` is of: a header, the inputs at `rows`, a few at a time, and their labels."""
    header = json.dumps({"classes": classes, "shape": [len(rows), *shape]}, sort_keys=True)
    digest = hashlib.sha256(f"pacbayes-data-1 {header}\n".encode())
    step = rows_of_bytes(shape, _PASS_BYTES)
    for start in range(0, len(rows), step):
        digest.update(np.ascontiguousarray(inputs(rows[start : start + step]), "<f4").data)
    digest.update(np.ascontiguousarray(y[rows], "<i8").data)
    return digest.hexdigest()


def as_data(data: Any, *, classes: int | None = None, name: str = "data") -> Data:
    """`Data` as it is; or a pair `(x, y)` of arrays, tensors, lists or pandas' tables, checked and copied into one.

    x: numbers, [m, ...]; y: whole numbers or words, [m]. `classes` defaults to the number of words, or to the largest
    label plus one. Also a torch `Dataset` of pairs (each read once) and a Hugging Face dataset of numbers or images.
    An x that is mapped from a file, `np.load("x.npy", mmap_mode="r")`, is not copied but read as it is needed.
    """
    if isinstance(data, Data):
        if classes is not None and classes != data.classes:
            raise InvalidInput(
                f"the data have {data.classes} classes, and the network {classes} outputs, where it needs one for "
                "each class. The last nn.Linear that a model registers is taken for its output: "
                "stochastic(model, output=...) names another"
            )
        return data
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
    if classes is None:
        classes = len(class_names) or count_classes(labels)
    _check_labels(labels, classes)
    return Data(x, torch.from_numpy(labels.astype(np.int64)), classes, name, class_names)


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
    return words if words and all(isinstance(word, str) for word in words) else None


def count_classes(*parts: Any) -> int:
    """The largest label plus one: how many classes the labels of all parts show when nobody says."""
    for part in parts:
        _check_labels(_labels(part), None)
    labels = np.concatenate([_labels(part) for part in parts])
    if labels.size and labels.min() > 0:
        raise InvalidInput(
            f"no label is 0, the smallest is {labels.min()}: labels count from 0 (np.unique(y, return_inverse=True)[1] "
            "makes them so)"
        )
    return int(labels.max(initial=0)) + 1


def as_inputs(values: Any) -> Tensor:
    """Inputs without labels as a float32 tensor [m, ...] of its own memory, checked like `Data.x`."""
    # Overflow to float32 infinity is reported by the check that follows, with its place.
    with np.errstate(over="ignore"):
        x = torch.from_numpy(_numbers(values, "x").astype(np.float32, order="C"))
    check_inputs(x)
    return x


def _numbers(values: Any, what: str) -> np.ndarray:
    """`values` as an array of booleans, integers or floats."""
    if isinstance(values, Tensor):
        # numpy knows no bfloat16.
        values = (values.float() if values.is_floating_point() else values).numpy(force=True)
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InvalidInput(f"{what} is not an array: {error}") from None
    if array.dtype.kind not in "biuf":
        sparse = f": take {what}.toarray()" if hasattr(values, "toarray") else ""
        raise InvalidInput(f"{what} must hold real numbers, not {array.dtype}{sparse}")
    return array


def _labels(values: Any) -> np.ndarray:
    labels = _numbers(values, "y")
    if labels.ndim != 1:
        one_hot = ": take y.argmax(1)" if labels.ndim == 2 and labels.shape[1] > 1 else ""
        raise InvalidInput(f"y must hold one label an example, shape [m], not {list(labels.shape)}{one_hot}")
    # In half precision even the comparison with a limit overflows.
    return labels.astype(np.float64) if labels.dtype.kind == "f" else labels


def check_inputs(x: Inputs) -> None:
    """Refuse inputs of a wrong shape, and values that are not finite."""
    if x.ndim < 2:
        raise InvalidInput(f"x must have a shape [m, ...] of two dimensions or more, not {list(x.shape)}")
    if x.numel() == 0:
        raise InvalidInput(f"x holds no examples: its shape is {list(x.shape)}")
    if isinstance(x, Tensor):
        _check_finite(x)
    elif not x.checked:
        step = rows_of_bytes(x.shape[1:], _PASS_BYTES)
        for number, piece in enumerate(x.split(step)):
            _check_finite(piece, number * step)
        x.checked = True


def _check_finite(x: Tensor, first: int = 0) -> None:
    """first: the place of these rows among all."""
    # The extremes are NaN where any value is: no temporary as large as the data is needed.
    low, high = torch.aminmax(x)
    if not (low.isfinite() and high.isfinite()):
        bad = next(i for i, row in enumerate(x) if not row.isfinite().all())
        value = x[bad][~x[bad].isfinite()][0].item()
        raise InvalidInput(f"x[{first + bad}] holds {value}; every value must be finite in float32")


def _check_labels(labels: np.ndarray, classes: int | None) -> None:
    limit = LABEL_LIMIT if classes is None else classes
    good = (labels >= 0) & (labels < limit) & (np.floor(labels) == labels)
    if not good.all():
        bad = int((~good).argmax())
        wanted = "a whole number from 0" + (" up" if classes is None else f" to {classes - 1}")
        raise InvalidInput(f"label y[{bad}] is {labels[bad]}, not {wanted}")
