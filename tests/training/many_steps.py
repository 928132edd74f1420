"""Steps of every kind in float64, as one process or, started by torchrun, as several: ``many_steps.py FOLDER``."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from pacbayes import processes
from pacbayes.bounds.pac_bayes import OBJECTIVES
from pacbayes.data import as_data
from pacbayes.networks import stochastic
from pacbayes.training.engine import PlainEngine
from pacbayes.training.settings import Settings
from pacbayes.training.stage import Stage


class Twice(nn.Module):
    """A layer used twice, so that examples with draws of their own must pass one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.last(torch.relu(self.first(torch.relu(self.first(x)))))


MODELS = {
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)),
    # Four filters, and batches of which a process of two has four rows: shapes alone do not say whose noise it is.
    "cnn": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 2), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 4), nn.ReLU(), nn.Linear(4, 3)
    ),
    "twice": Twice,
}
PLAIN = Settings(batch_size=8, rate=0.05, epochs=2, seed=5)


def cases() -> dict[str, tuple[str, str, Settings]]:
    """Name: model, distribution, settings."""
    found = {
        f"{objective} {method}": ("mlp", "gaussian", replace(PLAIN, objective=objective, method=method))
        for objective in OBJECTIVES
        for method in ("G", "S")
    }
    for sampling in ("shared", "mixed", "independent"):
        chosen = replace(PLAIN, sampling=sampling, dropout=0.2)
        found[f"S {sampling}"] = ("mlp", "gaussian", replace(PLAIN, sampling=sampling, method="S"))
        found[f"cnn {sampling}"] = ("cnn", "gaussian", chosen)
    chosen = replace(PLAIN, sampling="independent", dropout=0.2)
    found |= {"laplace": ("cnn", "laplace", chosen), "one by one": ("twice", "gaussian", chosen)}
    found |= {name: ("mlp", "gaussian", replace(PLAIN, estimator=name, samples=7)) for name in ("L1", "L2")}
    found["adam"] = ("mlp", "gaussian", replace(PLAIN, optimiser="adam", rate=0.01))
    found["best lambda"] = ("mlp", "gaussian", replace(PLAIN, objective="lbd", lam="best"))
    found["pre-training"] = ("mlp", "gaussian", replace(PLAIN, method="CE", dropout=0.2))
    return found


def after_two_epochs(model: str, distribution: str, settings: Settings) -> Tensor:
    """The weights, the optimiser's memory, the sums of the last epoch and the risk, as one vector."""
    # The last batch has one example: fewer than there are processes.
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(17) % 3
    data = as_data((torch.randn(17, 1, 4, 4, generator=generator) + y[:, None, None, None], y), classes=3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = stochastic(MODELS[model](), 0.03, distribution=distribution).double()
    stage = Stage(net, data, settings)
    stage.x = stage.x.double()
    engine = PlainEngine(stage)
    for number in (0, 1):
        engine.epoch(number, settings.rate)
    found = [*stage.state().values(), stage.objective_sum, stage.error_sum, torch.tensor(engine.risk())]
    return torch.cat([tensor.detach().double().flatten() for tensor in found])


def all_cases() -> dict[str, Tensor]:
    return {name: after_two_epochs(*case) for name, case in cases().items()}


if __name__ == "__main__":
    processes.join()
    safetensors.torch.save_file(all_cases(), Path(sys.argv[1]) / f"process-{processes.rank()}.safetensors")
    processes.leave()
    # A thread of the group that is still there may abort the process when it ends.
    names = [task.read_text() for task in Path("/proc/self/task").glob("*/comm")]
    assert not [name for name in names if "gloo" in name], names
