"""Several small networks trained in one step, as grouped convolutions and batched products, or one by one: on a GPU.

Forward and backward of the paper's 4 layers at batch 128 in bf16, compiled and captured, without draws and updates.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

BATCH = 128


def step(networks: int) -> Callable[[], tuple[Tensor, ...]]:
    """Gradients of so many networks, each on images of its own."""

    def weights(*shape: int) -> Tensor:
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16).mul_(0.03).requires_grad_()

    k = networks
    parameters = [weights(32 * k, 1, 3, 3), weights(64 * k, 32, 3, 3), weights(k, 9216, 128), weights(k, 128, 10)]
    x = torch.randn(BATCH, k, 28, 28, device="cuda", dtype=torch.bfloat16)
    x = x.to(memory_format=torch.channels_last)

    def loss(x: Tensor, first: Tensor, second: Tensor, third: Tensor, last: Tensor) -> Tensor:
        h = F.relu(F.conv2d(x, first, groups=k))
        h = F.relu(F.max_pool2d(F.conv2d(h, second, groups=k), 2))
        h = F.relu(torch.bmm(h.reshape(BATCH, k, 9216).transpose(0, 1), third))
        return torch.bmm(h, last).float().square().mean()

    compiled = torch.compile(loss, dynamic=False, options={"force_layout_optimization": True})
    return lambda: torch.autograd.grad(compiled(x, *parameters), parameters)


def seconds(body: Callable[[], object], repeats: int = 200) -> float:
    """A replay's time, captured after three trials."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for _ in range(3):
            body()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        body()
    for _ in range(5):
        graph.replay()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        graph.replay()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats


def main() -> None:
    torch.backends.cudnn.benchmark = True
    alone = seconds(step(1))
    for networks in (2, 4, 8):
        together = seconds(step(networks))
        print(f"{networks} networks in one step: {networks * alone / together:.2f} times the throughput of one")


if __name__ == "__main__":
    main()
