"""Fetching published files, checked by their SHA-256 before they get their name."""

import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from pacbayes.errors import DataError

# More than any file of a published dataset; an archive that announces more is not the one expected.
MAX_MEMBER_BYTES = 2**26


def download(url: str, sha256: str, folder: Path) -> Path:
    """Fetch ``url`` into ``folder`` under its own name, where it appears whole and checked or not at all."""
    try:
        import pooch
    except ImportError:
        raise DataError("downloading needs pooch: pip install pooch") from None
    try:
        return Path(pooch.retrieve(url, f"sha256:{sha256}", fname=PurePosixPath(url).name, path=folder))
    except ValueError as error:  # a wrong hash
        raise DataError(f"downloading {url} failed: {error}") from error
    except OSError as error:  # those of requests, too, whose words are many
        why = str(error) if len(str(error)) < 200 else f"{type(error).__name__}; is there a network?"
        raise DataError(f"downloading {url} failed: {why}") from error


def unpack(archive: Path, names: Collection[str], folder: Path) -> None:
    """Copy the files called ``names`` out of a tar archive into ``folder``, each atomically, and nothing else.

    Only base names and contents are used: paths, links and modes in the archive have no effect.
    """
    missing = set(names)
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = PurePosixPath(member.name).name
                if name not in missing or not member.isreg():
                    continue
                if member.size > MAX_MEMBER_BYTES:
                    raise DataError(f"{archive}: {name} announces {member.size} bytes; at most {MAX_MEMBER_BYTES}")
                _copy_member(tar, member, folder / name)
                missing.remove(name)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DataError(f"{archive}: cannot be unpacked ({error})") from error
    if missing:
        raise DataError(f"{archive}: does not hold {', '.join(sorted(missing))}")


def _copy_member(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    source = tar.extractfile(member)
    assert source is not None  # regular files have contents
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        partial = Path(scratch, target.name)
        with source, partial.open("wb") as sink:
            shutil.copyfileobj(source, sink)
        partial.replace(target)
