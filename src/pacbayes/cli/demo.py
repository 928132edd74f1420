"""``pacbayes demo``: the whole way on embedded data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pacbayes.cli.certify import certify_and_show
from pacbayes.cli.progress import TrainingBar
from pacbayes.report import write_report
from pacbayes.runs import Config, train_run


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the run; a run that is there is replaced.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the whole demonstration.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1.")] = "cpu",
) -> None:
    """Train, certify and report on embedded data (8x8 digits): about a minute on a laptop."""
    print("Data: 1,437 images of digits, half of them for the prior, half for the bound.\n", flush=True)
    with TrainingBar() as bar:
        run = train_run(Config(seed=seed, device=device), out, overwrite=True, watch=bar)
    certify_and_show(run, seed=seed)
    print(f"Written: {write_report(run)}")
