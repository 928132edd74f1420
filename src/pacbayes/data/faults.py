"""What is wrong with a file is said with the file's name."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pacbayes.errors import DataError, InvalidInput, MissingData


@contextmanager
def faults_of(path: Path, kind: str = "", unreadable: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Errors of this block bear the path; ``unreadable`` ones say that it is no file of its kind."""
    try:
        yield
    except MissingData:
        raise
    except (DataError, InvalidInput) as error:
        raise DataError(f"{path}: {error}") from error
    except unreadable as error:
        raise DataError(f"{path}: not a readable {kind} ({error})") from error
