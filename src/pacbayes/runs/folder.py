"""A run folder: the files of one run, and the network and data that they describe."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from pacbayes.data import Data, load, split
from pacbayes.errors import InvalidInput, MissingData, RunError
from pacbayes.files import write_atomically
from pacbayes.networks import StochasticNetwork, build, stochastic
from pacbayes.runs.config import Config

FILES = (
    "config.toml",
    "data.json",
    "history.jsonl",
    "prior.safetensors",
    "posterior.safetensors",
    "certificate.json",
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
        return {
            name: {"examples": len(data), "fingerprint": data.fingerprint()}
            for name, data in parts.items()
            if data is not None
        }


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
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            if not run.config_file.is_file():
                raise RunError(f"{path} exists and is not a run folder: name another, nothing was written")
            if not overwrite:
                raise RunError(f"{path} holds a run already: name another folder, or use --resume or --overwrite")
            for old in (*FILES, *(p.name for p in path.glob("checkpoint-*.safetensors"))):
                (path / old).unlink(missing_ok=True)
        path.mkdir(parents=True, exist_ok=True)
        write_atomically(run.data_file, (json.dumps(data.record(), indent=2) + "\n").encode())
        write_atomically(run.config_file, config.to_toml().encode())
        return run

    def data(self) -> SplitData:
        """The data of the run; refused if they are not those it was started with."""
        data = training_data(self.config())
        self.check_data(data)
        return data

    def check_data(self, data: SplitData) -> None:
        try:
            recorded = json.loads(self.data_file.read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise RunError(f"{self.data_file} is not readable: {error}") from None
        if recorded != data.record():
            raise RunError(f"the data are not those that the run in {self.path} was started with (see data.json)")

    def config(self) -> Config:
        return Config.read(self.config_file)

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

    def network(self, shape: tuple[int, ...], classes: int, device: str | None = None) -> StochasticNetwork:
        """The trained network: posterior and prior from their files, on the run's device or another."""
        config = self.config()
        if device is not None:
            config = config.with_options({"device": device})
        net = new_network(config, shape, classes)
        try:
            for which in ("prior", "posterior"):
                net.load_state(self.read_weights(which), which)
        except InvalidInput as error:
            raise RunError(f"{self.path}: {error}") from None
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
