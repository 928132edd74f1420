"""Running rows of an experiment, several at a time on one device; what is finished is appended to the results."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from pacbayes.certificates import holdout_bound
from pacbayes.certificates.wording import rounded_up
from pacbayes.errors import PacBayesError, RunError
from pacbayes.experiments.catalogue import Row
from pacbayes.experiments.results import append_result, commit, device_name, read_results
from pacbayes.files import sha256, write_atomically
from pacbayes.runs import Config, RunFolder, certify_run, verify_run
from pacbayes.runs.check import FAILED
from pacbayes.runs.data import training_data
from pacbayes.runs.train import Watch, trained_network, training_run
from pacbayes.training.affine import affine_check
from pacbayes.training.fit import drain
from pacbayes.training.ordinary import Ordinary
from pacbayes.training.settings import Settings
from pacbayes.versions import versions

Say = Callable[[str], None]

_CHECKPOINT_SECONDS = 60.0
_SHORTEST_EPOCH = 0.005


def reproduce(rows: Iterable[Row], work: Path, results: Path, *, concurrent: int = 1, say: Say = print) -> None:
    """Train and certify each row that has no result yet; an interrupted row goes on where its run folder stands.

    Each finished row is appended to ``EXPERIMENT.jsonl`` in the folder ``results``. A row that fails does not keep the
    others from being run; the error comes at the end.
    """
    waiting = []
    for row in rows:
        records = [r for r in read_results(results / f"{row.experiment}.jsonl") if r["row"] == row.row]
        if _done(records, row):
            say(f"{row.experiment}, {row.row}, {row.schedule}: has its result already")
            continue
        if others := sorted({f"{r['schedule']}, seed {r['seed']}, {r['device']}" for r in records}):
            say(f"{row.experiment}, {row.row}: its results are of other settings or devices ({'; '.join(others)})")
        waiting.append(row)
    running: list[tuple[Row, Generator[None, None, None]]] = []
    failures: list[str] = []
    while waiting or running:
        while waiting and len(running) < concurrent:
            row = waiting.pop(0)
            running.append((row, _row(row, work, results, say)))
        for row, job in list(running):
            try:
                next(job)
            except StopIteration:
                running.remove((row, job))
            except (PacBayesError, torch.OutOfMemoryError) as error:
                running.remove((row, job))
                failures.append(f"{row.experiment}, {row.row}")
                say(f"failed: {failures[-1]}: {error}")
    if failures:
        raise RunError(f"{len(failures)} of the rows failed: {'; '.join(failures)}")


def reproduce_affine(
    experiment: str, name: str, of: Row, realisations: int, paper: dict[str, float], work: Path, results: Path,
    say: Say = print,
) -> None:  # fmt: skip
    """One row of the affine check: train the row ``of`` unless its run is there, then look at its bound."""
    records = [r for r in read_results(results / f"{experiment}.jsonl") if r["row"] == name]
    if _done(records, of):
        say(f"{experiment}, {name}: has its result already")
        return
    run = _folder(of, work)
    drain(_trained(run, of, say))
    net, bound_data = trained_network(run, of.config.device)
    start = time.monotonic()
    found = affine_check(net, bound_data, realisations, of.config.seed, of.config.posterior.delta)
    append_result(results, {
        "experiment": experiment, "row": name, "schedule": of.schedule, "seed": of.config.seed,
        "of": {"experiment": of.experiment, "row": of.row}, **found, "seconds": round(time.monotonic() - start, 2),
        **_provenance(of), "paper": paper,
    })  # fmt: skip
    say(f"{experiment}, {name}: the slope varies by {100 * found['slope_variation']:.2f} %")


def _row(row: Row, work: Path, results: Path, say: Say) -> Generator[None, None, None]:
    run = _folder(row, work)
    yield from _trained(run, row, say)
    start = time.monotonic()
    without_draws = row.certificate.get("predictor") == "single" or row.certificate.get("sampling") == "exact"
    certificate, evaluation = certify_run(
        run,
        draws=None if without_draws else row.draws,
        test_draws=row.test_draws,
        seed=row.config.seed,
        device=row.config.device,
        **row.certificate,
    )
    certified = time.monotonic() - start
    holdout_mean = None
    if evaluation.holdout_bound is not None:
        failure = (certificate.delta + certificate.mc_delta) / certificate.priors
        holdout_mean = holdout_bound(*trained_network(run, row.config.device), delta=failure, drawn=False)
    found = verify_run(run)
    checks = dict(Counter(check.status for check in found))
    if wrong := [f"{check.name}: {check.detail}" for check in found if check.status == FAILED]:
        raise RunError(f"{run.path} fails verification: {'; '.join(wrong)}")
    append_result(results, {
        "experiment": row.experiment, "row": row.row, "schedule": row.schedule, "verification": checks,
        "method": row.config.posterior.method, "prior_variance": row.config.prior_variance,
        "kappa": row.config.posterior.kappa, "momentum": row.config.posterior.momentum,
        **{name: value for name, value in asdict(certificate).items() if not name.endswith("fingerprint")},
        "test_error": evaluation.test_error, "test_error_sd": evaluation.test_error_sd,
        "test_draws": evaluation.test_draws, "holdout_bound": evaluation.holdout_bound,
        "holdout_mean": holdout_mean,
        "train_seconds": round(_seconds_so_far(run), 2), "certify_seconds": round(certified, 2),
        "seed": row.config.seed, **_provenance(row), "asked": _asked(row), "paper": row.paper,
    })  # fmt: skip
    compared = "".join(
        f" ({name.replace('risk_bound', 'paper')} {row.paper[name]:.4f})"
        for name in ("risk_bound", "bar")
        if name in row.paper
    )
    say(f"{row.experiment}, {row.row}, {row.schedule}: bound {rounded_up(certificate.risk_bound, 4)}{compared}")


def _folder(row: Row, work: Path) -> RunFolder:
    """The row's run folder, made if it is not there; another configuration has another folder."""
    digest = sha256(json.dumps(_configuration(row), sort_keys=True).encode())[:8]
    name = re.sub(r"[^A-Za-z0-9.]+", "-", f"{row.row} {row.schedule} {row.config.seed} {digest}")
    path = work / row.experiment / name
    if RunFolder(path).config_file.is_file():
        return RunFolder.open(path, finished=False)
    return RunFolder.create(path, row.config, training_data(row.config))


