"""The kernels of one captured step of a network of the paper, with their times: on a GPU.

    python benchmarks/kernels.py [MODEL [BATCH]]

Says how much of a step the chip is at work, and with what; what it leaves idle is all that trainings side by side can
fill beyond what kernels themselves leave.
"""

from __future__ import annotations

import sys
from collections import defaultdict

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from pacbayes.experiments.speed import _images, _network, _settings
from pacbayes.training.cuda_graphs import GraphEngine
from pacbayes.training.stage import Stage

SHOWN = 40


def main(model: str = "mnist-4", batch: str = "128") -> None:
    stage = Stage(_network(model, "cuda"), _images(model, 1.0), _settings(int(batch), "cuda"))
    engine = GraphEngine(stage)
    for _ in range(2):  # the first compiles and captures
        engine.epoch(0, 1e-3)
        engine.collect()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as seen:
        engine.epoch(1, 1e-3)
        engine.collect()
        torch.cuda.synchronize()
    events = [event for event in seen.events() if event.device_type == DeviceType.CUDA]
    steps = -(-stage.m // int(batch))
    span = max(event.time_range.end for event in events) - min(event.time_range.start for event in events)
    by_name: dict[str, list[float]] = defaultdict(list)
    for event in events:
        by_name[event.name].append(event.device_time)
    busy = sum(map(sum, by_name.values()))
    kernels = f"{len(events) / steps:.0f} kernels {busy / steps:.0f}"
    print(f"{model}, batch {batch}: a step takes {span / steps:.0f} µs, its {kernels}")
    for name, times in sorted(by_name.items(), key=lambda item: -sum(item[1]))[:SHOWN]:
        print(f"{sum(times) / steps:7.1f} µs  {len(times) / steps:4.1f} times  {name[:120]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
