"""``pacbayes predict``: labels for new examples, by what was certified."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated

import typer

from pacbayes.cli.options import Device, OptionalSeed, Run
from pacbayes.cli.terminal import check_out, printable, tell
from pacbayes.data.folders import parted
from pacbayes.files import in_shell, write_atomically
from pacbayes.runs import RunFolder, predict_run
from pacbayes.runs.predict import inputs_for, valid_certificate


def predict(
    run: Run,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A .npz file with an array x or a folder with x.npy, a .csv file with the training data's columns, an "
            "image or a folder of images, or the name of a dataset (its test part).",
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Write the labels to this CSV file, not to the screen.")] = None,
    seed: OptionalSeed = None,
    device: Device = None,
) -> None:
    """Label new examples with the certified classifier: by the names of the classes, if the training data had any.

    By default it is the randomised one: a fresh draw of the weights for each example. After 'certify --predictor
    single' it is that one network, and after 'majority' the vote of fresh draws.

    The certified risk is that of just this procedure, for examples from the same source as the training data.
    """
    folder = RunFolder.open(run)
    check_out(out, run, Path(parted(data)[0]))
    inputs, files = inputs_for(folder, data)
    labels = predict_run(folder, inputs, seed, device)
    names = [printable(name) for name in folder.class_names()]
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(
        [
            ("file" if files else "index", "label"),
            *((printable(files[i]) if files else i, names[label]) for i, label in enumerate(labels.tolist())),
        ]
    )
    if out is None:
        print(table.getvalue(), end="")
    else:
        write_atomically(out, table.getvalue().encode())
        tell(f"Written: {out}")
    if (certificate := valid_certificate(folder)) is not None:
        tell(certificate.sentence())
    else:
        tell(f"No certificate yet: run 'pacbayes certify {in_shell(run)}'.")
