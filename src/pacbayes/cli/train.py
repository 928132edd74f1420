"""``pacbayes train``: flags and a TOML file become a configuration, and that a run."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from pacbayes import processes
from pacbayes.certificates.bound_data import doubts
from pacbayes.cli.progress import TrainingBar
from pacbayes.cli.tensorboard import TensorBoardLog
from pacbayes.cli.terminal import print_lines, together
from pacbayes.data import available
from pacbayes.errors import InvalidInput
from pacbayes.files import in_shell
from pacbayes.networks import ARCHITECTURES
from pacbayes.runs import Config, RunFolder, train_run
from pacbayes.runs.config import TABLES, options_in
from pacbayes.runs.data import SplitData, usable_test_data, without_examples
from pacbayes.training import Epoch

_DATA = ", ".join(name for name, _ in available())
_MODELS = ", ".join(ARCHITECTURES)


def train(
    out: Annotated[Path, typer.Option(help="Folder for the run; made if it is not there.")],
    config: Annotated[Path | None, typer.Option(help="A TOML file with the configuration; flags override it.")] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help=f"{_DATA}; or a .npz file (arrays x and y), a .csv file (data.csv#column names the labels), a "
            "folder of images, one folder a class (photos#64 scales them), or a folder with x.npy and y.npy, which "
            "need not fit into memory (see 'pacbayes store'). [default: digits]"
        ),
    ] = None,
    data_folder: Annotated[
        str | None, typer.Option(help="Where datasets are; else $PACBAYES_DATA, then a cache folder.")
    ] = None,
    scaling: Annotated[
        str | None,
        typer.Option(
            help="prior-data: each feature by its mean and deviation in the prior data; or none. [default: prior-data "
            "for tables, where the prior is learnt]"
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help=f"{_MODELS}. [default: the usual one for the data]")] = None,
    init: Annotated[str | None, typer.Option(help="Initial means: default (PyTorch's) or orthogonal.")] = None,
    distribution: Annotated[
        str | None, typer.Option(help="Law of the hidden weights: gaussian or laplace. [default: gaussian]")
    ] = None,
    prior: Annotated[
        str | None, typer.Option(help="learnt (on a part of the data) or data-free. [default: learnt]")
    ] = None,
    prior_fraction: Annotated[
        float | None, typer.Option(help="Share of the data for a learnt prior. [default: 0.5]")
    ] = None,
    prior_data: Annotated[
        str | None,
        typer.Option(help="Other data to learn the prior on, as for --data; all of --data then enter the bound."),
    ] = None,
    drawn: Annotated[
        str | None, typer.Option(help="Weights that are drawn: all, or those of the last layer alone. [default: all]")
    ] = None,
    prior_variance: Annotated[
        float | None, typer.Option(help="Initial variance of every weight. [default: 0.001]")
    ] = None,
    expected_risk: Annotated[
        float | None,
        typer.Option(
            help="Empirical risk to expect of the posterior: fixes the C of Catoni's bound. [default: a grid]"
        ),
    ] = None,
    expected_kl: Annotated[float | None, typer.Option(help="KL to expect, with the risk. [default: 0]")] = None,
    held_back: Annotated[
        float | None,
        typer.Option(
            help="In place of --expected-risk: share of the prior data that the prior is not trained on, and on "
            "which its error says what risk to expect, such as 0.05. [default: 0]"
        ),
    ] = None,
    pretraining_epochs: Annotated[
        int | None, typer.Option(help="Cross-entropy epochs for the prior's means; 0 for none. [default: 30]")
    ] = None,
    pretraining_rate: Annotated[
        float | None, typer.Option(help="Learning rate of the pre-training. [default: 0.02]")
    ] = None,
    prior_objective: Annotated[
        str | None,
        typer.Option(help="Objective of the prior's training: as --objective, or ERM. [default: invKL]"),
    ] = None,
    prior_kappa: Annotated[
        float | None, typer.Option(help="Weight of the penalty in the prior's training. [default: 0.01]")
    ] = None,
    prior_epochs: Annotated[
        int | None, typer.Option(help="Epochs of the prior's training; 0 for none. [default: 15]")
    ] = None,
    prior_rate: Annotated[
        float | None, typer.Option(help="Learning rate of the prior's training. [default: 0.005]")
    ] = None,
    prior_schedule: Annotated[str | None, typer.Option(help="As --schedule, for the prior.")] = None,
    prior_dropout: Annotated[
        float | None, typer.Option(help="Dropout while the prior is trained. [default: 0]")
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(help="Bound that the posterior minimises: invKL, McAll, quad, lbd; or ERM. [default: invKL]"),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="G, Cond-Gauss (the error itself), or S, standard (bounded cross-entropy). [default: G]"),
    ] = None,
    kappa: Annotated[
        float | None,
        typer.Option(help="Weight of the penalty in training; never in a certificate. [default: 1]"),
    ] = None,
    divergence: Annotated[
        str | None,
        typer.Option(help="kl, or profile: the prior's scale chosen for each tensor, and paid for. [default: kl]"),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of the posterior's training. [default: 20]")] = None,
    rate: Annotated[
        float | None, typer.Option(help="Learning rate of the posterior's training. [default: 0.002]")
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            help='The posterior\'s rate: cosine, constant, or steps such as "250@0.005, 50@0.0001". [default: cosine]'
        ),
    ] = None,
    optimiser: Annotated[
        str | None, typer.Option(help="Of the posterior's training: sgd, the paper's, or adam. [default: sgd]")
    ] = None,
    momentum: Annotated[float | None, typer.Option(help="Its momentum. [default: 0.9]")] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Examples a step of the posterior's training. [default: 64]")
    ] = None,
    sampling: Annotated[
        str | None,
        typer.Option(help="Hidden draws in the posterior's training: shared, independent or mixed. [default: mixed]"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of split, initialisation and training. [default: 0]")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1. [default: cpu]")] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the interrupted run in --out, by its own configuration."),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is in --out.")] = False,
    checkpoint_seconds: Annotated[
        float, typer.Option(min=0, help="At most one checkpoint in this many seconds; 0 for every epoch.")
    ] = 10.0,
    tensorboard: Annotated[
        Path | None, typer.Option(help="Log the epochs to this folder for TensorBoard, which must be installed.")
    ] = None,
) -> None:
    """Train a prior and a posterior, and leave them in a run folder.

    'pacbayes train --data digits --out RUN' alone is sensible. A run that was stopped goes on with --resume
    and ends, on a CPU, in the same bytes. Every setting of every stage can be given in a TOML file (--config); the
    configuration in effect is saved as RUN/config.toml.
    """
    flags = {
        "data": data, "data_folder": data_folder, "scaling": scaling, "model": model, "init": init,
        "distribution": distribution, "prior": prior, "prior_fraction": prior_fraction,
        "prior_data": prior_data, "drawn": drawn,
        "prior_variance": prior_variance, "expected_risk": expected_risk, "expected_kl": expected_kl,
        "held_back": held_back, "seed": seed,
        "device": device,
        "pretraining": _given(epochs=pretraining_epochs, rate=pretraining_rate),
        "prior_training": _given(
            objective=prior_objective, kappa=prior_kappa, epochs=prior_epochs, rate=prior_rate,
            schedule=prior_schedule, dropout=prior_dropout,
        ),
        "posterior": _given(
            objective=objective, method=method, kappa=kappa, divergence=divergence, epochs=epochs, rate=rate,
            schedule=schedule, optimiser=optimiser, momentum=momentum, batch_size=batch_size, sampling=sampling,
        ),
    }  # fmt: skip
    given = {name: value for name, value in flags.items() if value not in (None, {})}
    with together():
        if resume and overwrite:
            raise InvalidInput("--resume goes on with the run that --overwrite would begin anew: leave one of them out")
        if resume:
            _refuse_another(out, None if config is None else Config.read(config), given)
        settings = None if resume else _settings(config, given)
        finished = resume and RunFolder(out).weights_file("posterior").is_file()
        log = None if tensorboard is None or not processes.first() else TensorBoardLog(tensorboard)
        with TrainingBar(out) as bar:

            def watch(stage: str, total: int, epoch: Epoch) -> None:
                bar(stage, total, epoch)
                if log is not None:
                    log(stage, total, epoch)

            try:
                run = train_run(
                    settings,
                    out,
                    resume=resume,
                    overwrite=overwrite,
                    checkpoint_seconds=checkpoint_seconds,
                    watch=watch,
                    begun=partial(_show, settings),
                )
            finally:
                if log is not None:
                    log.close()
        what = "It was finished already" if finished else "Trained"
        if processes.first():
            print(_kept(run))
        print(f"{what}: {run.path}. Next: pacbayes certify {in_shell(run.path)}")


def _settings(file: Path | None, given: dict[str, Any]) -> Config:
    """The configuration of a file, or the default one, with the flags; none of either may change nothing."""
    named = {} if file is None else options_in(file)
    of_file = Config() if file is None else Config.of_file(named, file)
    settings = of_file.with_options(given)
    ignored = _ignored(settings, given, _flag)
    # What has all the tables is the configuration of a run, which lists what it does not use, too.
    if not set(TABLES) <= named.keys():
        alone = _ignored(of_file, named, _name)
        # What of a file goes with a choice that a flag takes back may stay in it.
        ignored += [f"{file}: {words}" for words in _ignored(settings, named, _name) if words in alone]
    if ignored:
        raise InvalidInput(ignored[0])
    return settings


def _flag(stage: str, name: str) -> str:
    prefix = {"prior_training": "prior-", "pretraining": "pretraining-"}.get(stage, "")
    return f"--{prefix}{name}".replace("_", "-")


def _name(stage: str, name: str) -> str:
    return f"{stage}.{name}" if stage else name


def _ignored(config: Config, given: dict[str, Any], called: Callable[[str, str], str]) -> list[str]:
    """What is said of options that change nothing: whoever gives them expects something else."""

    def options(stage: str, *names: str) -> list[str]:
        found = (n for n, value in given.get(stage, {}).items() if not (n == "epochs" and value == 0))
        return [called(stage, n) for n in found if not names or n in names]

    fraction = [called("", "prior_fraction")] if "prior_fraction" in given else []
    cases = [
        (fraction, config.prior == "data-free", "a data-free prior is not learnt"),
        (fraction, bool(config.prior_data), "the prior has data of its own"),
    ]
    for stage in ("pretraining", "prior_training", "posterior"):
        settings = getattr(config, stage)
        missing = settings is None or (stage != "posterior" and not config.learns_prior)
        steps = settings is not None and "@" in settings.schedule
        cases += [
            (options(stage), missing, f"there is no {stage.replace('_', ' ')}"),
            (options(stage, "rate", "epochs"), steps, "the schedule says how many epochs there are, at which rates"),
        ]
    return [f"{', '.join(names)} would be ignored: {why}" for names, so, why in cases if names and so]


def _kept(run: RunFolder) -> str:
    """Which weights the posterior has."""
    epochs = run.epochs()["posterior"]
    kept = epochs[-1].kept
    if kept == -1:
        return "The posterior is the prior: no epoch has a smaller bound."
    if kept is None or run.config().posterior.keeps_last:
        return "The posterior is that of the last epoch."
    return f"The posterior is that of epoch {kept + 1} of {len(epochs)}, which has the smallest bound."


def _refuse_another(out: Path, config: Config | None, given: dict[str, Any]) -> None:
    """A run goes on with its own configuration, which the command may repeat."""
    if not given and config is None:
        return
    own = RunFolder.open(out, finished=False).config()
    others = []
    for name, value in given.items():
        if own.with_options({name: value}) == own:
            continue
        for option, one in value.items() if isinstance(value, dict) else [("", value)]:
            changed = own.with_options({name: {option: one} if option else one})
            if changed != own:
                others.append(f"{name}.{option} = {one!r}" if option else f"{name} = {one!r}")
    if config is not None and config.with_options(given) != own:
        others.append("the file of --config")
    if others:
        raise InvalidInput(
            f"--resume goes on with the configuration in {out / 'config.toml'}, and these say otherwise: "
            f"{', '.join(others)}"
        )


def _show(config: Config | None, data: SplitData) -> None:
    """The whole of the data, before their training begins."""
    whole, _ = data.bound.source or (data.bound, None)
    # What is wrong with data of one's own shows now, and not once the training is done.
    test = None if config is None or config.data in dict(available()) else usable_test_data(config, whole.shape)
    if not processes.first():
        return
    print_lines(whole.summary())
    for words in without_examples(whole, test):
        warnings.warn(words, stacklevel=2)
    for words in doubts([data.prior] if data.prior is not None else [], data.bound):
        warnings.warn(words, stacklevel=2)


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
