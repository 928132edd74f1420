"""Running rows of an experiment, several at a time on one device; what is finished is appended to the results."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from pacbayes.errors import RunError
from pacbayes.experiments.catalogue import Row
from pacbayes.runs import RunFolder, certify_run
from pacbayes.runs.folder import training_data
from pacbayes.runs.train import Watch, training_run

Say = Callable[[str], None]


def reproduce(rows: Iterable[Row], work: Path, results: Path, *, concurrent: int = 1, draws: int = 150_000,
              test_draws: int = 1000, say: Say = print) -> None:  # fmt: skip
    """Train and certify each row that has no result yet; an interrupted row goes on where its run folder stands."""
    done = {_key(line) for line in read_results(results)}
    waiting = [row for row in rows if (row.experiment, row.row, row.schedule, row.config.seed) not in done]
    running: list[Generator[None, None, None]] = []
    while waiting or running:
        while waiting and len(running) < concurrent:
            running.append(_row(waiting.pop(0), work, results, draws, test_draws, say))
        for job in list(running):
            try:
                next(job)
            except StopIteration:
                running.remove(job)


def _row(row: Row, work: Path, results: Path, draws: int, test_draws: int, say: Say) -> Generator[None, None, None]:
    label = f"{row.experiment}, {row.row}, {row.schedule}"
    path = work / row.experiment / re.sub(r"[^A-Za-z0-9.]+", "-", f"{row.row} {row.schedule} {row.config.seed}")
    if path.exists():
        run = RunFolder.open(path, finished=False)
    else:
        run = RunFolder.create(path, row.config, training_data(row.config))
    start = time.monotonic()
    if not run.weights_file("posterior").is_file():
        yield from training_run(run, 20.0, _watch(label, say))
    if row.config.device.startswith("cuda"):
        torch.cuda.synchronize()
    trained = time.monotonic() - start
    start = time.monotonic()
    certificate, evaluation = certify_run(run, draws=draws, test_draws=test_draws, seed=row.config.seed)
    record = {
        "experiment": row.experiment, "row": row.row, "schedule": row.schedule,
        "method": row.config.posterior.method, "prior_variance": row.config.prior_variance,
        "kappa": row.config.posterior.kappa, "momentum": row.config.posterior.momentum,
        **{name: value for name, value in asdict(certificate).items() if not name.endswith("fingerprint")},
        "test_error": evaluation.test_error, "test_error_sd": evaluation.test_error_sd,
        "holdout_bound": evaluation.holdout_bound, "train_seconds": round(trained, 2),
        "certify_seconds": round(time.monotonic() - start, 2), "device": device_name(row.config.device),
        "commit": commit(), "paper": row.paper,
    }  # fmt: skip
    record["seed"] = row.config.seed
    results.parent.mkdir(parents=True, exist_ok=True)
    with results.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    paper = row.paper.get("risk_bound")
    say(f"{label}: bound {certificate.risk_bound:.4f}" + (f" (paper {paper:.4f})" if paper is not None else ""))


def _watch(label: str, say: Say) -> Watch:
    def watch(stage: str, total: int, epoch: Any) -> None:
        if (epoch.epoch + 1) % max(1, total // 5) == 0:
            say(f"{label}: {stage} {epoch.epoch + 1}/{total}, risk {epoch.risk:.4f}, bound {epoch.bound:.4f}")

    return watch


def read_results(path: Path) -> list[dict[str, Any]]:
    """The finished rows of a result file; an unfinished last line is left out."""
    if not path.is_file():
        return []
    lines = path.read_text("utf-8").split("\n")[:-1]
    try:
        return [json.loads(line) for line in lines if line]
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}") from None


def _key(record: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(record[name] for name in ("experiment", "row", "schedule", "seed"))


def device_name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU"


def commit() -> str:
    """The commit of the code that runs, with a plus where files differ from it.

    Where the code was copied without its history, whoever copied it says in PACBAYES_COMMIT; else it is unknown.
    """
    try:
        head, changes = (_git("rev-parse", "HEAD"), _git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("PACBAYES_COMMIT", "unknown")
    return head[:12] + ("+" if changes else "")


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
