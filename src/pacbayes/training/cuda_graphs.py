"""The fast engine for a GPU: steps compiled and captured in CUDA graphs; nothing is read back within an epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch._dynamo.exc import TorchDynamoException

from pacbayes.errors import first_line
from pacbayes.networks.normals import Counted, Tape
from pacbayes.networks.precision import products
from pacbayes.seeds import derived_seed
from pacbayes.training.capture import captured
from pacbayes.training.engine import EVALUATION
from pacbayes.training.stage import Stage

_STEPS_A_GRAPH = 8
# Convolutions run on channels-last tensors; without the first, small ones are converted back and forth. The second
# joins small kernels that do not depend on each other: a step has dozens.
_OPTIONS: dict[str, Any] = {"force_layout_optimization": True, "combo_kernels": True}


class NotCompiled(Exception):
    """The model's forward is not one sequence of operations: it branches on its inputs, say."""


class GraphEngine:
    """The same steps as the plain engine's, replayed. Its noise comes in another order: equal in law, not in bytes."""

    def __init__(self, stage: Stage):
        self.stage = stage
        self.generator = torch.Generator(stage.device)
        self.order = torch.arange(stage.m, device=stage.device)
        self.cursor = torch.zeros((), dtype=torch.int64, device=stage.device)
        self.risk_sum = torch.zeros((), dtype=torch.float64, device=stage.device)
        self.stream = torch.cuda.Stream(stage.device)
        self.graphs: dict[tuple[str, int, int], tuple[torch.cuda.CUDAGraph, Callable[[], None]]] = {}
        # Apart, because the network's part is the same for every objective, and then comes from the compiler's cache.
        self.compiled = {
            name: torch.compile(getattr(stage, name), fullgraph=True, dynamic=False, options=_OPTIONS)
            for name in ("measure", "combine", "update", "risk")
        }

    def prepare(self) -> None:
        """Compile and capture what each training needs."""
        try:
            self._plan("step")
        except TorchDynamoException as error:
            raise NotCompiled(first_line(error)) from error

    def epoch(self, number: int, rate: float) -> None:
        stage = self.stage
        what = "lambda" if stage.settings.trains_lambda and number % 2 else "step"
        plan = self._plan(what)
        self.stream.wait_stream(torch.cuda.current_stream(self.stage.device))
        with torch.cuda.stream(self.stream):
            self.generator.manual_seed(derived_seed(stage.settings.seed, number))
            stage.begin_epoch(rate)
            torch.randperm(stage.m, generator=self.generator, device=stage.device, out=self.order)
            self._replay(plan)

    def collect(self) -> None:
        torch.cuda.current_stream(self.stage.device).wait_stream(self.stream)

    def risk(self) -> float:
        stage = self.stage
        plan = self._plan("risk")
        self.stream.wait_stream(torch.cuda.current_stream(self.stage.device))
        with torch.cuda.stream(self.stream):
            self.generator.manual_seed(derived_seed(stage.settings.seed, EVALUATION))
            torch.arange(stage.m, device=stage.device, out=self.order)
            self.risk_sum.zero_()
            self._replay(plan)
            return float(self.risk_sum) / stage.m

    def _plan(self, what: str) -> list[tuple[torch.cuda.CUDAGraph, int]]:
        """Graphs and how often to replay them, to visit every example once; captured on first use."""
        full, rest = divmod(self.stage.m, self.stage.settings.batch_size)
        parts = [(self.stage.settings.batch_size, _STEPS_A_GRAPH, full // _STEPS_A_GRAPH),
                 (self.stage.settings.batch_size, 1, full % _STEPS_A_GRAPH), (rest, 1, 1 if rest else 0)]  # fmt: skip
        return [(self._graph(what, size, steps), times) for size, steps, times in parts if times]

    def _replay(self, plan: list[tuple[torch.cuda.CUDAGraph, int]]) -> None:
        self.cursor.zero_()
        for graph, times in plan:
            for _ in range(times):
                graph.replay()

    def _graph(self, what: str, size: int, steps: int) -> torch.cuda.CUDAGraph:
        key = (what, size, steps)
        if key not in self.graphs:
            body = self._body(what, size, steps)
            # The body stays with its graph: it holds buffers that the replays read.
            self.graphs[key] = self._capture(body), body
        return self.graphs[key][0]

    def _body(self, what: str, size: int, steps: int) -> Callable[[], None]:
        stage = self.stage
        positions = torch.arange(size * steps, device=stage.device)
        # One short batch an epoch is not worth a compilation, unless it is all there is.
        methods = self.compiled if size == min(stage.settings.batch_size, stage.m) else {}
        # Each step's part starts where compiled kernels can read it without a copy.
        aligned = math.ceil(self._noise_size(what, size) / 64) * 64
        noise = torch.empty((steps, aligned), device=stage.device, dtype=stage.net.mean.dtype)

        def body() -> None:
            # For all steps at once: what is small costs a GPU its launch.
            noise.normal_(generator=self.generator)
            batches = self.order[self.cursor + positions].split(size)
            with _replaced(stage, methods):
                for batch, normals in zip(batches, noise, strict=True):
                    if what == "risk":
                        self.risk_sum.add_(stage.risk(batch, Tape(normals)).double(), alpha=size)
                    else:
                        (stage.lambda_step if what == "lambda" else stage.step)(batch, Tape(normals))
            self.cursor.add_(size * steps)

        return body

    def _noise_size(self, what: str, size: int) -> int:
        """How many normals one step takes: counted in a plain pass."""
        count = Counted(self.stage.net.mean)
        with torch.no_grad():
            (self.stage.risk if what == "risk" else self.stage.measure)(self.order[:size], count)
        return count.used

    def _capture(self, body: Callable[[], None]) -> torch.cuda.CUDAGraph:
        def trial() -> None:
            self.cursor.zero_()
            body()

        saved = self.stage.state()
        # What stays in float32 beside bf16, the last layer, may use TF32.
        try:
            with products("high") if self.stage.settings.precision == "bf16" else nullcontext():
                return captured(body, self.generator, self.stream, trial)
        finally:
            self.stage.load(saved)


@contextmanager
def _replaced(stage: Stage, methods: dict[str, Any]) -> Iterator[None]:
    """The stage with some of its methods in their compiled form."""
    vars(stage).update(methods)
    try:
        yield
    finally:
        for name in methods:
            delattr(stage, name)
