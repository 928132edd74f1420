"""What all tests share: one thread (tensors are small, and processes share the machine), torchrun, an experiment."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import hypothesis
import pytest
import torch

import pacbayes

# How long an example takes says nothing about the code: the machine may be busy.
hypothesis.settings.register_profile("no clock", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("no clock")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start
    yield
    torch.set_num_threads(before)


@pytest.fixture
def doubles() -> Iterator[None]:
    """New tensors are float64 unless something else is said."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


class Ended(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture(scope="session")
def torchrun_command() -> Callable[..., list[str]]:
    """``torchrun`` with so many processes of this machine, as a command."""

    def command(count: int, *arguments: object, restarts: int = 0) -> list[str]:
        options = ("--standalone", "--nproc-per-node", count, "--max-restarts", restarts)
        return [sys.executable, "-m", "torch.distributed.run", *map(str, (*options, *arguments))]

    return command


@pytest.fixture(scope="session")
def torchrun_environment() -> dict[str, str]:
    """One thread each, this source, and the place of a crash, should there be one."""
    source = str(Path(pacbayes.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}


@pytest.fixture(scope="session")
def torchrun(torchrun_command: Callable[..., list[str]], torchrun_environment: dict[str, str]) -> Callable[..., Ended]:
    def run(count: int, *arguments: object) -> Ended:
        command = torchrun_command(count, *arguments)
        done = subprocess.run(
            command, env=torchrun_environment, capture_output=True, text=True, check=False, timeout=300
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


TINY = """
title = "A trial"
source = "table 0"
draws = 200
test_draws = 3
[base]
data = "digits"
model = "mlp"
prior = "data-free"
[base.posterior]
momentum = 0.5
[schedules.paper.posterior]
schedule = "2@0.005, 1@0.0001"
[schedules.short.posterior]
epochs = 1
[[rows]]
row = "G invKL"
paper = { risk_bound = 0.5 }
[[rows]]
row = "S lbd"
posterior = { method = "S", objective = "lbd", kappa = 0.5 }
"""


@pytest.fixture
def tiny_text() -> str:
    """The file of an experiment whose rows train in a second."""
    return TINY
