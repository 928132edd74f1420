"""The data that a configuration means, and their record."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pacbayes import processes
from pacbayes.data import Data, load, split
from pacbayes.data.pixels import Pixels
from pacbayes.errors import InvalidInput, MissingData, PacBayesError, ProcessLost
from pacbayes.runs.config import Config


@dataclass(frozen=True)
class SplitData:
    """The data of a run: what may shape the prior, if it is learnt, and what enters the bound."""

    prior: Data | None
    bound: Data

    def record(self) -> dict[str, Any]:
        """Sizes and fingerprints."""
        parts = {"prior": self.prior, "bound": self.bound}
        found = {name: (len(data), data.fingerprint()) for name, data in parts.items() if data is not None}
        return data_record(self.bound, found)


def data_record(data: Data | Pixels, parts: dict[str, tuple[int, str]]) -> dict[str, Any]:
    """What data.json holds: shape, classes, scaling of pixels, names, and the (size, fingerprint) of each part."""
    sizes = {name: {"examples": size, "fingerprint": fingerprint} for name, (size, fingerprint) in parts.items()}
    names = {name: list(found) for name in ("class_names", "feature_names") if (found := getattr(data, name, ()))}
    scaling = None if data.scaling is None else asdict(data.scaling)
    return {"shape": list(data.shape), "classes": data.classes, "scaling": scaling, **names, **sizes}


def same_data(record: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two records are of the same data.

    How pixels were scaled is in none that is older, and not known of images that were stored as numbers.
    """
    both = record | other
    if None in (record.get("scaling"), other.get("scaling")):
        both.pop("scaling", None)
    return all(record.get(name) == other.get(name) for name in both)


def training_data(config: Config, *, download: bool = True) -> SplitData:
    """The two parts of the split, or no prior data and everything."""
    with processes.in_turn():
        data = load(config.data, "train", folder=config.data_folder, download=download)
        if config.prior_data:
            other = load(config.prior_data, "train", folder=config.data_folder, download=download)
            if (other.shape, other.classes) != (data.shape, data.classes):
                raise InvalidInput(
                    f"the prior data have examples of shape {list(other.shape)} and {other.classes} classes, and the "
                    f"training data {list(data.shape)} and {data.classes}: they must be alike"
                )
            for what in ("class_names", "feature_names"):
                theirs, ours = getattr(other, what), getattr(data, what)
                if theirs and ours and theirs != ours:
                    named = what.replace("_", " ")
                    order = " in the same order" if sorted(theirs) == sorted(ours) else ""
                    raise InvalidInput(f"the {named} of the prior data are not those of the training data{order}")
            return SplitData(other, data)
    if not config.learns_prior:
        return SplitData(None, data)
    return SplitData(*split(data, config.prior_fraction, config.seed))


def without_examples(data: Data, test: Data | None) -> Iterator[str]:
    """What is odd about classes that no example of the data has."""
    missing = [y for y, count in enumerate(data.class_counts()) if not count]
    there = test.class_counts() if missing and test is not None and test.classes == data.classes else [0] * data.classes
    if only := [y for y in missing if there[y]]:
        yield f"label {_listed(only)} is among the test data only: no example to learn from has it"
    if none := [y for y in missing if not there[y]]:
        yield f"no example has label {_listed(none)}: are labels numbered without gaps?"


def _listed(labels: list[int]) -> str:
    if len(labels) > 20:
        return f"{', '.join(map(str, labels[:20]))} or {len(labels) - 20} others"
    return " or ".join(filter(None, (", ".join(map(str, labels[:-1])), str(labels[-1]))))


def test_data(config: Config, shape: tuple[int, ...], *, download: bool = True) -> Data | None:
    """The test part, if the dataset has one."""
    try:
        with processes.in_turn():
            data = load(config.data, "test", folder=config.data_folder, download=download)
    except MissingData:
        return None
    if data.shape != shape:
        raise InvalidInput(f"a test example has shape {list(data.shape)}, and a training example {list(shape)}")
    return data


def usable_test_data(config: Config, shape: tuple[int, ...]) -> Data | None:
    """The same; where it cannot be used, a warning and none: it is no part of a certificate, and does not stop one."""
    try:
        return test_data(config, shape)
    except ProcessLost:
        raise
    except PacBayesError as error:
        warnings.warn(f"the test part cannot be used, and there is no test error: {error}", stacklevel=3)
        return None