def _trained(run: RunFolder, row: Row, say: Say) -> Generator[None, None, None]:
    if run.weights_file("posterior").is_file():
        return
    before, start, written = _seconds_so_far(run), time.monotonic(), 0.0
    tell = _watch(f"{row.experiment}, {row.row}, {row.schedule}", say)

    def clock() -> float:
        """Note the seconds spent on this training, also by processes before this one."""
        spent = time.monotonic() - start
        write_atomically(_seconds_file(run), f"{before + spent}\n".encode())
        return spent

    def watch(stage: str, total: int, epoch: Any) -> None:
        nonlocal written
        if time.monotonic() - start - written > _CHECKPOINT_SECONDS:
            written = clock()
        tell(stage, total, epoch)

    yield from training_run(run, _CHECKPOINT_SECONDS, watch, device=row.config.device)
    if row.config.device.startswith("cuda"):
        torch.cuda.synchronize(row.config.device)
    clock()


def _seconds_file(run: RunFolder) -> Path:
    """Beside the run, which holds nothing but what is verified."""
    return run.path.with_name(f"{run.path.name}.seconds")


def _seconds_so_far(run: RunFolder) -> float:
    file = _seconds_file(run)
    return float(file.read_text("utf-8")) if file.is_file() else 0.0


def _watch(label: str, say: Say) -> Watch:
    """A line after two epochs of each stage, the first of which may have had to compile, and after each fifth of it."""
    last = time.monotonic()

    def watch(stage: str, total: int, epoch: Any) -> None:
        nonlocal last
        took, last = time.monotonic() - last, time.monotonic()
        done = epoch.epoch + 1
        if done != 2 and done % max(1, total // 5):
            return
        # Epochs that a checkpoint brings back pass in no time.
        known = done < total and took > _SHORTEST_EPOCH
        left = f", about {took * (total - done) / 60:.1f} min left" if known else ""
        say(f"{label}: {stage} {done}/{total}, risk {epoch.risk:.4f}, bound {rounded_up(epoch.bound, 4)}{left}")

    return watch


def _done(records: list[dict[str, Any]], row: Row) -> bool:
    """Whether there is a result of this very configuration; settings that came later were at their defaults.

    The oldest results do not say their configuration, or what kind of certificate was asked for: they are taken for
    what they are called, on the device that they name.
    """

    def same(record: dict[str, Any]) -> bool:
        if "config" not in record:
            where = device_name(row.config.device)
            return (record["schedule"], record["seed"], record["device"]) == (row.schedule, row.config.seed, where)
        found = (record["schedule"], _filled(record["config"], row), record.get("asked", _asked(row)))
        return found == (row.schedule, _configuration(row), _asked(row))

    return any(map(same, records))


def _filled(config: dict[str, Any], row: Row) -> dict[str, Any]:
    """A recorded configuration with the defaults of all that it does not name."""
    filled = {**_configuration(replace(row, config=Config())), **config}
    for name, value in filled.items():
        if isinstance(value, dict):
            filled[name] = {**asdict(Ordinary() if name == "ordinary" else Settings()), **value}
    return filled


def _asked(row: Row) -> dict[str, Any]:
    """What kind of certificate a row wants."""
    return {"draws": row.draws, "test_draws": row.test_draws, "certificate": row.certificate}


def _configuration(row: Row) -> dict[str, Any]:
    """All settings, but for where things are."""
    left_out = ("device", "data_folder")
    return {name: value for name, value in asdict(row.config).items() if name not in left_out}


def _provenance(row: Row) -> dict[str, Any]:
    return {
        "device": device_name(row.config.device), "versions": versions(), "commit": commit(),
        "config": _configuration(row),
    }  # fmt: skip
