"""One check of a verification: passed, failed, or not checkable and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pacbayes.errors import PacBayesError

PASSED, FAILED, OPEN = "passed", "failed", "not checkable"


@dataclass(frozen=True)
class Check:
    name: str
    status: str
    detail: str


def attempt(name: str, check: Callable[..., tuple[str, str]], *arguments: object) -> Check:
    """The check; failed, with the error's words, if it cannot be made for a fault in the folder."""
    try:
        return Check(name, *check(*arguments))
    except PacBayesError as error:
        return Check(name, FAILED, str(error))


def equal(recorded: str, found: str, what: str) -> tuple[str, str]:
    if recorded == found:
        return PASSED, f"{what} is the one recorded ({found[:16]})"
    shown = 16 if found[:16] != recorded[:16] else None
    return FAILED, f"{what} gives {found[:shown]}, and what was recorded is {recorded[:shown] or 'nothing'}"
