"""Files that are whole or absent, and files that may come from anywhere.

Every write goes to a neighbour first and is renamed into place. What is read may have been made by an enemy: only
plain files, of a size that was agreed on, and JSON that means one thing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from pacbayes.errors import RunError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# O_NONBLOCK: opening a pipe would wait for a writer. Where a system lacks a flag, the check of the kind remains.
_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))


def in_shell(path: str | os.PathLike[str]) -> str:
    """A path as it can be pasted into a command."""
    name = os.fspath(path)
    name = f"./{name}" if name.startswith("-") else name
    quoted = shlex.quote(name)
    # Messages put commands in single quotes: those of a path within are to be others.
    return quoted if quoted == name or any(c in name for c in '"$`\\!') else f'"{name}"'


def check_writable(folder: Path) -> None:
    """Refuse a folder that nothing can be written to: before the work is done, not after it."""
    trial = folder / ".trial.partial"
    trial.unlink(missing_ok=True)
    trial.touch(exist_ok=False)
    trial.unlink()


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file by this content; a crash leaves the old file or the new one, never a part."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "this is a folder: name a file in it", str(path))
    neighbour = path.with_name(f".{path.name}.partial")
    # What is there may be a link to elsewhere: it goes, and nothing is written through it.
    neighbour.unlink(missing_ok=True)
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder to write to", str(path.parent))
    try:
        with neighbour.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        neighbour.replace(path)
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)  # a full disk does not say for which file it was
        raise
    finally:
        neighbour.unlink(missing_ok=True)


def write_json(path: Path, record: Any) -> None:
    """:func:`write_atomically`, of a record that people may read, too."""
    write_atomically(path, (json.dumps(record, indent=2) + "\n").encode())


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Refuse to work in a folder where another process does; a process that dies lets go of it."""
    if fcntl is None or not folder.is_dir():
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"another process is at work in {folder}: wait for it, or take another folder") from None
        except OSError:
            pass  # some network drives have no locks
        yield
    finally:
        os.close(handle)


def read_plain_file(path: Path, limit: int) -> bytes:
    """The content of a plain file of at most ``limit`` bytes; links, pipes, devices and folders are refused."""
    try:
        with os.fdopen(os.open(path, _FLAGS), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise RunError(f"{path} is not a plain file")
            if status.st_size > limit:
                raise RunError(f"{path} is too large: {status.st_size} bytes, where at most {limit} are expected")
            content = file.read(status.st_size + 1)
    except FileNotFoundError:
        raise RunError(f"{path} is missing") from None
    except OSError as error:
        if path.is_symlink():
            raise RunError(f"{path} is a symbolic link, not a plain file") from None
        if path.is_dir():
            raise RunError(f"{path} is not a plain file") from None
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(content) != status.st_size:
        raise RunError(f"{path} changed while it was read")
    return content


def strict_json(content: bytes | str) -> Any:
    """What a JSON text says, or ValueError: no NaN, no infinities, no name twice in an object, no endless nesting."""
    try:
        text = content.decode("utf-8") if isinstance(content, bytes) else content
        return json.loads(text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_without_repeats)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that may stand here")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        _refuse(digits[:40])
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return record
