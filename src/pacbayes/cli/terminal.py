"""What the terminal is told: words that are safe to print, of one process alone."""

from __future__ import annotations

import codecs
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pacbayes import processes
from pacbayes.errors import InvalidInput
from pacbayes.runs import RunFolder

errors = Console(stderr=True)
WIDE = 400

SPELT_OUT = "pacbayes-spelt-out"
"""The way to encode what a terminal has no characters for."""
_SPELT_OUT = {"≤": "<=", "≥": ">=", "‖": "||", "…": "...", "–": "-", "±": "+-", "×": "x", "√": "sqrt ", "δ": "delta"}


def _spelt_out(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    return "".join(_SPELT_OUT.get(character, "?") for character in missing), error.end


codecs.register_error(SPELT_OUT, _spelt_out)


class Interrupted(KeyboardInterrupt):
    """An interruption by somebody who has a word to say about what goes on from there."""


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


def output() -> Console:
    """For tables of the output proper; lines for another program are not broken."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDE)


def plain_table(columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> Table:
    """A table without a frame, in words that may be somebody else's; so many columns after the first hold numbers."""
    table = Table(show_edge=False, pad_edge=False)
    for place, column in enumerate(columns):
        side = "right" if 0 < place <= numbers else "left"
        table.add_column(Text(printable(column)), justify=side, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def check_out(out: Path | None, *taken: Path) -> None:
    """Refuse a folder, to write over a file that was read, or into the folder of a run."""
    if out is None:
        return
    if out.is_dir() or not out.name:
        raise InvalidInput(f"--out {out} is a folder: name a file")
    places, folder = [place.resolve() for place in taken], out.resolve().parent
    if out.resolve() in places:
        raise InvalidInput(f"--out {out} would replace the data: name another file")
    if RunFolder(folder).config_file.is_file():
        raise InvalidInput(f"--out {out} lies in the folder of a run, where only the run's own files may: name another")
    if folder in places:
        raise InvalidInput(f"--out {out} lies in a folder that is read, and would look like a part of it: name another")


def tell(text: str) -> None:
    """Lines beside the output proper, as they are: brackets in them are no markup."""
    for line in text.splitlines():
        errors.print(printable(line), highlight=False, markup=False, soft_wrap=True)
