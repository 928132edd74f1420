"""A run folder: the files of one run, and the network and data that they describe."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pacbayes.data import Data, load, split
from pacbayes.errors import InvalidInput, MissingData, RunError
from pacbayes.files import write_atomically
from pacbayes.networks import StochasticNetwork, build, stochastic
from pacbayes.runs.config import STAGES, Config

FILES = (
    "config.toml",
    "data.json",
    "history.jsonl",
    "prior.safetensors",
    "posterior.safetensors",
    "single.safetensors",
    "certificate.json",
    "classes.json",
    "evaluation.json",
    "report.html",
)


@dataclass(frozen=True)
class SplitData:
    """The data of a run: what may shape the prior, if it is learnt, and what enters the bound."""

    prior: Data | None
    bound: Data

    def record(self) -> dict[str, Any]:
        """Sizes and fingerprints."""
        parts = {"prior": self.prior, "bound": self.bound}
        sizes = {
            name: {"examples": len(data), "fingerprint": data.fingerprint()}
            for name, data in parts.items()
            if data is not None
        }
        return {"shape": list(self.bound.shape), "classes": self.bound.classes, **sizes}


@dataclass(frozen=True)
class RunFolder:
    path: Path

    @property
    def config_file(self) -> Path:
        return self.path / "config.toml"

    @property
    def data_file(self) -> Path:
        return self.path / "data.json"

    @property
    def history_file(self) -> Path:
        return self.path / "history.jsonl"

    @property
    def certificate_file(self) -> Path:
        return self.path / "certificate.json"

    @property
    def single_file(self) -> Path:
        return self.path / "single.safetensors"

    def single_draws(self) -> int:
        """How many single networks were drawn for certificates of this run."""
        if not self.single_file.is_file():
            return 0
        try:
            with safe_open(self.single_file, "pt") as file:
                return max(1, int(file.metadata()["draw"]))
        except (SafetensorError, ValueError, LookupError, TypeError) as error:
            raise RunError(f"{self.single_file} does not say how many networks were drawn: {error}") from None

    def weights_file(self, which: str) -> Path:
        return self.path / f"{which}.safetensors"

    def checkpoint_file(self, stage: str) -> Path:
        return self.path / f"checkpoint-{stage}.safetensors"

    @classmethod
    def open(cls, path: Path, *, finished: bool = True) -> RunFolder:
        """An existing run; ``finished`` asks for its posterior."""
        run = cls(path)
        if not run.config_file.is_file():
            raise RunError(f"{path} is not a run folder: it has no config.toml. Make one with 'pacbayes train --out'")
        if finished and not run.weights_file("posterior").is_file():
            raise RunError(
                f"the run in {path} is not finished: continue it with 'pacbayes train --resume --out {path}'"
            )
        return run

    @classmethod
    def create(cls, path: Path, config: Config, data: SplitData, *, overwrite: bool = False) -> RunFolder:
        """A new run folder with its configuration and its data's fingerprints.

        An existing run is only replaced on request.
        """
        run = cls(path)
        if path.exists() and not path.is_dir():
            raise RunError(f"{path} exists and is not a run folder: name another, nothing was written")
        own = run.own_files()
        if path.exists() and not run.config_file.is_file() and set(path.iterdir()) - set(own):
            raise RunError(f"{path} exists and is not a run folder: name another, nothing was written")
        if run.config_file.is_file() and not overwrite:
            raise RunError(f"{path} holds a run already: name another folder, or use --resume or --overwrite")
        # Also what is left of a run that was killed while its folder was made.
        for old in own:
            old.unlink(missing_ok=True)
        path.mkdir(parents=True, exist_ok=True)
        write_atomically(run.data_file, (json.dumps(data.record(), indent=2) + "\n").encode())
        write_atomically(run.config_file, config.to_toml().encode())
        return run

    def data(self) -> SplitData:
        """The data of the run; refused if they are not those it was started with."""
        data = training_data(self.config())
        self.check_data(data)
        return data

    def data_record(self) -> dict[str, Any]:
        """What data.json holds."""
        try:
            record = json.loads(self.data_file.read_text("utf-8"))
            if all(type(n) is int and 0 < n < 2**31 for n in (*record["shape"], record["classes"])):
                return dict(record)
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            pass
        raise RunError(f"{self.data_file} is missing or damaged")

    def check_data(self, data: SplitData) -> None:
        """Refuse other data than those the run was started with."""
        recorded = self.data_record()
        if recorded != data.record():
            raise RunError(f"the data are not those that the run in {self.path} was started with (see data.json)")

    def own_files(self) -> list[Path]:
        """The files in the folder that a run makes."""
        checkpoints = (f"checkpoint-{stage}.safetensors" for stage in STAGES)
        names = [*FILES, *checkpoints]
        return [path for name in names for path in (self.path / name, self.path / f".{name}.partial") if path.exists()]

    def remove_checkpoints(self) -> None:
        for stage in STAGES:
            self.checkpoint_file(stage).unlink(missing_ok=True)

    def config(self) -> Config:
        return Config.read(self.config_file)

    def prior_in_history(self) -> str:
        """The prior's fingerprint, as the first line of the posterior's history has it; empty if there is none."""
        try:
            with self.history_file.open(encoding="utf-8") as file:
                records = (json.loads(line) for line in file)
                return next(str(r["prior_fingerprint"]) for r in records if r["stage"] == "posterior")
        except (OSError, ValueError, LookupError, TypeError, StopIteration, RecursionError):
            return ""

    def save_weights(self, net: StochasticNetwork, which: str) -> None:
        write_atomically(self.weights_file(which), safetensors.torch.save(net.state(which)))

    def read_weights(self, which: str) -> dict[str, Tensor]:
        path = self.weights_file(which)
        if not path.is_file():
            raise RunError(f"{path} is missing")
        try:
            return safetensors.torch.load_file(path)
        except (SafetensorError, ValueError) as error:
            raise RunError(f"{path} is not a safetensors file: {error}") from None

    def network(self, device: str | None = None) -> StochasticNetwork:
        """The trained network: posterior and prior from their files, on the run's device or another."""
        config, record = self.config(), self.data_record()
        if device is not None:
            config = config.with_options({"device": device})
        net = new_network(config, tuple(record["shape"]), record["classes"])
        try:
            for which in ("prior", "posterior"):
                net.load_state(self.read_weights(which), which)
        except InvalidInput as error:
            raise RunError(f"{self.path}: {error}") from None
        if self.prior_in_history() != net.fingerprint("prior"):
            raise RunError(f"{self.path}: prior.safetensors is not the prior that the posterior was trained from")
        net.objective = config.posterior.objective
        return net


def new_network(config: Config, shape: tuple[int, ...], classes: int) -> StochasticNetwork:
    """The network at its initialisation, on its device."""
    model = build(config.model_name(shape), shape, classes, init=config.init, seed=config.seed)
    net = stochastic(model, config.prior_variance, distribution=config.distribution)
    return net.to(device_named(config.device))


def device_named(name: str) -> torch.device:
    """A device that can be used."""
    try:
        device = torch.device(name)
        torch.zeros(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InvalidInput(f"device {name!r} cannot be used: {str(error).splitlines()[0]}") from None
    return device


def training_data(config: Config) -> SplitData:
    """The two parts of the split, or no prior data and everything."""
    data = load(config.data, "train", folder=config.data_folder or None)
    if not config.learns_prior:
        return SplitData(None, data)
    return SplitData(*split(data, config.prior_fraction, config.seed))


def test_data(config: Config, shape: tuple[int, ...]) -> Data | None:
    """The test part, if the dataset has one."""
    try:
        data = load(config.data, "test", folder=config.data_folder or None)
    except MissingData:
        return None
    if data.shape != shape:
        raise InvalidInput(f"a test example has shape {list(data.shape)}, and a training example {list(shape)}")
    return data
