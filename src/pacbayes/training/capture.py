"""Work for a GPU captured as a CUDA graph: PyTorch takes longer to launch small kernels than a GPU to run them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch._dynamo

from pacbayes.networks.precision import fastest_convolutions

# Many trainings may share a process: none may be left uncompiled because others came before it. PyTorch 2.6 has these
# names too.
COMPILATIONS = {"cache_size_limit": 2**16, "accumulated_cache_size_limit": 2**16}


def captured(
    body: Callable[[], None], generator: torch.Generator, stream: torch.cuda.Stream, trial: Callable[[], None]
) -> torch.cuda.CUDAGraph:
    """The body as a graph, whose replays draw from the generator as it stands.

    Trials run before it, to compile and to warm up; what they change is for the caller to put back.
    """
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with fastest_convolutions(), torch._dynamo.config.patch(COMPILATIONS):
        current = torch.cuda.current_stream(stream.device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            for _ in range(3):
                trial()
        current.wait_stream(stream)
        with _uncollected(), torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            body()
    return graph


@contextmanager
def _uncollected() -> Iterator[None]:
    """No garbage is collected: an earlier graph that happens to go, and its memory, would spoil the capture."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
