"""Labels that are words: the classes they name, in one order on every machine, and the number of each."""

from collections.abc import Iterable, Sequence

import numpy as np

from pacbayes.errors import InvalidInput

# More classes than this are a mistake: a column of names or of numbers was taken for the label.
MAX_CLASSES = 10_000


def class_order(names: Iterable[str]) -> tuple[str, ...]:
    """The distinct names: by value where all are whole numbers, else by their characters."""
    distinct = set(names)
    if all(name.isascii() and name.isdigit() for name in distinct):
        return tuple(sorted(distinct, key=lambda name: (len(name.lstrip("0")), name.lstrip("0"), name)))
    return tuple(sorted(distinct))


def refuse_missing(labels: Iterable[object]) -> None:
    """Refuse None, NaN, and what pandas has in their place."""
    for place, label in enumerate(labels):
        if label is None or type(label).__name__ == "NAType" or label != label:
            raise InvalidInput(f"label y[{place}] is missing: leave out examples without a label")


def number_labels(labels: Sequence[str], names: Sequence[str] = ()) -> tuple[np.ndarray, tuple[str, ...]]:
    """The number of each label, int64 [m], and the names that the numbers stand for.

    names: those of the classes, where they are known; a label that is not among them is refused.
    """
    order = tuple(names) or class_order(labels)
    if len(order) > MAX_CLASSES:
        raise InvalidInput(
            f"there are {len(order)} different labels, where at most {MAX_CLASSES} are taken for classes"
        )
    number = {name: i for i, name in enumerate(order)}
    try:
        return np.array([number[label] for label in labels], np.int64), order
    except KeyError as error:
        raise InvalidInput(f"label {error.args[0]!r} is not one of the classes {', '.join(order[:20])}") from None
