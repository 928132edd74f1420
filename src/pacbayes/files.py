"""Files that are whole or absent: every write goes to a neighbour first and is renamed into place."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file by this content; a crash leaves the old file or the new one, never a part."""
    neighbour = path.with_name(f".{path.name}.partial")
    try:
        with neighbour.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        neighbour.replace(path)
    finally:
        neighbour.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
