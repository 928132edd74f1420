"""The walk of a run: data, split, prior, freeze, posterior; each stage resumable."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TextIO

from pacbayes import processes
from pacbayes.bounds.catoni import catoni_parameter
from pacbayes.data import Data
from pacbayes.errors import NonFinite
from pacbayes.files import sha256, write_atomically
from pacbayes.networks import StochasticNetwork
from pacbayes.runs.config import Config
from pacbayes.runs.folder import RunFolder, new_network, training_data
from pacbayes.runs.history import HistoryWriter, chain_start
from pacbayes.runs.journal import start_journal
from pacbayes.runs.weights import written_weights
from pacbayes.training import Checkpoint, Epoch
from pacbayes.training.fit import check_fit, drain, fitting
from pacbayes.training.settings import Settings, learning_rates

Watch = Callable[[str, int, Epoch], None]
"""Called with the stage, its number of epochs, and each epoch as it ends."""


def train_run(
    config: Config | None,
    path: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    checkpoint_seconds: float = 10.0,
    watch: Watch | None = None,
) -> RunFolder:
    """Train a prior and a posterior as configured, in a run folder; or go on where an interrupted run stands.

    A resumed run takes its configuration from the folder, and ends in the same bytes as one never interrupted.
    """
    config = config or Config()
    if resume or processes.from_first(_begun(config, path)):
        run = RunFolder.open(path, finished=False)
        if not run.weights_file("posterior").is_file():
            drain(training_run(run, checkpoint_seconds, watch))
        if processes.first():
            run.remove_checkpoints()
        return run
    # Everything that can be wrong shows before the folder is made.
    data = training_data(config)
    net = new_network(config, data.bound.shape, data.bound.classes, data.prior)
    for name, settings in config.stages().items():
        check_fit(net, data.bound if name == "posterior" or data.prior is None else data.prior, settings)
    run = RunFolder(path)
    if processes.first():
        RunFolder.create(path, config, data, overwrite=overwrite)
    processes.barrier()
    drain(training_run(run, checkpoint_seconds, watch))
    return run


def _begun(config: Config, path: Path) -> bool:
    """Whether this is the run that ``torchrun`` began, and now starts anew because a process of it failed."""
    run = RunFolder(path)
    return processes.restarted() and run.config_file.is_file() and run.config() == config


def training_run(
    run: RunFolder, checkpoint_seconds: float = 10.0, watch: Watch | None = None
) -> Generator[None, None, None]:
    """The training of a run folder from where it stands, pausing whenever an epoch has been started."""
    config = run.config()
    split = run.data()
    net = new_network(config, split.bound.shape, split.bound.classes, split.prior)

    with _new_file(run.history_file) as file:
        history = HistoryWriter(file, chain_start(run.read("config.toml"), run.read("data.json")))

        def stage(name: str, data: Data, settings: Settings) -> Generator[None, None, None]:
            total = len(learning_rates(settings))

            def note(epoch: Epoch) -> None:
                line: dict[str, Any] = {"stage": name}
                if name == "posterior" and epoch.epoch == 0:
                    line["prior_fingerprint"] = sha256(run.read("prior.safetensors"))
                history.write(line | epoch.record())
                if watch is not None:
                    watch(name, total, epoch)

            checkpoint = Checkpoint(run.checkpoint_file(name), checkpoint_seconds)
            try:
                yield from fitting(net, data, settings, note if processes.first() else None, checkpoint)
            except NonFinite as error:
                raise NonFinite(f"{name}, {error}") from None

        stages = config.stages()
        posterior = stages.pop("posterior")
        for name, settings in stages.items():
            assert split.prior is not None
            yield from stage(name, split.prior, settings)
        # From here on the prior is fixed: it is on disk before the bound data are looked at.
        net.freeze_prior()
        if config.expected_risk:
            c = catoni_parameter(config.expected_risk, config.expected_kl, len(split.bound), posterior.delta)
            net.fix_catoni(c)
        if processes.first():
            write_atomically(run.weights_file("prior"), written_weights(net.state("prior")))
        yield from stage("posterior", split.bound, posterior)
    # All have read the checkpoints that are removed below.
    processes.barrier()
    if not processes.first():
        return
    content = written_weights(net.state("posterior"))
    # The posterior comes last: it says that the run is finished.
    start_journal(run, history.end, content)
    write_atomically(run.weights_file("posterior"), content)
    run.remove_checkpoints()


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
        net.prior_trained_on = [data.prior]
    return net, data.bound
