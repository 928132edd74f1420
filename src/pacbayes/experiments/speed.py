"""How fast training and certificates are on a device: one table, everything measured in one run."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from pacbayes.certificates.monte_carlo import independent_errors
from pacbayes.data import Data
from pacbayes.experiments.results import append_result, commit, device_name
from pacbayes.networks import StochasticNetwork, build, stochastic
from pacbayes.training.engine import PlainEngine, engine_for
from pacbayes.training.fit import fitting
from pacbayes.training.settings import Settings
from pacbayes.training.stage import Stage
from pacbayes.versions import versions

# The examples of an epoch in the paper's experiments.
EXAMPLES = {"mnist-4": 60_000, "cifar10-9": 25_000, "cifar10-15": 25_000}
SHAPES = {"mnist-4": (1, 28, 28), "cifar10-9": (3, 32, 32), "cifar10-15": (3, 32, 32)}

Say = Callable[[str], None]


@dataclass(frozen=True)
class Speed:
    """One line: what was measured, in which unit, and how it compares."""

    what: str
    value: float
    unit: str
    remark: str = ""

    def __str__(self) -> str:
        return f"{self.what:<58} {self.value:>10.4g} {self.unit:<12} {self.remark}"


def measure_speed(
    device: str,
    models: Sequence[str] = tuple(EXAMPLES),
    *,
    batches: Sequence[int] = (128, 512),
    concurrent: Sequence[int] = (1, 2, 4, 8),
    draws: int = 150_000,
    share: float = 1.0,
    say: Say = print,
) -> list[Speed]:
    """Measure on random images; ``share`` of an epoch and of the draws is done, and scaled up."""
    lines: list[Speed] = []

    def note(line: Speed) -> None:
        lines.append(line)
        say(str(line))

    roof = _matrix_rate(device)
    note(Speed("matrix product, the roofline", roof / 1e12, "TFLOP/s"))
    if device.startswith("cuda"):
        # Apart from the networks' start-ups: it is the same for any of them, and much the most where PyTorch is new.
        seconds = _timed(partial(_first_kernel, device), device)
        note(Speed("PyTorch's compiler: import and first kernel", seconds, "s", "once a process"))
    for model in models:
        data = _images(model, share)
        for batch in batches:
            _training(model, data, batch, device, roof, note)
        if model == models[0]:
            _side_by_side(model, data, concurrent, device, note)
        net = _network(model, device)
        count = max(1, int(draws * share))
        independent_errors(net, data, count // 10 + 1, 0)
        seconds = _timed(partial(independent_errors, net, data, count, 1), device)
        note(Speed(f"{model}: {draws} independent draws", seconds * draws / count, "s"))
    return lines


def save_speed(lines: Sequence[Speed], device: str, share: float, seconds: float, results: Path) -> Path:
    """Append the table to ``speed.jsonl``, with how it was made: machine, time, share, versions and commit."""
    return append_result(results, {
        "experiment": "speed", "lines": [asdict(line) for line in lines], "device": device_name(device),
        "share": share, "seconds": round(seconds, 1),
        "versions": versions(), "commit": commit(),
    })  # fmt: skip


def _training(model: str, data: Data, batch: int, device: str, roof: float, note: Callable[[Speed], None]) -> None:
    stage = Stage(_network(model, device), data, _settings(batch, device))
    start = time.perf_counter()
    engine = engine_for(stage)
    engine.epoch(0, 1e-3)
    engine.collect()
    _wait(device)
    start_up = time.perf_counter() - start

    def epoch() -> None:
        engine.epoch(1, 1e-3)
        engine.collect()

    scale = EXAMPLES[model] / len(data)
    seconds = min(_timed(epoch, device) for _ in range(3)) * scale
    flops = _flops(stage, batch) * EXAMPLES[model] / batch
    rate = flops / seconds
    note(Speed(f"{model}, batch {batch}: an epoch", seconds, "s", f"start-up {start_up:.1f} s"))
    note(Speed(f"{model}, batch {batch}: rate", rate / 1e12, "TFLOP/s", f"{100 * rate / roof:.1f} % of the roofline"))

    plain = partial(stage.step, torch.arange(batch, device=stage.device), PlainEngine(stage).normals)
    eager = min(_timed(plain, device) for _ in range(20)) * EXAMPLES[model] / batch
    note(Speed(f"{model}, batch {batch}: the plain loop takes", eager / seconds, "times that"))


def _side_by_side(
    model: str, data: Data, concurrent: Sequence[int], device: str, note: Callable[[Speed], None]
) -> None:
    alone = 0.0
    for count in concurrent:
        jobs: list[Generator[None, None, object]] = []
        for _ in range(count):
            settings = _settings(128, device, epochs=4)
            jobs.append(fitting(_network(model, device), data, settings))
        _advance(jobs, 2)  # the first epoch compiles and warms up
        seconds = _timed(partial(_advance, jobs, 2), device)
        rate = 2 * count / seconds * len(data) / EXAMPLES[model]
        alone = alone or rate
        remark = f"{rate / alone:.2f} times one"
        note(Speed(f"{model}: {count} trainings side by side, together", rate, "epochs/s", remark))


def _advance(jobs: list[Generator[None, None, object]], epochs: int) -> None:
    for _ in range(epochs):
        for job in jobs:
            next(job)


def _settings(batch: int, device: str, epochs: int = 1) -> Settings:
    precision = "bf16" if device.startswith("cuda") else "float32"
    return Settings(batch_size=batch, precision=precision, evaluate="running", epochs=epochs, rate=1e-3)


def _network(model: str, device: str) -> StochasticNetwork:
    return stochastic(build(model, SHAPES[model], 10), 0.001).to(device)


def _images(model: str, share: float) -> Data:
    count = max(1024, int(EXAMPLES[model] * share))
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((count, *SHAPES[model]), generator=generator)
    return Data(x, torch.randint(10, (count,), generator=generator), 10)


def _flops(stage: Stage, batch: int) -> int:
    """Operations of one step's matrix products and convolutions, forward and backward."""
    plain = PlainEngine(stage)
    with FlopCounterMode(display=False) as counter:
        stage.step(torch.arange(batch, device=stage.device), plain.normals)
    return counter.get_total_flops()


def _first_kernel(device: str) -> None:
    x = torch.ones(1024, device=device, requires_grad=True)
    torch.compile(lambda x: x.sin().sum())(x).backward()


def _matrix_rate(device: str) -> float:
    """FLOP/s of a large matrix product, in bf16 on a GPU and float32 elsewhere."""
    cuda = device.startswith("cuda")
    n = 8192 if cuda else 1024
    a = torch.randn(n, n, device=device, dtype=torch.bfloat16 if cuda else torch.float32)
    for _ in range(3):
        a @ a
    repeats = 10
    return 2 * n**3 * repeats / _timed(lambda: [a @ a for _ in range(repeats)], device)


def _timed(job: Callable[[], object], device: str) -> float:
    _wait(device)
    start = time.perf_counter()
    job()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
