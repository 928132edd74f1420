"""The file of a sweep: a base configuration, axes, and how the best is certified."""

from __future__ import annotations

import itertools
import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from pacbayes.bounds.deltas import check_delta, check_deltas
from pacbayes.certificates import formulas_of
from pacbayes.certificates.certify import MC_DELTA
from pacbayes.checks import check_one_of, check_type, check_types
from pacbayes.errors import InvalidInput
from pacbayes.files import sha256
from pacbayes.runs import Config
from pacbayes.runs.config import nested
from pacbayes.seeds import check_seed
from pacbayes.sweeps.axes import Axis, Range, ends, read_axes
from pacbayes.sweeps.charge import Charge, count, posterior_side

KINDS = {"grid": "every combination of the values", "search": "trials that Optuna proposes from those before"}
MOST_TRIALS = 10_000


@dataclass(frozen=True)
class Certification:
    """How the best trial is certified; as the options of ``pacbayes certify``."""

    bound: str = "invKL"
    predictor: str = "randomised"
    draws: int | None = None
    """As many as :func:`~pacbayes.certify` takes, unless given; a single network is counted without any."""
    delta: float = 0.025
    """For the whole sweep: each prior that it can try has an equal share."""
    mc_delta: float | None = None
    test_draws: int = 1000

    def __post_init__(self) -> None:
        of_draws = {"draws": int, "mc_delta": float}
        check_types(self, left_out=of_draws)
        formulas_of(self.bound, self.predictor)
        for name, kind in of_draws.items():
            if (value := getattr(self, name)) is not None:
                check_type(name, value, kind)
                if self.predictor == "single":
                    raise InvalidInput(f"{name} would be ignored: a single network is counted as it is, without draws")
        if self.predictor == "single":
            check_delta(self.delta)
        else:
            check_deltas(self.delta, self.spent_on_draws)
        if min(1 if self.draws is None else self.draws, self.test_draws) < 1:
            raise InvalidInput("draws and test_draws must be at least 1")

    @property
    def spent_on_draws(self) -> float:
        """The mc_delta in effect."""
        if self.predictor == "single":
            return 0.0
        return MC_DELTA if self.mc_delta is None else self.mc_delta


@dataclass(frozen=True)
class Specification:
    """A sweep, as its file says."""

    axes: dict[str, Axis]
    base: Config = field(default_factory=Config)
    kind: str = "grid"
    trials: int = 0
    """Of a search. A grid has as many as there are combinations."""
    prune: bool = False
    """Stop a trial whose bound, after some epochs, is above the median of the others there."""
    seed: int = 0
    """Of the search."""
    certify: Certification = field(default_factory=Certification)

    @property
    def charge(self) -> Charge:
        return count(self.axes, self.certify.delta, self.certify.spent_on_draws)

    @property
    def fingerprint(self) -> str:
        """The same for the same sweep on the same device."""
        return sha256(json.dumps(asdict(self), sort_keys=True).encode())

    def config(self, parameters: Mapping[str, Any]) -> Config:
        """The configuration of a trial. Its bound is that of its share of delta, so that trials can be compared."""
        charge = self.charge
        paid = {"priors": charge.priors, "posterior": {"delta": charge.each}}
        return self.base.with_options(nested(parameters)).with_options(paid)

    def grid(self) -> Iterator[dict[str, Any]]:
        """Every combination; of neighbours most have other priors, which can be made at the same time."""
        names = sorted(self.axes, key=lambda name: not posterior_side(name))
        for values in itertools.product(*(self.axes[name] for name in names)):  # type: ignore[arg-type]
            yield dict(zip(names, values, strict=True))

    @classmethod
    def read(cls, path: Path) -> Specification:
        try:
            return cls.parse(path.read_bytes())
        except OSError as error:
            raise InvalidInput(f"{path} is not a readable TOML file: {error.strerror or error}") from None
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from None

    @classmethod
    def parse(cls, content: bytes) -> Specification:
        """A sweep from the content of its file, checked as a whole before anything is trained."""
        try:
            table = tomllib.loads(content.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"not a TOML file: {error}") from None
        known = [item.name for item in fields(cls)]
        for name in table:
            check_one_of("entry", name, known)
        axes = read_axes(table.pop("axes", None))
        base = _table(table.pop("base", {}), "base")
        certify = _table(table.pop("certify", {}), "certify")
        for name in ("priors", "posterior.delta"):
            stage, _, option = name.rpartition(".")
            inside = base.get(stage, {}) if stage else base
            if isinstance(inside, Mapping) and option in inside:
                raise InvalidInput(f"{name} is set by the sweep: give delta in [certify]")
        for name in certify:
            check_one_of("option of [certify]", name, [item.name for item in fields(Certification)])
        table.setdefault("prune", table.get("kind") == "search")
        sweep = cls(axes, Config().with_options(base), certify=Certification(**certify), **table)
        sweep._check()
        return sweep

    def with_device(self, device: str) -> Specification:
        return replace(self, base=self.base.with_options({"device": device}))

    def _check(self) -> None:
        for name, kind in (("kind", str), ("trials", int), ("prune", bool), ("seed", int)):
            check_type(name, getattr(self, name), kind)
        check_seed(self.seed)
        check_one_of("kind", self.kind, KINDS)
        charge = self.charge
        for name, axis in self.axes.items():
            for value in ends(axis):
                self._check_value(name, value)
        if self.kind == "search":
            if not 1 <= self.trials <= MOST_TRIALS:
                raise InvalidInput(f"a search needs trials, from 1 to {MOST_TRIALS}, and has {self.trials}")
            return
        if self.trials:
            raise InvalidInput("a grid has as many trials as combinations: leave trials out, or make it a search")
        if ranges := [name for name, axis in self.axes.items() if isinstance(axis, Range)]:
            raise InvalidInput(f'a grid needs a list of values for {ranges[0]}; ranges are for kind = "search"')
        size = math.prod(len(axis) for axis in self.axes.values() if not isinstance(axis, Range))
        if size > MOST_TRIALS:
            raise InvalidInput(f"a grid of {size} trials, {charge.priors} priors, is too large: {MOST_TRIALS} at most")
        for parameters in self.grid():
            self.config(parameters)

    def _check_value(self, name: str, value: Any) -> None:
        try:
            self.base.with_options(nested({name: value}))
        except InvalidInput as error:
            raise InvalidInput(f"the axis {name!r}: {error}") from None


def _table(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput(f"{name} must be a table, [{name}], and is {value!r}")
    return dict(value)
