"""Probabilities of failure, and among how many priors one is shared: what is refused."""

from __future__ import annotations

from pacbayes.checks import check_number, plain
from pacbayes.errors import InvalidInput

SMALLEST_DELTA = 1e-300


def check_delta(delta: float, name: str = "delta") -> float:
    """The delta, as a number of Python's own: NumPy's may have fewer digits, and all that follows would."""
    check_number(name, delta)
    delta = plain(delta)
    if not 0 < delta < 1:
        raise InvalidInput(f"{name} must lie strictly between 0 and 1, and is {delta}")
    # Smaller floats have fewer digits.
    if delta < SMALLEST_DELTA:
        raise InvalidInput(f"{name}, or what is left of it for each prior or part, is below {SMALLEST_DELTA:g}")
    return delta


def check_deltas(delta: float, mc_delta: float) -> None:
    """Refuse what is no probability of failure, or leaves no confidence."""
    check_delta(delta)
    check_delta(mc_delta, "mc_delta")
    if delta + mc_delta >= 1:
        raise InvalidInput(f"delta + mc_delta must be below 1, and is {delta + mc_delta}")


def check_priors(priors: int) -> None:
    if type(priors) is not int or not 1 <= priors <= 2**53:
        raise InvalidInput(
            f"the number of priors to choose among must be a whole number from 1 to 2^53, and is {priors!r}"
        )
