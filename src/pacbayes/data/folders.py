"""Where datasets lie: the caller's folder, then PACBAYES_DATA, then the cache of the user."""

import os
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
