"""The walk of a run: data, split, prior, freeze, posterior; each stage resumable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pacbayes.data import Data
from pacbayes.networks import StochasticNetwork
from pacbayes.runs.config import Config
from pacbayes.runs.folder import RunFolder, new_network, training_data
from pacbayes.training import Checkpoint, Epoch, fit
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
    if resume:
        run = RunFolder.open(path, finished=False)
        if run.weights_file("posterior").is_file():
            return run
        config = run.config()
        prior_data, bound_data = training_data(config)
        net = new_network(config, bound_data.shape, bound_data.classes)
    else:
        config = config or Config()
        # Everything that can be wrong with the configuration shows before the folder is made.
        prior_data, bound_data = training_data(config)
        net = new_network(config, bound_data.shape, bound_data.classes)
        run = RunFolder.create(path, config, overwrite=overwrite)

    with run.history_file.open("w", encoding="utf-8") as history:

        def stage(name: str, data: Data, settings: Settings) -> None:
            total = len(learning_rates(settings))

            def note(epoch: Epoch) -> None:
                history.write(f'{{"stage": "{name}", {epoch.line()[1:]}\n')
                history.flush()
                if watch is not None:
                    watch(name, total, epoch)

            checkpoint = Checkpoint(run.checkpoint_file(name), checkpoint_seconds)
            fit(net, data, settings=settings, callback=note, checkpoint=checkpoint)

        stages = config.stages()
        posterior = stages.pop("posterior")
        for name, settings in stages.items():
            assert prior_data is not None
            stage(name, prior_data, settings)
        # From here on the prior is fixed: it is on disk before the bound data are looked at.
        net.freeze_prior()
        run.save_weights(net, "prior")
        stage("posterior", bound_data, posterior)
    run.save_weights(net, "posterior")
    for name in config.stages():
        run.checkpoint_file(name).unlink(missing_ok=True)
    return run


def trained_network(run: RunFolder) -> tuple[StochasticNetwork, Data]:
    """The network of a finished run, and its bound data."""
    _, bound_data = training_data(run.config())
    return run.network(bound_data.shape, bound_data.classes), bound_data
