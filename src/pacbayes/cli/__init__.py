"""The command line: flags in, text out; the work is done by ``pacbayes.runs``."""

from __future__ import annotations

import sys

from pacbayes.cli.app import app
from pacbayes.cli.progress import printable
from pacbayes.errors import PacBayesError


def main() -> None:
    """Run a command; what the user can put right is one line and exit status 1, never a traceback."""
    try:
        app()
    except PacBayesError as error:
        print(printable(f"error: {error}"), file=sys.stderr)
        sys.exit(1)
    except MemoryError:
        print("error: there is not enough memory for this", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        print(printable(f"error: {error.filename or 'file'}: {error.strerror or error}"), file=sys.stderr)
        sys.exit(1)
