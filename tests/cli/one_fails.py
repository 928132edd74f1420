"""The command line, in which the second process fails at its tenth step; run by torchrun."""

import os

from pacbayes import cli
from pacbayes.errors import DataError
from pacbayes.training.stage import Stage

original, calls = Stage.step, []


def step(*arguments: object) -> None:
    calls.append(arguments)
    if len(calls) == 10 and os.environ["RANK"] == "1":
        raise DataError("the disk of this machine is broken")
    original(*arguments)  # type: ignore[arg-type]


Stage.step = step  # type: ignore[assignment]
cli.main()
