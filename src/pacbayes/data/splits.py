"""One seeded permutation cuts the examples into prior data and bound data.

The prior may depend on its part in any way; the bound holds because the other part was never looked at.
Both parts are slices of the same permutation, so they cannot overlap.
"""

from typing import Any

import numpy as np

from pacbayes.bounds.pac_bayes import SMALLEST_M
from pacbayes.checks import check_in_range, check_number, plain
from pacbayes.data.arrays import as_data
from pacbayes.data.dataset import Data
from pacbayes.errors import InvalidInput
from pacbayes.seeds import check_seed


def split(data: Any, fraction: float, seed: int = 0) -> tuple[Data, Data]:
    """(prior_data, bound_data): a random ``fraction`` of the examples, and all the others."""
    data = as_data(data)
    prior, bound = split_indices(len(data), fraction, seed)
    return data.take(prior), data.take(bound)


def split_indices(m: int, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The indices of the prior data, round(fraction * m) of them, and those of the bound data: int64."""
    check_number("fraction", fraction)
    check_in_range("fraction", fraction, 0, 1)
    cut = round(fraction * m)
    if cut == 0:
        raise InvalidInput(f"a fraction of {fraction} of {m} examples leaves no prior data")
    if m - cut < SMALLEST_M:
        raise InvalidInput(
            f"a fraction of {fraction} of {m} examples leaves {m - cut} for the bound; it needs {SMALLEST_M} or more"
        )
    order = permutation(m, seed)
    return order[:cut], order[cut:]


def permutation(m: int, seed: int) -> np.ndarray:
    """A uniformly random order of 0..m-1, int64, that ``seed`` fixes for good.

    It sorts the raw 64-bit output of Philox, which numpy promises never to change; of its ``permutation`` and
    ``shuffle`` it does not.
    """
    seed = plain(seed)
    check_seed(seed)
    keys = np.asarray(np.random.Philox(seed).random_raw(m))
    return np.argsort(keys, kind="stable").astype(np.int64)
