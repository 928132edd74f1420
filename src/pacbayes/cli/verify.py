"""``pacbayes verify``: each check, and whether any failed."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from pacbayes.cli.options import DataPlace, Run
from pacbayes.cli.progress import fraction_bar
from pacbayes.cli.terminal import print_lines
from pacbayes.errors import RunError
from pacbayes.runs import RunFolder, verification
from pacbayes.runs.check import FAILED, OPEN, PASSED


def verify(
    run: Run,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Repeat the Monte-Carlo count, with fresh draws.")
    ] = False,
    data: DataPlace = None,
    key: Annotated[Path | None, typer.Option(help="The issuer's public key, which must have signed the run.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1.")] = "cpu",
) -> None:
    """Check a certificate: all that can be proved from the folder and the data.

    Every file is what the run wrote; numbers, fingerprints, split, history and KL follow from each other. Each check
    is passed, failed, or not checkable and why. Exit status 0 only if none failed, and with --recompute only if the
    count was repeated.
    """
    folder, checks = RunFolder.open(run, finished=False), []
    with fraction_bar("counting") if recompute else nullcontext() as progress:
        for check in verification(folder, recompute=recompute, data=data, key=key, device=device, progress=progress):
            checks.append(check)
            print_lines(f"{check.status:<14} {check.name:<22} {check.detail}", hanging=38)
            sys.stdout.flush()
    counts = Counter(check.status for check in checks)
    print("; ".join(f"{count} {status}" for status, count in counts.items()))
    if counts[FAILED]:
        sys.exit(1)
    if open_ := dict.fromkeys(check.name for check in checks if check.status == OPEN):
        print_lines(f"Not checked: {', '.join(open_)}.")
    print_lines(f"What is certified: {folder.certificate().sentence()}")
    if recompute and not any((check.name, check.status) == ("Monte Carlo", PASSED) for check in checks):
        raise RunError("the count was not repeated, as --recompute asks: see above why")
