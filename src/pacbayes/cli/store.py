"""``pacbayes store``: data as a folder that is read as it is needed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from pacbayes.cli.terminal import print_lines
from pacbayes.data import store as write
from pacbayes.errors import MissingData
from pacbayes.files import in_shell


def store(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="As --data of 'pacbayes train': a folder of images (photos#64), a dataset's name, ..."
        ),
    ],
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder to write x.npy and y.npy to; made if it is not there.")
    ],
) -> None:
    """Write data as a folder of .npy files, which 'train' and the others read as they need it.

    For images that would not fit into memory together: they are decoded once, a few at a time. The test part is
    written, too, if there is one.
    """
    print_lines(write(data, folder).summary())
    with suppress(MissingData):
        print(f"test part: {len(write(data, folder, 'test'))} examples")
    print(f"Written: {folder}. Next: pacbayes train --data {in_shell(folder)} --out RUN")
