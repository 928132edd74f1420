"""The configuration of a run: one TOML file, which flags may override and which is saved in the run folder."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pacbayes.bounds.deltas import check_priors
from pacbayes.checks import check_in_range, check_names, check_one_of, check_types
from pacbayes.data import available
from pacbayes.data.catalogue import image_folder, is_embedded
from pacbayes.data.folders import expanded, parted
from pacbayes.errors import InvalidInput
from pacbayes.networks.architectures import ARCHITECTURES, INITS
from pacbayes.networks.distributions import DISTRIBUTIONS, check_variance
from pacbayes.seeds import check_seed, derived_seed
from pacbayes.training.ordinary import Ordinary
from pacbayes.training.priors import PRETRAINING, PRIOR_TRAINING
from pacbayes.training.settings import Settings, learning_rates

PRIORS = ("data-free", "learnt")
SCALINGS = ("auto", "prior-data", "none")
MODEL_FOR = {"digits": "cnn-small", "mnist": "mnist-4", "fashion-mnist": "mnist-4", "cifar10": "cifar10-9"}

STAGES = ("ordinary", "pretraining", "prior", "posterior")
DRAWN = ("all", "last")
TABLES = ("ordinary", "pretraining", "prior_training", "posterior")
_SEED_OF = {"pretraining": 0, "prior": 1, "posterior": 2, "ordinary": 3}
_POSTERIOR = Settings(epochs=20, rate=0.002, batch_size=64)


@dataclass(frozen=True)
class Config:
    """All that determines a run, but for the data themselves."""

    data: str = "digits"
    data_folder: str = ""
    """Where to look for the data; empty for the environment variable PACBAYES_DATA, then the cache folder."""
    scaling: str = "auto"
    """``prior-data``: each feature by its mean and deviation there; auto is that for tables, with a learnt prior."""
    model: str = "auto"
    init: str = "default"
    distribution: str = "gaussian"
    prior: str = "learnt"
    prior_fraction: float = 0.5
    """The share of the training data that may shape the prior; the rest enters the bound."""
    prior_data: str = ""
    """Other data that the prior is learnt on, by name or path, in place of a share of the training data: all of these
    then enter the bound. They must be other examples; only identical ones are noticed."""
    prior_variance: float = 0.001
    drawn: str = "all"
    """Which weights are drawn: all, or those of the last layer alone; the others stay as they were trained before."""
    expected_risk: float = 0.0
    """The empirical risk that Catoni's C is chosen for, with ``expected_kl``, before training; 0 for a grid of C."""
    expected_kl: float = 0.0
    held_back: float = 0.0
    """In place of ``expected_risk``: a share of the prior data that does not train the prior; its error there is
    the risk to expect."""
    priors: int = 1
    """How many priors, splits, scales or seeds are tried, this one among them: its certificates pay for the choice."""
    seed: int = 0
    device: str = "cpu"
    ordinary: Ordinary | None = None
    """Ordinary training on the prior data, before anything else; only for learnt priors."""
    pretraining: Settings | None = field(default=PRETRAINING)
    """Cross-entropy on the prior data, before the prior's own training; only for learnt priors."""
    prior_training: Settings | None = field(default=PRIOR_TRAINING)
    posterior: Settings = field(default=_POSTERIOR)

    def __post_init__(self) -> None:
        check_types(self, TABLES)
        check_seed(self.seed)
        check_priors(self.priors)
        check_one_of("model", self.model, ("auto", *ARCHITECTURES))
        check_one_of("initialisation", self.init, INITS)
        check_one_of("distribution", self.distribution, DISTRIBUTIONS)
        check_one_of("prior", self.prior, PRIORS)
        check_one_of("scaling", self.scaling, SCALINGS)
        if self.scaling == "prior-data" and not self.learns_prior:
            raise InvalidInput(
                "a data-free prior has no prior data to scale by, and scaled by the bound data there is no valid "
                "certificate: take scaling none, and scale the data themselves by constants known beforehand"
            )
        check_one_of("drawn", self.drawn, DRAWN)
        if not self.learns_prior and (self.prior_data or self.ordinary is not None or self.drawn != "all"):
            raise InvalidInput("prior_data, ordinary training and drawn = 'last' are for learnt priors")
        check_in_range("prior_fraction", self.prior_fraction, 0, 1)
        check_variance("prior_variance", self.prior_variance)
        for name, high in (("expected_risk", 1), ("expected_kl", math.inf), ("held_back", 1)):
            check_in_range(name, getattr(self, name), 0, high, closed_low=True)
        if self.expected_kl and not (self.expected_risk or self.held_back):
            raise InvalidInput(
                "expected_kl goes with expected_risk or held_back, which choose Catoni's C together with it"
            )
        if self.held_back and (self.expected_risk or not self.learns_prior):
            raise InvalidInput("held_back is for learnt priors, and goes in place of expected_risk: give one of them")
        if self.pretraining is not None and self.pretraining.method != "CE":
            raise InvalidInput(
                f"pretraining is cross-entropy, method CE, and its method is {self.pretraining.method!r}"
            )
        for name in ("prior_training", "posterior"):
            stage = getattr(self, name)
            if stage is not None and stage.method == "CE":
                raise InvalidInput(f"{name} takes method G or S; CE is for pretraining")
        if self.posterior.averaged:
            raise InvalidInput("averaged weights are for priors: of the posterior's epochs one is kept, and recorded")

    @property
    def learns_prior(self) -> bool:
        return self.prior == "learnt"

    def scales(self, shape: tuple[int, ...]) -> bool:
        """Whether features are scaled by mean and deviation of the prior data."""
        if self.scaling == "auto":
            return self.learns_prior and len(shape) == 1
        return self.scaling == "prior-data"

    def model_name(self, shape: tuple[int, ...]) -> str:
        """The architecture: the one named, or the usual one for these data."""
        if self.model != "auto":
            return self.model
        return MODEL_FOR.get(self.data.removesuffix("-binary"), "mlp" if len(shape) != 3 else "cnn-small")

    @property
    def prior_in_words(self) -> str:
        """What the prior knows of data."""
        if not self.learns_prior:
            return "data-free"
        return f"learnt on {self.prior_data or f'{100 * self.prior_fraction:g} %'}"

    def stages(self) -> dict[str, Settings]:
        """What is trained by Algorithm 1 and its like, in order, each with a seed of its own."""
        named = {"pretraining": self.pretraining, "prior": self.prior_training} if self.learns_prior else {}
        named["posterior"] = self.posterior
        return {
            name: replace(settings, seed=derived_seed(self.seed, _SEED_OF[name]))
            for name, settings in named.items()
            if settings is not None
        }

    def ordinary_stage(self) -> Ordinary | None:
        """What is trained before, if anything is, with its seed."""
        return self.ordinary and replace(self.ordinary, seed=derived_seed(self.seed, _SEED_OF["ordinary"]))

    def epochs(self) -> dict[str, int]:
        """The epochs of every stage, in order."""
        first = {"ordinary": self.ordinary.epochs} if self.ordinary else {}
        return first | {name: len(learning_rates(settings)) for name, settings in self.stages().items()}

    def with_options(self, options: Mapping[str, Any]) -> Config:
        """This configuration with some values replaced; tables (of a stage) are merged, ``epochs = 0`` drops one."""
        check_names(options, Config)
        changes: dict[str, Any] = {k: self._stage(k, v) if k in TABLES else v for k, v in options.items()}
        return replace(self, **changes)

    def with_data_at(self, place: str | None) -> Config:
        """This configuration, with the data in another place: a file of one's own, or the folder of a dataset."""
        if place is None:
            return self
        published = self.data in dict(available())
        if is_embedded(self.data):
            raise InvalidInput(f"--data {place} would be ignored: {self.data} comes with pacbayes")
        if published and not expanded(place).is_dir():
            raise InvalidInput(f"--data {place}: no such folder, where {self.data} might lie")
        column = parted(self.data)[1]
        has_one = place.lower().endswith(".csv") or image_folder(place) is not None
        if column and has_one and not published and not parted(place)[1]:
            place = f"{place}#{column}"  # of the labels in a table, or the size of images
        return self.with_options({"data_folder" if published else "data": place})

    def _stage(self, name: str, values: Any) -> Settings | Ordinary | None:
        if not isinstance(values, Mapping):
            raise InvalidInput(f"{name} must be a table of settings, and is {values!r}")
        if "seed" in values:
            raise InvalidInput(f"{name} has no seed of its own: it follows from the seed of the run")
        if name != "posterior" and values.get("epochs") == 0:
            return None
        base = getattr(self, name) or getattr(Config(), name)
        try:
            if name == "ordinary":
                return Ordinary.of(**{**asdict(base or Ordinary()), **values})
            return Settings.of(**{**asdict(base), **values})
        except InvalidInput as error:
            raise InvalidInput(f"{name}: {error}") from None

    def to_toml(self) -> str:
        """The whole configuration; a stage that is left out is written ``epochs = 0``."""
        values = asdict(self)
        stages = {name: values.pop(name) for name in TABLES}
        lines = [f"{name} = {_toml(value)}" for name, value in values.items()]
        for stage, settings in stages.items():
            lines += ["", f"[{stage}]"]
            # The seed of a stage follows from the run's.
            items = {"epochs": 0} if settings is None else {k: v for k, v in settings.items() if k != "seed"}
            lines += [f"{name} = {_toml(value)}" for name, value in items.items()]
        return "\n".join(lines) + "\n"

    def encoded(self) -> bytes:
        """The content of config.toml."""
        try:
            return self.to_toml().encode()
        except UnicodeEncodeError:
            raise InvalidInput(
                "a file or folder of the configuration has a name that is no text in UTF-8: rename it"
            ) from None

    @classmethod
    def read(cls, path: Path) -> Config:
        """A configuration from a TOML file; what it does not name has its default."""
        return cls.of_file(options_in(path), path)

    @classmethod
    def parse(cls, content: bytes, source: Path) -> Config:
        """A configuration from the content of a TOML file."""
        return cls.of_file(_options(content, source), source)

    @classmethod
    def of_file(cls, options: Mapping[str, Any], source: Path) -> Config:
        """A configuration from what a TOML file names."""
        try:
            return cls().with_options(options)
        except InvalidInput as error:
            raise InvalidInput(f"{source}: {error}") from None


def options_in(path: Path) -> dict[str, Any]:
    """What a TOML file names."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from None
    return _options(content, path)


def _options(content: bytes, source: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{source} is not a readable TOML file: {error}") from None


def _toml(value: str | float | bool) -> str:
    # JSON's strings, integers and floats are TOML's too, but for one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def nested(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options such as ``"posterior.kappa"`` for :meth:`Config.with_options`: those of a stage in a table."""
    tables: dict[str, Any] = {}
    for name, value in options.items():
        stage, _, option = name.rpartition(".")
        (tables.setdefault(stage, {}) if stage else tables)[option] = value
    return tables
