"""``Data``: labelled examples, checked once so that nothing downstream has to."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pacbayes.checks import check_kind, check_type, plain
from pacbayes.data.scaling import Scaling
from pacbayes.data.streamed import Inputs, Streamed, rows_of_bytes
from pacbayes.data.trace import Trace, overlapping, places_in, together, trace_of, with_labels
from pacbayes.errors import InvalidInput

# Labels beyond this are a mistake (a hash, a time stamp), and would not fit the arithmetic below.
LABEL_LIMIT = 2**31

# How much is in memory at a time when all the inputs are passed over.
_PASS_BYTES = 2**22


@dataclass(frozen=True, eq=False)
class Data:
    """Labelled examples.

    x: float32, [m, ...], finite: a tensor, or what is read from a file as it is needed (``x[rows]`` and ``x[:]`` are
    tensors in either case); y: int64, [m], each in 0..classes-1; class_names: none, or one a class.
    Nothing is to be changed in place: the fingerprint is computed once.
    """

    x: Inputs
    y: Tensor
    classes: int
    name: str = "data"
    class_names: tuple[str, ...] = ()
    source: "tuple[Data, np.ndarray] | None" = None
    """For a subset made by ``take``: the data it was taken from and the indices there."""
    feature_names: tuple[str, ...] = ()
    """Of the columns of a table, where it names them."""
    scaling: Scaling | None = None
    """Of images: what was made of their pixels, where that is known."""
    made_with: "tuple[Data | Trace, ...]" = ()
    """Of features: the data that had shaped the model which they are from."""

    def __post_init__(self) -> None:
        check_kind("x", self.x, Tensor | Streamed, "a tensor; as_data() takes arrays, lists and tables too")
        check_kind("y", self.y, Tensor, "a tensor; as_data() takes arrays, lists and tables too")
        object.__setattr__(self, "classes", plain(self.classes))  # NumPy's have no JSON
        check_type("classes", self.classes, int)
        if self.classes < 2:
            raise InvalidInput(
                f"classes must be at least 2, not {self.classes}; where not every class is among the labels, "
                f"pacbayes.data.as_data(..., classes=) says how many there are"
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
        check_labels(self.y.numpy(force=True), self.classes)

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

    def of_class(self, label: int) -> "Data":
        """The examples with this label."""
        return self.take(torch.nonzero(self.y == label).squeeze(-1).numpy(force=True))

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
        if self.classes > 20 and len(self) < 4 * self.classes:
            lines.append(f"{self.classes} classes for {len(self)} examples: are these the labels?")
        elif max(counts) > 3 * min(counts):
            rarest = counts.index(min(counts))
            lines.append(
                f"imbalanced: {names[rarest]} has {counts[rarest]} of {len(self)} examples, and always answering "
                f"{names[counts.index(max(counts))]} errs on {100 * (1 - max(counts) / len(self)):.1f} %. A "
                "certificate is about all examples together: a rare class may err far more often"
            )
        return "\n".join(lines)

    def take(self, indices: Any) -> "Data":
        """The examples at ``indices`` (whole numbers from 0 to m-1), in that order."""
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
            check_kind("what may overlap", other, Data | Trace, "Data, as as_data() makes it of a pair (x, y)")
            known = places_in(whole, other)
            if known is None:
                apart.append(other)
            elif np.isin(places, known).any():
                return True
        if not apart:
            return False
        # Together too: what each has too little of to be recognised, they may have among them.
        own, found = self.trace, [*map(trace_of, apart), together(apart)]
        # By what they were made of, and as they are: features of the same examples may have been made apart.
        return any(overlapping(own.origins, them.origins) or overlapping(own.rows, them.rows) for them in found)

    def copied_from(self, *others: "Data | Trace") -> np.ndarray:
        """Which examples have input and label of one of the others."""
        if not others:
            return np.zeros(len(self), bool)
        return np.isin(self.trace.with_labels(), together(others).with_labels())

    @cached_property
    def trace(self) -> Trace:
        """What is enough to recognise these examples, without them."""
        whole, places = self.source or (self, np.arange(len(self)))
        origins = whole._row_digests[places]
        rows = origins if np.array_equal(origins, self._row_digests) else self._row_digests
        return Trace(origins, rows, self.y.numpy(force=True), places, whole.fingerprint())

    @property
    def repeats(self) -> bool:
        """Whether ``take`` was given an index twice: examples that are counted more often than they were drawn."""
        return self.source is not None and len(np.unique(self.source[1])) < len(self)

    @cached_property
    def copied(self) -> np.ndarray:
        """Which examples have both input and label of an earlier one."""
        _, first = np.unique(with_labels(self._row_digests, self.y.numpy(force=True)), return_index=True)
        return np.isin(np.arange(len(self)), first, invert=True)

    @cached_property
    def recurring(self) -> float:
        """The share of examples whose input is that of an earlier one."""
        return 1 - len(np.unique(self._row_digests)) / len(self)

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
        """The fingerprint of ``take(indices)``, which is not made: large data need no second copy."""
        read = self.x.read if isinstance(self.x, Streamed) else self.x.numpy(force=True).__getitem__
        return fingerprint_of_rows(read, self.y.numpy(force=True), indices, self.shape, self.classes)

    @cached_property
    def _fingerprint(self) -> str:
        return self.fingerprint_of(np.arange(len(self)))


def fingerprint_of_rows(
    inputs: Callable[[np.ndarray], np.ndarray], y: np.ndarray, rows: np.ndarray, shape: tuple[int, ...], classes: int
) -> str:
    """What ``Data.fingerprint`` is of: a header, the inputs at ``rows``, a few at a time, and their labels."""
    header = json.dumps({"classes": classes, "shape": [len(rows), *shape]}, sort_keys=True)
    digest = hashlib.sha256(f"pacbayes-data-1 {header}\n".encode())
    step = rows_of_bytes(shape, _PASS_BYTES)
    for start in range(0, len(rows), step):
        digest.update(np.ascontiguousarray(inputs(rows[start : start + step]), "<f4").data)
    digest.update(np.ascontiguousarray(y[rows], "<i8").data)
    return digest.hexdigest()


def spread_rows(m: int, count: int) -> Tensor:
    """Places of so many examples out of m, evenly from the first to the last; of all if there are no more."""
    return torch.linspace(0, m - 1, min(count, m), dtype=torch.float64).long()  # float32 would round beyond the last


def refuse_gradient(x: Tensor) -> None:
    """Inputs that something is still being trained to make: what that learns from them is in no KL."""
    if x.requires_grad:
        raise InvalidInput(
            "the inputs carry a gradient: what makes them is being trained, and what it learns from the bound data no "
            "certificate counts. Make it a part of the model; or train it on prior data alone, and detach the inputs"
        )


def check_inputs(x: Inputs) -> None:
    """Refuse inputs of a wrong shape, and values that are not finite."""
    if x.ndim < 2:
        raise InvalidInput(f"x must have a shape [m, ...] of two dimensions or more, not {list(x.shape)}")
    if x.numel() == 0:
        raise InvalidInput(f"x holds no examples: its shape is {list(x.shape)}")
    if isinstance(x, Tensor):
        refuse_gradient(x)
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


def check_labels(labels: np.ndarray, classes: int | None) -> None:
    """Refuse labels that are no whole numbers from 0 to classes - 1; or, if nobody says how many, from 0 up."""
    limit = LABEL_LIMIT if classes is None else classes
    good = (labels >= 0) & (labels < limit) & (np.floor(labels) == labels)
    if not good.all():
        bad = int((~good).argmax())
        wanted = "a whole number from 0" + (" up" if classes is None else f" to {classes - 1}")
        raise InvalidInput(f"label y[{bad}] is {labels[bad]}, not {wanted}")
