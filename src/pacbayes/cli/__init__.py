"""The command line: flags in, text out; the work is done by the packages below."""

from __future__ import annotations

import errno
import io
import sys
import time
import warnings
from typing import NoReturn

import torch

from pacbayes import processes
from pacbayes.cli.app import app
from pacbayes.cli.terminal import SPELT_OUT, printable
from pacbayes.errors import PacBayesError

_warned: set[str] = set()


def main() -> None:
    """Run a command; what the user can put right is one line and exit status 1, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that does not know a character shows another.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=SPELT_OUT)
    warnings.showwarning = _warn  # type: ignore[assignment]
    try:
        app()
    except SystemExit as end:
        if (interruption := _interruption(end)) is not None and processes.first():
            print(f"interrupted{interruption}", file=sys.stderr)
        raise
    except PacBayesError as error:
        _fail(str(error))
    except (MemoryError, torch.OutOfMemoryError):
        _fail("there is not enough memory for this")
    except RuntimeError as error:
        # What PyTorch says where a CPU's memory is not enough.
        if "can't allocate memory" not in str(error):
            raise
        _fail("there is not enough memory for this")
    except OSError as error:
        where = error.filename or "the output, or a file that was written to"
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        more = ". What was written before is whole; make room, and a training goes on with --resume" if full else ""
        _fail(f"{where}: {error.strerror or error}{more}")


def _warn(message: Warning | str, *_: object) -> None:
    """One line, once, without the place in the code."""
    if str(message) not in _warned and processes.first():
        _warned.add(str(message))
        print(printable(f"warning: {message}"), file=sys.stderr)


def _interruption(end: BaseException | None) -> KeyboardInterrupt | None:
    """What the end came from, if it was that."""
    while end is not None and not isinstance(end, KeyboardInterrupt):
        end = end.__cause__ or end.__context__
    return end


def _fail(message: str) -> NoReturn:
    if not processes.first():
        # Mostly the first one fails by the same error, says so, and torchrun ends the others meanwhile.
        time.sleep(2)
        message = f"process {processes.rank()}: {message}"
    print(printable(f"error: {message}"), file=sys.stderr)
    sys.exit(1)
