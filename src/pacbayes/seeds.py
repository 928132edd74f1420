"""Seeds for parts of a computation, from one seed: different parts, unrelated streams."""

from __future__ import annotations

import secrets

import numpy as np

from pacbayes import processes
from pacbayes.checks import plain
from pacbayes.errors import InvalidInput


def fresh_seed() -> int:
    """A seed that nobody could foresee; the same in all processes."""
    return processes.from_first(secrets.randbits(63))


def chosen_seed(seed: int | None) -> int:
    """The seed that was given, a number of Python's or NumPy's; or a fresh one."""
    seed = fresh_seed() if seed is None else plain(seed)
    check_seed(seed)
    return seed


def check_seed(seed: int) -> None:
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise InvalidInput(f"seed must be a whole number in [0, 2^63), and is {seed!r}")


def derived_seed(*parts: int) -> int:
    """A seed in [0, 2^63) for this tuple of integers, from 0 to 2^32 - 1 but for the first, which is a seed itself.

    The same on every machine.
    """
    # The length first: SeedSequence takes (1,) and (1, 0) for the same.
    return int(np.random.SeedSequence([len(parts), *parts]).generate_state(1, np.uint64)[0] >> np.uint64(1))
