"""What is remembered of examples to recognise them again: digests, without the data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pacbayes.data.dataset import Data


@dataclass(frozen=True, eq=False)
class Trace:
    """Digests of examples: of the inputs that they were made of, and of the inputs as they are; labels and places."""

    origins: np.ndarray
    rows: np.ndarray
    labels: np.ndarray
    places: np.ndarray
    whole: str
    """Which examples of which data they were, by the fingerprint of those."""

    def with_labels(self) -> np.ndarray:
        """Digests of the original inputs and their labels together."""
        return with_labels(self.origins, self.labels)


def with_labels(digests: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """One number for input and label: as many bits as for the input alone, and as little memory."""
    return digests + labels.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # an odd number: labels stay apart


def trace_of(seen: "Data | Trace") -> Trace:
    return seen if isinstance(seen, Trace) else seen.trace


def together(seen: "Sequence[Data | Trace]") -> Trace:
    """All of these as one."""
    traces = [trace_of(some) for some in seen]
    origins, rows, labels = (
        np.concatenate([getattr(trace, name) for trace in traces]) for name in ("origins", "rows", "labels")
    )
    return Trace(origins, rows, labels, places=np.arange(0), whole="")


def places_in(whole: "Data", seen: "Data | Trace") -> np.ndarray | None:
    """Where in these data the others were taken from; None if they were not."""
    if isinstance(seen, Trace):
        return seen.places if seen.whole == whole.fingerprint() else None
    theirs, places = seen.source or (seen, np.arange(len(seen)))
    same = whole is theirs or (len(whole) == len(theirs) and whole.fingerprint() == theirs.fingerprint())
    return places if same else None


def overlapping(rows: np.ndarray, others: np.ndarray) -> bool:
    """Whether two lists of digests have more in common than recurs by itself."""
    counts = np.unique(rows, return_counts=True)[1]
    recurring = counts[counts > 1].sum()
    if np.isin(rows, others).sum() > 0.01 * len(rows) + recurring or np.array_equal(np.sort(rows), np.sort(others)):
        return True
    # A few of these are no large share of them, but may be all of the others.
    return bool(recurring <= 0.01 * len(rows) and np.isin(others, rows).sum() > 0.01 * len(others) + 1)
