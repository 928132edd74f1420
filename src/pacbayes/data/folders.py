"""Where datasets lie: the caller's folder, then PACBAYES_DATA, then the cache of the user."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from pacbayes.errors import InvalidInput

ENVIRONMENT_VARIABLE = "PACBAYES_DATA"


def data_folders(folder: str | os.PathLike[str] | None = None) -> list[Path]:
    """The folders to search, in order."""
    chosen = [folder, os.environ.get(ENVIRONMENT_VARIABLE)]
    return [expanded(place) for place in chosen if place] + [cache_folder()]


def expanded(place: str | os.PathLike[str]) -> Path:
    """The path, with the home folder in place of a leading ``~``."""
    try:
        return Path(place).expanduser()
    except RuntimeError as error:
        raise InvalidInput(f"{place}: {error}") from None


def parted(name: str) -> tuple[str, str]:
    """The path, and what stands behind its #: a table's column of labels, or the size of images.

    >>> parted("my#data/table.csv#species")
    ('my#data/table.csv', 'species')
    """
    if (table := re.fullmatch(r"(.*?\.csv)(?:#(.*))?", name, re.IGNORECASE | re.DOTALL)) is not None:
        return table[1], table[2] or ""
    place, mark, detail = name.rpartition("#")
    return (place, detail) if mark and not is_there(expanded(name)) else (name, "")


def cache_folder() -> Path:
    """The folder downloads go to: ``pacbayes`` below XDG_CACHE_HOME or ``~/.cache``."""
    return expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "pacbayes"


def find_file(names: Sequence[str], places: Iterable[Path]) -> Path | None:
    """The first place that holds a file of one of these names; earlier names win within a place."""
    candidates = (place / name for place in places for name in names)
    return next((path for path in candidates if is_there(path) and path.is_file()), None)


def is_there(path: Path) -> bool:
    """Whether there is such a file or folder, whatever the name."""
    try:
        return path.exists()
    except (OSError, ValueError):  # a name longer than any can be, or with a NUL in it
        return False
