"""``pacbayes sign``: an issuer stands by a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pacbayes.errors import InvalidInput, RunError
from pacbayes.files import in_shell
from pacbayes.runs import RunFolder, new_key, sign_run, verify_run
from pacbayes.runs.check import FAILED
from pacbayes.runs.signature import NAME


def sign(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="A run folder with a certificate.")] = None,
    key: Annotated[Path | None, typer.Option(help="Your private key, made by --new-key.")] = None,
    new: Annotated[
        Path | None, typer.Option("--new-key", help="Make a key: FILE, for you alone, and FILE.pub, for everybody.")
    ] = None,
) -> None:
    """Sign a run: RUN/signature.json, which 'pacbayes verify RUN --key FILE.pub' checks.

    The signature covers the certificate and, by their hashes, all files of the run. A run that fails verification is
    not signed. Needs the package cryptography: pip install 'pacbayes[sign]'.
    """
    if (run is None) == (new is None) or (run is None) != (key is None):
        raise InvalidInput("give a run folder with --key FILE, or --new-key FILE alone")
    if new is not None:
        public = new_key(new)
        print(f"Written: {new}, which signs and is for you alone, and {public}, which checks and is for everybody")
        return
    assert run is not None and key is not None
    folder = RunFolder.open(run)
    folder.certificate()
    # An old signature gives way to the new one, also one that was cut off before its line in the journal.
    failed = [c.name for c in verify_run(folder) if c.status == FAILED and c.name not in ("signature", NAME)]
    if failed:
        raise RunError(
            f"{run} is not signed: it fails verification ({', '.join(failed)}), see 'pacbayes verify {in_shell(run)}'"
        )
    print(f"Signed with the key {sign_run(folder, key)[:16]}. Written: {folder.path / 'signature.json'}")
