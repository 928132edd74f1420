"""``pacbayes bench``: how fast this machine is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from pacbayes.checks import check_one_of
from pacbayes.devices import device_named
from pacbayes.experiments.speed import EXAMPLES, measure_speed, save_speed


def bench(
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1.")] = "cpu",
    models: Annotated[str, typer.Option(help="Some of the paper's networks, separated by commas.")] = ",".join(
        EXAMPLES
    ),
    share: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            max=1,
            help="Share of an epoch and of the draws to measure. [default: 1 on a GPU, 0.005 on a CPU]",
        ),
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="Append the table, with where it comes from, to speed.jsonl in this folder.")
    ] = None,
) -> None:
    """Time an epoch of the paper's networks, trainings side by side, and 150,000 draws of a certificate."""
    device_named(device)
    names = [name.strip() for name in models.split(",")]
    for name in names:
        check_one_of("model", name, EXAMPLES)
    cuda = device.startswith("cuda")
    share, start = share or (1.0 if cuda else 0.005), time.monotonic()
    lines = measure_speed(
        device, names, share=share, batches=(128, 512) if cuda else (128,),
        concurrent=(1, 2, 4, 8) if cuda else (1, 2),
    )  # fmt: skip
    if results is not None:
        print(f"Written: {save_speed(lines, device, share, time.monotonic() - start, results)}")
