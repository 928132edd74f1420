"""``pacbayes report``: a certificate explained on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pacbayes.cli.options import DataPlace, Run
from pacbayes.cli.terminal import check_out
from pacbayes.report import write_report
from pacbayes.runs import RunFolder


def report(
    run: Run,
    data: DataPlace = None,
    examples: Annotated[
        bool, typer.Option("--examples/--no-examples", help="Show examples of the data that the network errs on.")
    ] = True,
    out: Annotated[Path | None, typer.Option(help="Write the page to this file. [default: RUN/report.html]")] = None,
) -> None:
    """Write RUN/report.html: the certificate explained, with pictures, on one page that needs nothing else.

    Where the data are at hand, it shows examples that the network errs on; leave them out if the page is for others
    and the data are not.
    """
    check_out(out, run)
    print(f"Written: {write_report(RunFolder.open(run), data=data, examples=examples, out=out)}")
