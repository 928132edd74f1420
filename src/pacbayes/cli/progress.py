"""What is shown on the terminal: bars with the present risk, penalty and bound, and words that are safe to print."""

from __future__ import annotations

import codecs
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from pacbayes import processes
from pacbayes.errors import InvalidInput
from pacbayes.training import Epoch

errors = Console(stderr=True)

SPELT_OUT = "pacbayes-spelt-out"
"""The way to encode what a terminal has no characters for."""
_SPELT_OUT = {"≤": "<=", "≥": ">=", "‖": "||", "…": "...", "–": "-", "±": "+-", "×": "x", "√": "sqrt ", "δ": "delta"}


def _spelt_out(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    return "".join(_SPELT_OUT.get(character, "?") for character in missing), error.end


codecs.register_error(SPELT_OUT, _spelt_out)


@contextmanager
def together() -> Iterator[None]:
    """The processes that torchrun started as one: only the first of them speaks."""
    processes.join()
    with ExitStack() as stack:
        if not processes.first():
            errors.quiet = True
            stack.enter_context(redirect_stdout(stack.enter_context(Path(os.devnull).open("w"))))
        yield
    processes.leave()


def printable(text: str) -> str:
    """One line of bounded length that commands no terminal: the words may be those of somebody else's file."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:2000])


def print_lines(text: str, hanging: int = 0) -> None:
    """Lines of the output proper, in words that may be somebody else's.

    On a terminal long ones are broken between words, and go on in this column.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    indent = " " * min(hanging, width // 2)
    for line in map(printable, text.splitlines()):
        print("\n".join(textwrap.wrap(line, width, subsequent_indent=indent)) if 20 < width < len(line) else line)


def check_out(out: Path | None, *taken: Path) -> None:
    """Refuse to write over a file that was read, or into the folder of a run."""
    places = [place.resolve() for place in taken]
    if out is not None and (out.resolve() in places or out.resolve().parent in places):
        raise InvalidInput(f"--out {out} would replace the data or a file of the run: name another")


def tell(text: str) -> None:
    """Lines beside the output proper, as they are: brackets in them are no markup."""
    for line in text.splitlines():
        errors.print(printable(line), highlight=False, markup=False, soft_wrap=True)


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

    def __enter__(self) -> TrainingBar:
        if errors.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if errors.is_terminal:
            self.bar.stop()
        if kind is KeyboardInterrupt:
            begun = self.folder is not None and (self.folder / "config.toml").is_file()
            errors.print("interrupted" + "; the same command with --resume goes on" * begun, highlight=False)

    def __call__(self, stage: str, total: int, epoch: Epoch) -> None:
        numbers = f"risk {epoch.risk:.4f}"
        if stage == "posterior":
            # While the prior is made, the divergence from its start says nothing about the bound to come.
            numbers += f"  penalty {epoch.penalty:.4f}  bound {epoch.bound:.4f}"
        if errors.is_terminal:
            if stage not in self.tasks:
                self.tasks[stage] = self.bar.add_task(stage, total=total, numbers="")
            self.bar.update(self.tasks[stage], completed=epoch.epoch + 1, numbers=numbers)
        elif (epoch.epoch + 1) % max(1, total // 10) == 0 or epoch.epoch + 1 == total:
            errors.print(f"{stage:<11} {epoch.epoch + 1:>4}/{total}  {numbers}", highlight=False)


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
        console=errors, disable=not errors.is_terminal,
    )  # fmt: skip
    try:
        with bar:
            yield FractionBar(what, bar, bar.add_task(what, total=1.0))
    except KeyboardInterrupt:
        errors.print("interrupted", highlight=False)
        raise
