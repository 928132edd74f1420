"""What things cost, as ratios measured in one run: times on a shared machine are noisy, ratios less so.

Each pair is timed in turns, and the ratio of the two medians is shown.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import torch

import pacbayes as pb
from pacbayes.certificates.monte_carlo import independent_errors, shared_errors
from pacbayes.training.engine import PlainEngine
from pacbayes.training.stage import Stage

REPEATS = 7


def ratio(one: Callable[[], object], other: Callable[[], object], repeats: int = REPEATS) -> float:
    """Median time of one over that of the other, run in turns after a warm-up each."""
    times: list[list[float]] = [[], []]
    for repeat in range(repeats + 1):
        for job, kept in zip((one, other), times, strict=True):
            start = time.perf_counter()
            job()
            if repeat:
                kept.append(time.perf_counter() - start)
    return statistics.median(times[0]) / statistics.median(times[1])


def training_step(model: str, data: pb.Data, **options: object) -> Callable[[], None]:
    net = pb.stochastic(pb.build(model, data.shape, data.classes), 0.001)
    stage = Stage(net, data, pb.Settings.of(**options))
    stage.begin_epoch(1e-3)
    return partial(stage.step, torch.arange(128), PlainEngine(stage).normals)


def peak_memory(draws: int) -> int:
    """Kilobytes at most, of a process that certifies with so many draws."""
    code = (
        "import resource, pacbayes as pb; data = pb.load('digits');"
        "net = pb.stochastic(pb.build('cnn-small', data.shape, 10), 0.001);"
        f"pb.certify(net, data, draws={draws}, seed=0);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    return int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def main() -> None:
    data = pb.load("digits")
    images = pb.Data(torch.randn(256, 1, 28, 28), torch.arange(256) % 10, 10)
    net = pb.stochastic(pb.build("cnn-small", data.shape, 10), 0.001)
    mean, variance, y = torch.randn(128, 10), torch.rand(128, 10), torch.arange(128) % 10

    def error(method: str) -> None:
        m, v = mean.clone().requires_grad_(), variance.clone().requires_grad_()
        pb.bounds.misclassification_probability(m, v, y, method).sum().backward()

    rows = [
        (
            "conditional error, of a whole step (paper's 4 layers)",
            ratio(partial(error, "quadrature"), training_step("mnist-4", images)),
        ),
        (
            "conditional error, of a whole step (small network)",
            ratio(partial(error, "quadrature"), training_step("cnn-small", data)),
        ),
        ("quadrature, against 100 samples of L1", ratio(partial(error, "quadrature"), partial(error, "L1"))),
        (
            "step of method G, against method S",
            ratio(training_step("mnist-4", images, method="G"), training_step("mnist-4", images, method="S")),
        ),
        (
            "1,437 independent terms, against as many shared ones",
            ratio(
                lambda: independent_errors(net, data, len(data), 0),
                lambda: shared_errors(net, data, len(data), 0),
                repeats=1,
            ),
        ),
        (
            "certificate with 100,000 draws, against 10,000: time",
            ratio(
                lambda: pb.certify(net, data, draws=100_000, seed=0),
                lambda: pb.certify(net, data, draws=10_000, seed=0),
                repeats=2,
            ),
        ),
        ("certificate with 100,000 draws, against 10,000: peak memory", peak_memory(100_000) / peak_memory(10_000)),
    ]
    for name, value in rows:
        print(f"{name:<62} {value:8.3f}")


if __name__ == "__main__":
    main()
