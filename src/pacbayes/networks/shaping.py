"""The data that have shaped a module before it became a prior: noted on it, and never lost on the way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import Tensor, nn

from pacbayes.data.dataset import Data
from pacbayes.data.trace import Trace


def _unnamed(whose: str) -> Trace:
    none = np.empty(0, np.uint64)
    return Trace(none, none, none.astype(np.int64), none.astype(np.int64), whose)


OF_A_LOOP, OF_A_RUN = _unnamed("of a loop of one's own"), _unnamed("of the run of a single network")
OF_A_STATE = _unnamed("of a state from elsewhere")
"""Data that nobody has named: those of a training loop, those behind the module of ``load_single``, and those behind
weights that another network gave."""
_UNNAMED = (OF_A_LOOP.whole, OF_A_RUN.whole, OF_A_STATE.whole)


class Seen(list[Data | Trace]):
    """Data that have shaped a model. In a pickled one digests take their place: nobody expects them in its file."""

    def note(self, data: Data | Trace) -> None:
        if not any(_same(data, other) for other in self):
            self.append(data)

    @property
    def unnamed(self) -> bool:
        """Whether some of the data are unknown: those of a user's own loop, or of a loaded single network."""
        return any(isinstance(some, Trace) and some.whole in _UNNAMED for some in self)

    def without(self, *unnamed: Trace) -> Seen:
        """The others: somebody has named these."""
        gone = [trace.whole for trace in unnamed]
        return Seen(some for some in self if isinstance(some, Data) or some.whole not in gone)

    def __reduce__(self) -> tuple[type[Seen], tuple[list[Trace]]]:
        return Seen, ([some.trace if isinstance(some, Data) else some for some in self],)

    def __deepcopy__(self, memo: dict[int, Any]) -> Seen:
        return Seen(self)


def _same(one: Data | Trace, other: Data | Trace) -> bool:
    """Whether two are the same, also where a pair (x, y) was made into new data each time, if they are in memory."""
    if one is other or not (isinstance(one, Data) and isinstance(other, Data)) or len(one) != len(other):
        return one is other
    plain = all(isinstance(data.x, Tensor) and data.source is None for data in (one, other))
    return plain and one.fingerprint() == other.fingerprint()


class Looks(dict[str, Trace]):
    """Data on which a bound or an error was computed: a C of Catoni's bound that was chosen by it is not paid for.

    By fingerprint, as a pair (x, y) is made into new data each time. Copies share it: what they show may choose, too.
    """

    def note(self, data: Data) -> None:
        self[data.fingerprint()] = data.trace

    def __deepcopy__(self, memo: dict[int, Any]) -> Looks:
        return self


def remember_data(model: nn.Module, seen: Iterable[Data | Trace]) -> None:
    """Note on the module and each of its parts that these data have shaped it; copies know that too."""
    seen = list(seen)
    for module in model.modules():
        module.shaped_by = Seen([*getattr(module, "shaped_by", []), *seen])  # type: ignore[assignment]


def data_behind(model: nn.Module) -> Seen:
    """All that has been noted on the module and its parts."""
    noted = {id(data): data for module in model.modules() for data in getattr(module, "shaped_by", [])}
    return Seen(noted.values())


def forget_data(model: nn.Module) -> Seen:
    """The same, and the module lets go of them."""
    found = data_behind(model)
    for module in model.modules():
        vars(module).pop("shaped_by", None)
    return found
