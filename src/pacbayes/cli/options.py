"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, made by 'pacbayes train'.")]
OptionalSeed = Annotated[int | None, typer.Option(min=0, help="Seed of the draws; fresh ones if not given.")]

Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1. [default: the one the run was trained on]")]

DataPlace = Annotated[
    str | None,
    typer.Option(
        help="Where the data are now: a .npz or .csv file, or a folder with the dataset. [default: as trained]"
    ),
]
