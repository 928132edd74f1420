"""Bars with the present risk, penalty and bound."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from pacbayes.certificates.wording import rounded_up
from pacbayes.cli.terminal import Interrupted, errors
from pacbayes.training import Epoch

_SLOW_EPOCH = 10.0


class TrainingBar:
    """One bar a stage. Where the output is no terminal, a line for about every tenth of a stage.

    ``folder``: of a run that can go on with --resume once it has begun.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.bar = Progress(
            TextColumn("{task.description:<11}"), BarColumn(24), TextColumn("{task.completed}/{task.total}"),
            TimeRemainingColumn(), TextColumn("{task.fields[numbers]}"), console=errors,
        )  # fmt: skip
        self.tasks: dict[str, TaskID] = {}
        self.last = time.monotonic()

    def __enter__(self) -> TrainingBar:
        if errors.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if errors.is_terminal:
            self.bar.stop()
        if kind is KeyboardInterrupt:
            begun = self.folder is not None and (self.folder / "config.toml").is_file()
            raise Interrupted("; the same command with --resume goes on" if begun else "") from None

    def __call__(self, stage: str, total: int, epoch: Epoch) -> None:
        numbers = f"risk {epoch.risk:.4f}"
        if stage == "posterior":
            # While the prior is made, the divergence from its start says nothing about the bound to come.
            numbers += f"  penalty {epoch.penalty:.4f}  bound {rounded_up(epoch.bound, 4)}"
        if errors.is_terminal:
            if stage not in self.tasks:
                self.tasks[stage] = self.bar.add_task(stage, total=total, numbers="")
            self.bar.update(self.tasks[stage], completed=epoch.epoch + 1, numbers=numbers)
            return
        took, self.last = time.monotonic() - self.last, time.monotonic()
        done = epoch.epoch + 1
        # The first epoch says how long the others will take, where that is worth saying.
        slow = done == 1 < total and took > _SLOW_EPOCH
        if done % max(1, total // 10) == 0 or done == total or slow:
            left = f"  about {took * (total - 1) / 60:.0f} min left" if slow else ""
            errors.print(f"{stage:<11} {done:>4}/{total}  {numbers}{left}", highlight=False)


class FractionBar:
    """A bar for work known by the fraction done."""

    def __init__(self, what: str, bar: Progress, task: TaskID):
        self.what, self.bar, self.task, self.next = what, bar, task, 0.0

    def __call__(self, fraction: float) -> None:
        self.bar.update(self.task, completed=fraction)
        if not errors.is_terminal and fraction >= self.next:
            errors.print(f"{self.what} … {100 * fraction:.0f} %" if self.next else f"{self.what} …", highlight=False)
            self.next = 0.1 * (int(10 * fraction) + 1)


@contextmanager
def fraction_bar(what: str) -> Iterator[FractionBar]:
    bar = Progress(
        TextColumn(f"{what:<11}"), BarColumn(24), TextColumn("{task.percentage:>3.0f} %"), TimeRemainingColumn(),
        console=errors, disable=not errors.is_terminal, redirect_stdout=sys.stdout.isatty(),
    )  # fmt: skip
    with bar:
        yield FractionBar(what, bar, bar.add_task(what, total=1.0))
