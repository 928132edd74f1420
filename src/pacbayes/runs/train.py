"""The walk of a run: data, split, prior, freeze, posterior; each stage resumable."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO, TypeVar

import safetensors.torch

from pacbayes import processes
from pacbayes.bounds.catoni import catoni_parameter
from pacbayes.certificates.monte_carlo import independent_errors
from pacbayes.data import Data, split
from pacbayes.errors import InvalidInput, NonFinite
from pacbayes.files import sha256, write_atomically
from pacbayes.networks import StochasticNetwork
from pacbayes.networks.shaping import Seen
from pacbayes.runs.config import Config
from pacbayes.runs.data import SplitData, training_data
from pacbayes.runs.folder import FILES, RunFolder
from pacbayes.runs.history import HistoryWriter, chain_start
from pacbayes.runs.journal import start_journal
from pacbayes.runs.networks import network_of, new_model, new_network
from pacbayes.seeds import derived_seed
from pacbayes.training import Checkpoint, Epoch
from pacbayes.training.fit import check_fit, drain
from pacbayes.training.last_layer import fitting_last
from pacbayes.training.ordinary import check_ordinary, training_ordinary

Watch = Callable[[str, int, Epoch], None]
"""Called with the stage, its number of epochs, and each epoch as it ends."""

_HELD_BACK = 11  # keeps its seeds apart from those of the stages
_VISITS = 10_000


def train_run(
    config: Config | None,
    path: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    checkpoint_seconds: float = 10.0,
    watch: Watch | None = None,
    begun: Callable[[SplitData], None] | None = None,
) -> RunFolder:
    """Train a prior and a posterior as configured, in a run folder; or go on where an interrupted run stands.

    A resumed run takes its configuration from the folder, and ends, on a CPU, in the same bytes as one never
    interrupted. ``begun`` is shown the data of a new one.
    """
    config = config or Config()
    if resume or processes.from_first(_begun(config, path)):
        run = RunFolder.open(path, finished=False)
        if not run.weights_file("posterior").is_file():
            drain(training_run(run, checkpoint_seconds, watch))
        if processes.first():
            run.remove_checkpoints()
        return run
    data = checked_data(config)
    run = RunFolder(path)
    if processes.first() and not path.exists():
        path.mkdir(parents=True)  # there must be something to lock
    # No other process may put its configuration there before this one has trained.
    with run.alone():
        if processes.first():
            RunFolder.create(path, config, data, overwrite=overwrite)
        processes.barrier()
        if begun is not None:
            begun(data)
        drain(_training(run, checkpoint_seconds, watch, data, None))
    return run


def checked_data(config: Config) -> SplitData:
    """The data of a run that is about to begin: everything that can be wrong shows before its folder is made."""
    config.encoded()
    data = training_data(config)
    net = new_network(config, data.bound.shape, data.bound.classes, data.prior)
    prior_data, _ = _held_back(config, data.prior)
    if config.prior_data and data.prior is not None and data.bound.overlaps(data.prior):
        raise InvalidInput("some of the prior data are among the training data, and all of these are bound data")
    if config.ordinary is not None:
        check_ordinary(data.bound.shape, config.ordinary)
    if 2 * net.mean.nbytes > 0.99 * FILES["prior.safetensors"]:
        raise InvalidInput(
            f"the network has {len(net.mean)} weights, more than a run folder holds: take a smaller one, or draw the "
            "last layer alone (drawn = 'last')"
        )
    for name, settings in config.stages().items():
        check_fit(net, data.bound if name == "posterior" or prior_data is None else prior_data, settings)
    return data


def _begun(config: Config, path: Path) -> bool:
    """Whether this is the run that ``torchrun`` began, and now starts anew because a process of it failed."""
    run = RunFolder(path)
    return processes.restarted() and run.config_file.is_file() and run.config() == config


def training_run(
    run: RunFolder,
    checkpoint_seconds: float = 10.0,
    watch: Watch | None = None,
    *,
    device: str | None = None,
) -> Generator[None, None, None]:
    """The training of a run folder from where it stands, pausing whenever an epoch has been started.

    ``device``, if it is not the one that the run was begun on.
    """
    with run.alone():
        # Another process may have come to its end while this one was starting.
        if not processes.from_first(run.weights_file("posterior").is_file()):
            yield from _training(run, checkpoint_seconds, watch, None, device)


def _training(
    run: RunFolder, checkpoint_seconds: float, watch: Watch | None, data: SplitData | None, device: str | None
) -> Generator[None, None, None]:
    config = run.config().with_options({} if device is None else {"device": device})
    parts = run.data() if data is None else data
    run.check_data(parts)
    prior_data, held = _held_back(config, parts.prior)
    model = new_model(config, parts.bound.shape, parts.bound.classes, parts.prior)
    with _new_file(run.history_file) as file:
        history = HistoryWriter(file, chain_start(run.read("config.toml"), run.read("data.json")))
        stage = _Stages(run, config.epochs(), history, watch, checkpoint_seconds)
        if (ordinary := config.ordinary_stage()) is not None:
            assert prior_data is not None
            model = yield from stage("ordinary", partial(training_ordinary, model, prior_data, ordinary))
            # Every process has trained it; on GPUs not to the same last digits.
            for tensor in model.state_dict().values():
                processes.copy_from_first(tensor)
        net = network_of(config, model)
        stages = config.stages()
        posterior = stages.pop("posterior")
        for name, settings in stages.items():
            assert prior_data is not None
            yield from stage(name, partial(fitting_last, net, prior_data, settings))
        # From here on the prior is fixed: it is on disk before the bound data are looked at.
        net.freeze_prior()
        risk = config.expected_risk if held is None else _risk_to_expect(net, held, config.seed)
        if risk:
            net.fix_catoni(catoni_parameter(risk, config.expected_kl, len(parts.bound), posterior.delta))
        if processes.first():
            write_atomically(run.weights_file("prior"), safetensors.torch.save(net.state("prior")))
        yield from stage("posterior", partial(fitting_last, net, parts.bound, posterior))
    # All have read the checkpoints that are removed below.
    processes.barrier()
    if not processes.first():
        return
    content = safetensors.torch.save(net.state("posterior"))
    # The posterior comes last: it says that the run is finished.
    start_journal(run, history.end, content)
    write_atomically(run.weights_file("posterior"), content)
    run.remove_checkpoints()


Result = TypeVar("Result")


@dataclass(frozen=True)
class _Stages:
    """Runs each stage of a training with its lines in the history, its checkpoint, and its name where it fails."""

    run: RunFolder
    epochs: dict[str, int]
    history: HistoryWriter
    watch: Watch | None
    checkpoint_seconds: float

    def __call__(
        self, name: str, training: Callable[..., Generator[None, None, Result]]
    ) -> Generator[None, None, Result]:
        note = partial(self._note, name) if processes.first() else None
        checkpoint = Checkpoint(self.run.checkpoint_file(name), self.checkpoint_seconds)
        try:
            return (yield from training(callback=note, checkpoint=checkpoint))
        except NonFinite as error:
            raise NonFinite(f"{name}, {error}; then begin anew, with --overwrite in the shell") from None

    def _note(self, name: str, epoch: Epoch) -> None:
        line: dict[str, Any] = {"stage": name}
        if name == "posterior" and epoch.epoch == 0:
            line["prior_fingerprint"] = sha256(self.run.read("prior.safetensors"))
        self.history.write(line | epoch.record())
        if self.watch is not None:
            self.watch(name, self.epochs[name], epoch)


def _held_back(config: Config, prior: Data | None) -> tuple[Data | None, Data | None]:
    """The prior data that train the prior, and those on which Catoni's C is chosen."""
    if prior is None or not config.held_back:
        return prior, None
    try:
        return split(prior, 1 - config.held_back, derived_seed(config.seed, _HELD_BACK))
    except InvalidInput:
        raise InvalidInput(
            f"held_back = {config.held_back} of {len(prior)} prior examples: too few to choose C on, or too few left"
        ) from None


def _risk_to_expect(net: StochasticNetwork, held: Data, seed: int) -> float:
    """The prior's error on data that it has not seen; half an error where there is none, since a C is needed."""
    visits = max(len(held), _VISITS)
    return max(0.5, independent_errors(net, held, visits, derived_seed(seed, _HELD_BACK))) / visits


def _new_file(path: Path) -> TextIO:
    """A file to write to, whatever was there, since a link would be written through; of the first process alone."""
    if not processes.first():
        return open(os.devnull, "w")  # noqa: PTH123
    path.unlink(missing_ok=True)
    return path.open("x", encoding="utf-8", newline="\n")


def trained_network(
    run: RunFolder, device: str | None = None, place: str | None = None
) -> tuple[StochasticNetwork, Data]:
    """The network of a finished run, and its bound data, which may be in another place than they were."""
    data = run.data(place)
    net = run.network(device)
    if data.prior is not None:
        net.prior_trained_on.note(data.prior)
    net.trained_on = Seen([*net.prior_trained_on, data.bound])
    return net, data.bound
