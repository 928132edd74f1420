"""``.csv`` files: a line that names the columns, then one line an example: numbers, and one column of labels."""

import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from pacbayes.data.dataset import Data
from pacbayes.data.faults import faults_of
from pacbayes.data.labels import number_labels
from pacbayes.errors import DataError, MissingData

MAX_BYTES, MAX_LINE = 2**32, 2**22
LABEL_COLUMNS = ("label", "class", "target", "y")
# Half stars or version numbers may be classes; a measured quantity has more values.
_MOST_GRADES = 20
_NO_LABEL = ("", "nan")  # "none" and "NA" may be classes
_LARGEST = float(np.finfo(np.float32).max)
_TRUTHS = {"True": 1.0, "False": 0.0}  # as pandas writes them
_WITH_COMMA = re.compile(r"[+-]?\d+,\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def read_csv(path: Path, label: str = "", part: str = "train") -> Data:
    """The examples of a file; the test part of ``…train.csv`` is ``…test.csv`` beside it.

    label: the column of labels, words or numbers; if it is not given, the one called label, class, target or y.
    Fields are separated by commas, semicolons or tabs, whichever the first line has most of.
    """
    if part == "train":
        return _read(path, label)
    if not path.stem.endswith("train"):
        raise MissingData(f"{path}: has no test part; that of a file …train.csv would be …test.csv beside it")
    beside = path.with_name(path.name.removesuffix(f"train{path.suffix}") + f"test{path.suffix}")
    return _read(beside, label, _read(path, label))


def read_csv_inputs(path: Path, label: str = "", features: Sequence[str] = ()) -> Tensor:
    """The features alone, [m, columns]: as ``read_csv``, but a file without labels will do.

    features: the columns to take, in this order, wherever they stand; if none are named, all but the labels'.
    """
    return torch.from_numpy(_table(path, label, features, labelled=False)[1])


def _read(path: Path, label: str, like: Data | None = None) -> Data:
    """like: data whose columns and classes these must have."""
    features, x, labels = _table(path, label, () if like is None else like.feature_names)
    words = set(labels)
    fractions = [word for word in labels if _NUMBER.fullmatch(word) and not float(word).is_integer()]
    if fractions and len(words) > _MOST_GRADES and all(_NUMBER.fullmatch(word) for word in words):
        raise DataError(
            f"{path}: the labels are {len(words)} numbers, such as {fractions[0]}: these are no classes; cut them into "
            "some"
        )
    with faults_of(path):
        _refuse_two_spellings(words)
        y, names = number_labels(labels, () if like is None else like.class_names)
        return Data(
            torch.from_numpy(x), torch.from_numpy(y), len(names), path.stem, names, feature_names=tuple(features)
        )


def _refuse_two_spellings(words: Iterable[str]) -> None:
    """Refuse labels that are one number, such as 0 and 0.0: they would be two classes."""
    spelling: dict[Decimal, str] = {}
    for word in sorted(words):
        if (number := _NUMBER.fullmatch(word)) and not number[2]:
            first = spelling.setdefault(Decimal(word), word)
            if first != word:
                raise DataError(
                    f"the labels {first!r} and {word!r} are the same number: write it in one way, or, if they are two "
                    "classes, put a letter in front"
                )


def _table(
    path: Path, label: str, features: Sequence[str] = (), *, labelled: bool = True
) -> tuple[list[str], np.ndarray, list[str]]:
    if not path.is_file():
        raise MissingData(f"{path}: no such file")
    if path.stat().st_size > MAX_BYTES:
        raise DataError(f"{path}: has {path.stat().st_size} bytes; the limit is {MAX_BYTES}")
    with faults_of(path, ".csv file", (csv.Error, OSError)):
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                return _parse(file, label, features, labelled)
        except UnicodeDecodeError as error:
            raise DataError(f"not in UTF-8: save it so ({error})") from error


def _parse(file: IO[str], label: str, wanted: Sequence[str], labelled: bool) -> tuple[list[str], np.ndarray, list[str]]:
    """The features' names, their values, float32 [m, columns], and the labels as they stand."""
    lines = _lines(file)
    head = next(lines, "")
    separator = max(",;\t", key=head.count)
    columns = [name.strip() for name in next(csv.reader([head], delimiter=separator), [])]
    _check_columns(columns, labelled)
    # By their names, features are found without knowing which column has the labels.
    place = None if wanted and not labelled else _label_column(columns, label, labelled)
    features = list(wanted) or [name for i, name in enumerate(columns) if i != place]
    where = {name: i for i, name in enumerate(columns)}
    if missing := [name for name in features if name not in where]:
        raise DataError(f"there is no column {missing[0]!r}, which the training data have")
    places = [where[name] for name in features]
    reader = csv.reader(lines, delimiter=separator, strict=True)
    rows, labels = [], []
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        line = reader.line_num + 1
        if len(cells) != len(columns):
            raise DataError(f"line {line} has {len(cells)} fields, and the first line names {len(columns)} columns")
        values = [cell.strip() for cell in cells]
        if place is not None:
            labels.append(values[place])
            if labelled and labels[-1].lower() in _NO_LABEL:
                shown = f" but {labels[-1]!r}" if labels[-1] else ""
                raise DataError(f"line {line} has no label{shown} in column {columns[place]!r}")
        rows.append(_numbers([values[i] for i in places], features, line))
    if not rows:
        raise DataError("has no examples below the line that names the columns")
    return features, np.stack(rows), labels


def _lines(file: IO[str]) -> Iterator[str]:
    """Lines of bounded length."""
    while line := file.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            raise DataError(f"a line has more than {MAX_LINE} characters")
        yield line


def _check_columns(columns: list[str], labelled: bool) -> None:
    if "" in columns:
        raise DataError(
            f"column {columns.index('') + 1} has no name. Row numbers are no feature: pandas leaves them out with "
            "to_csv(index=False)"
        )
    if repeated := [name for name, count in Counter(columns).items() if count > 1]:
        raise DataError(f"two columns are called {repeated[0]!r}: the first line must name the columns")
    if len(columns) < 1 + labelled:
        raise DataError(f"needs a first line that names the columns: features{', and one of labels' * labelled}")


def _label_column(columns: list[str], label: str, labelled: bool) -> int | None:
    found = [i for i, name in enumerate(columns) if (name == label if label else name.lower() in LABEL_COLUMNS)]
    if len(found) == 1:
        return found[0]
    if not labelled and not found:
        return None
    wanted = repr(label) if label else f"one of {', '.join(LABEL_COLUMNS)}"
    numbers = any(_NUMBER.fullmatch(name) for name in columns)
    no_names = ": if these are an example, put a line above it that names the columns" * numbers
    listed = ", ".join(columns[:20]) + (", …" if len(columns) > 20 else "")
    raise DataError(
        f"{'no' if not found else 'more than one'} column is called {wanted}: add the name of the label column to the "
        f"path, as in data.csv#species. The columns are {listed}{no_names}"
    )


def _numbers(cells: list[str], columns: list[str], line: int) -> np.ndarray:
    # Stricter than float(): that takes 1_000, infinities and digits of all scripts.
    values = [float(cell) if _NUMBER.fullmatch(cell) else _TRUTHS.get(cell, math.nan) for cell in cells]
    for cell, column, value in zip(cells, columns, values, strict=True):
        if _WITH_COMMA.fullmatch(cell):
            raise DataError(
                f"line {line}, column {column!r} holds {cell[:40]!r}: write decimal points, not commas, and no "
                "separators of thousands; pandas reads these with read_csv(decimal=',') or read_csv(thousands=','), "
                "and writes them so"
            )
        if not abs(value) <= _LARGEST:
            shown = f"holds {cell[:40]!r}, which is not a number that fits float32" if cell else "is empty"
            raise DataError(
                f"line {line}, column {column!r} {shown}: every column but the label's must hold numbers. "
                f"{'Encode words' if cell else 'Fill gaps'} by constants, or with what is fitted on the prior data "
                "alone: CertifiedClassifier(preprocessing=...), see 'With scikit-learn' in docs/recipes.md"
            )
    return np.array(values, np.float32)
