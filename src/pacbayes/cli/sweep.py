"""``pacbayes sweep``: many trainings, the best of them certified, and every choice of a prior paid for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live

from pacbayes.cli.certify import beside
from pacbayes.cli.terminal import Interrupted, errors, output, plain_table, print_lines, tell
from pacbayes.errors import InvalidInput
from pacbayes.files import in_shell
from pacbayes.runs import RunFolder
from pacbayes.sweeps import LocalWorkers, Progress, RayWorkers, Specification, run_sweep
from pacbayes.sweeps.results import ranked, short_state, shown
from pacbayes.sweeps.runner import FILE
from pacbayes.sweeps.study import RUNNING

_MOST_ROWS = 20


def sweep(
    what: Annotated[
        Path, typer.Argument(metavar="FILE", help="A TOML file with the sweep, or the folder of one to go on with.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the sweep; one that was stopped there goes on. Needed with a file.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Trainings at a time. [default: one a core, or one a GPU]")
    ] = None,
    ray: Annotated[
        bool,
        typer.Option(
            "--ray", help="Train on a Ray cluster: the one of $RAY_ADDRESS, one that runs here, or a new one."
        ),
    ] = False,
    device: Annotated[str | None, typer.Option(help="cpu, or cuda for all GPUs. [default: as in the file]")] = None,
    checkpoint_seconds: Annotated[
        float, typer.Option(min=0, help="At most one checkpoint a training in this many seconds; 0 for every epoch.")
    ] = 10.0,
) -> None:
    """Train many configurations, a grid or a search, and certify the one with the least bound.

    The file names a base configuration, axes with the values to try, and how to certify. What shapes the posterior
    alone may be chosen freely by its bound. What shapes the prior or the split is charged: delta is divided by the
    number of combinations that the file can make, before the first is tried. The end of it says what was charged.

    Ctrl-C stops it; 'pacbayes sweep FOLDER' goes on. Written are FOLDER/sweep.html and sweep.json, and a run folder for
    each training in FOLDER/trials. Needs Optuna: pip install 'pacbayes[sweep]'; --ray: pip install 'pacbayes[ray]'.
    """
    file, folder = (what / FILE, what) if what.is_dir() else (what, out)
    if not what.exists():
        raise InvalidInput(f"{what}: no such file, nor the folder of a sweep")
    if folder is None or (what.is_dir() and out is not None):
        raise InvalidInput("give a file with --out FOLDER, or the folder of a sweep to go on with and no --out")
    if what.is_dir() and not file.is_file():
        raise InvalidInput(f"{what} is not the folder of a sweep: it has no {FILE}")
    specification = Specification.read(file)
    tell(str(specification.charge))
    with _LiveTable(specification, folder) as table:
        result = run_sweep(
            file,
            folder,
            partial(RayWorkers if ray else LocalWorkers, jobs),
            device=device,
            checkpoint_seconds=checkpoint_seconds,
            watch=table,
        )
    output().print(plain_table(result.columns(), result.rows()))
    print("Bounds here are those of training, without what is charged and without the Monte-Carlo limit.")
    print_lines("\n".join(result.failures()))
    evaluation = RunFolder(result.run).evaluation()
    print(f"\n{result.certificate}\n{beside(result.certificate, evaluation)}\n{result.charge}\n")
    print(f"Best: {result.run}. Next: pacbayes verify {in_shell(result.run)}\nWritten: {folder / 'sweep.html'}")


class _LiveTable:
    """The trials as they are, the best first. Where the output is no terminal, a line for each that ends."""

    def __init__(self, specification: Specification, folder: Path):
        self.folder = folder
        self.axes = list(specification.axes)
        self.live = Live(console=errors, auto_refresh=False, transient=True)
        self.said: set[int] = set()

    def __enter__(self) -> _LiveTable:
        if errors.is_terminal:
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if errors.is_terminal:
            self.live.stop()
        if kind is KeyboardInterrupt:
            raise Interrupted(f"; 'pacbayes sweep {in_shell(self.folder)}' goes on") from None

    def __call__(self, trials: Sequence[Progress]) -> None:
        rows = {each.trial.number: self._row(each) for each in trials}
        if errors.is_terminal:
            order = ranked([each.trial for each in trials])
            table = plain_table(("trial", "bound", *self.axes, "state"), [rows[t.number] for t in order[:_MOST_ROWS]])
            running = sum(each.trial.state == RUNNING for each in trials)
            table.caption = f"{len(trials) - running} trials ended, {running} running; the least bounds first"
            self.live.update(table, refresh=True)
            return
        for each in trials:
            if each.trial.state != RUNNING and each.trial.number not in self.said:
                self.said.add(each.trial.number)
                number, bound, *values, state = rows[each.trial.number]
                state = each.trial.message or state
                named = ", ".join(f"{name} {value}" for name, value in zip(self.axes, values, strict=True))
                tell(f"trial {number}: bound {bound}, {named}: {state}")

    def _row(self, each: Progress) -> tuple[str, ...]:
        trial = each.trial
        state = f"{each.stage} {each.epoch}" if each.stage else short_state(trial)
        return (str(trial.number), shown(trial.bound), *(shown(trial.parameters.get(a)) for a in self.axes), state)
