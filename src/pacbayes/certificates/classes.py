"""Risk per class and a certified confusion: a bound for every cell, all of them at once.

Given its label, the m_y examples of class y are independent draws of that class, so the bounds hold for each row with
m = m_y. Each of the K² cells has an equal share of delta and of mc_delta: the chance that an example of class y is
answered j, and on the diagonal the chance that it is answered wrongly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from pacbayes.bounds.deltas import check_deltas
from pacbayes.bounds.pac_bayes import SMALLEST_M
from pacbayes.certificates.bound_data import refuse_what_voids_a_bound
from pacbayes.certificates.certify import DRAWS, MC_DELTA, divergences
from pacbayes.certificates.evidence import Evidence
from pacbayes.certificates.monte_carlo import Progress, confusion_counts
from pacbayes.certificates.records import record_of, same
from pacbayes.certificates.wording import class_titles, confidence_percent, percent
from pacbayes.checks import check_count, check_kind, plain
from pacbayes.data import as_data
from pacbayes.errors import InvalidInput, RunError
from pacbayes.files import read_plain_file, write_atomically
from pacbayes.networks.refusals import refuse_a_change
from pacbayes.networks.stochastic import StochasticNetwork, check_stochastic
from pacbayes.seeds import chosen_seed, derived_seed

_MOST_CLASSES = 1000
# That many have two tables of a thousand lists each, which take 29 MB.
_LARGEST_FILE, _MOST_LISTS = 2**25, 2 * _MOST_CLASSES + 10
# The exact constant of a class takes as long as the root of its size.
_MOST_EXAMPLES = 10**10


@dataclass(frozen=True)
class ClassCertificate:
    """With probability at least 1 - delta - mc_delta, every true rate is at most its entry in ``bounds``."""

    bounds: list[list[float]]
    """[y][j]: how often an example of class y is answered j; [y][y]: how often it is answered wrongly."""
    counts: list[list[int]]
    """[y][j]: visits of examples of class y answered j, [y][y] answered wrongly."""
    visits: list[int]
    m: list[int]
    """The examples of each class in the bound data; of a class with none nothing is known, and its bounds are 1."""
    kl: float
    profile_kl: float
    catoni: list[float]
    bound: str
    delta: float
    mc_delta: float
    prior_fingerprint: str
    posterior_fingerprint: str
    bound_data_fingerprint: str
    seed: int
    priors: int = 1
    """As in a certificate: how many priors this one was to be chosen among."""

    def check(self) -> list[str]:
        """Recompute every bound from the counts; what does not hold, in words."""
        try:
            self._check_sizes()
            for y, (row, visits) in enumerate(zip(self.counts, self.visits, strict=True)):
                if min(row) < 0 or not sum(row) == 2 * row[y] <= 2 * visits:
                    raise InvalidInput(f"the wrong answers for class {y} are not the sum of its confusions")
            # The first row that is wrong ends it: a record may be an enemy's, and its cells take a while.
            pairs = zip(self._rows(), self.bounds, strict=False)
            right = [len(row) for row in self.bounds] == [len(self.m)] * len(self.m) and all(
                same(recorded, value) for row in pairs for value, recorded in zip(*row, strict=True)
            )
        except (InvalidInput, OverflowError, IndexError, TypeError, ZeroDivisionError) as error:
            return [str(error) or "the counts do not fit each other"]
        return [] if right else ["the bounds do not follow from the counts"]

    def _recomputed(self) -> list[list[float]]:
        self._check_sizes()
        return list(self._rows())

    def _check_sizes(self) -> None:
        k = len(self.m)
        _check_number(k)
        if k < 2 or len(self.visits) != k or [len(row) for row in self.counts] != [k] * k:
            raise InvalidInput("the counts must be a square, with a number of visits and of examples for each row")
        if sum(self.m) > _MOST_EXAMPLES:
            raise InvalidInput(f"certificates of classes are for {_MOST_EXAMPLES} examples at most, not {sum(self.m)}")
        if not _shared_by_size(self.visits, self.m):
            raise InvalidInput("the visits of the classes are not shares of one number of draws, by their sizes")
        check_deltas(self.delta, self.mc_delta)

    def _rows(self) -> Iterator[list[float]]:
        cell = lru_cache(maxsize=None)(self._cell)  # of many classes most cells are alike
        for row, visits, m in zip(self.counts, self.visits, self.m, strict=True):
            yield [cell(count, visits, m) for count in row]

    def _cell(self, count: int, visits: int, m: int) -> float:
        if m == 0 or (m < SMALLEST_M and self.bound.startswith("invKL")):
            return 1.0
        share = 1 / len(self.m) ** 2
        evidence = Evidence(
            errors=count, visits=visits, draws=visits, kl=self.kl, m=m,
            delta=self.delta * share, mc_delta=self.mc_delta * share, limit="clopper-pearson", sampling="independent",
            bound=self.bound, catoni=self.catoni, profile_kl=self.profile_kl, priors=self.priors,
        )  # fmt: skip
        return float(evidence.derived()["risk_bound"])

    def confidence(self) -> str:
        return confidence_percent(1 - self.delta - self.mc_delta)

    def __str__(self) -> str:
        return self.text()

    def text(self, names: Sequence[str] = ()) -> str:
        """A line for each class, which may have a name."""
        names = class_titles(names or map(str, range(len(self.m))))
        wide = max(map(len, names))
        over = f"With probability at least {self.confidence()} over the draw of the data and of the Monte-Carlo samples"
        lines = [f"{over}, all at once for the randomised classifier:"]
        for y, row in enumerate(self.bounds):
            worst, answer = max((value, j) for j, value in enumerate(row) if j != y)
            seen = f"{100 * self.counts[y][y] / self.visits[y]:.2f} % seen" if self.visits[y] else "none seen"
            lines.append(
                f"  {names[y]:<{wide}}  wrong <= {percent(row[y]):>9} ({seen}), taken for {names[answer]} <= "
                f"{percent(worst)}; {self.m[y]} examples"
            )
        return "\n".join(lines)

    def save(self, path: str | Path) -> None:
        write_atomically(Path(path), self.to_json())

    def to_json(self) -> bytes:
        return (json.dumps(asdict(self)) + "\n").encode()

    @classmethod
    def load(cls, path: str | Path) -> ClassCertificate:
        """Read it back; its arithmetic is for :meth:`check`."""
        return cls.from_json(read_plain_file(Path(path), _LARGEST_FILE), str(path))

    @classmethod
    def from_json(cls, content: bytes, source: str) -> ClassCertificate:
        # Millions of empty ones would be a file of megabytes and a record of gigabytes.
        if content.count(b"[") + content.count(b"{") > _MOST_LISTS:
            raise RunError(f"{source} is no certificate of classes: it has lists for more than {_MOST_CLASSES}")
        return record_of(cls, content, f"{source} is no certificate of classes")


def certify_classes(
    net: StochasticNetwork,
    data: Any,
    *,
    bound: str = "best",
    delta: float = 0.025,
    mc_delta: float = MC_DELTA,
    draws: int = DRAWS,
    priors: int = 1,
    seed: int | None = None,
    progress: Progress | None = None,
) -> ClassCertificate:
    """Certify the randomised classifier's error on each class, and how often each is taken for each other.

    ``draws`` are shared among the classes by their sizes, one for each example at least. ``priors`` is as for
    :func:`certify`.
    """
    check_stochastic(net)
    check_kind("progress", progress, Callable | None, "a function of the share that is done")
    data = as_data(data, classes=net.classes)
    seed, draws, priors = chosen_seed(seed), plain(draws), plain(priors)
    delta, mc_delta = plain(delta), plain(mc_delta)
    check_count("draws", draws)
    check_deltas(delta, mc_delta)
    _check_number(net.classes)
    refuse_what_voids_a_bound(net, data)
    sizes = data.class_counts()
    counts = torch.zeros(net.classes, net.classes, dtype=torch.int64)
    visits = _shares(draws, sizes)

    def issued() -> ClassCertificate:
        kl, profile_kl = divergences(net)
        record = ClassCertificate(
            bounds=[], counts=counts.tolist(), visits=visits, m=sizes, kl=kl, profile_kl=profile_kl,
            catoni=list(net.catoni), bound=bound, delta=delta, mc_delta=mc_delta,
            prior_fingerprint=net.fingerprint("prior"), posterior_fingerprint=net.fingerprint("posterior"),
            bound_data_fingerprint=data.fingerprint(), seed=seed, priors=priors,
        )  # fmt: skip
        return replace(record, bounds=record._recomputed())

    issued()  # what no bound can be made of is refused before the draws
    for y, (size, share) in enumerate(zip(sizes, visits, strict=True)):
        if size:
            part = data.of_class(y)
            counts += confusion_counts(net, part, share, derived_seed(seed, y))
        if progress is not None:
            progress((y + 1) / net.classes)
    counts.diagonal().copy_(torch.tensor(visits) - counts.diagonal())
    refuse_a_change(net)
    return issued()


def _check_number(classes: int) -> None:
    if classes > _MOST_CLASSES:
        raise InvalidInput(f"certificates of classes are for {_MOST_CLASSES} of them at most, not {classes}")


def _shares(draws: int, sizes: Sequence[int]) -> list[int]:
    """The visits of each class."""
    return [max(size, draws * size // sum(sizes)) for size in sizes]


def _shared_by_size(visits: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether some number of draws gives these visits."""
    least, most, total = 1, math.inf, sum(sizes)
    for count, size in zip(visits, sizes, strict=True):
        if size <= 0 or count < size:
            if size or count:
                return False
            continue
        if count > size:
            least = max(least, -(-count * total // size))
        most = min(most, ((count + 1) * total - 1) // size)
    return least <= most
