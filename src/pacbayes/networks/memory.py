"""How many examples fit into memory at a time, whatever the network and the way its weights are drawn."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from pacbayes.data.streamed import Inputs
from pacbayes.networks.distributions import Gaussian
from pacbayes.networks.layers import StochasticConv, StochasticLayer
from pacbayes.networks.stochastic import StochasticNetwork

MEMORY_BUDGET, GPU_MEMORY_BUDGET = 256 * 2**20, 16 * 2**30
"""Bytes that one chunk's weights and activations may take; on a GPU at most a quarter of what it has."""

LARGEST_CHUNK = 4096


def chunk_size(net: StochasticNetwork, x: Inputs, *, per_example_weights: bool = True) -> int:
    """How many of these examples to take at a time, so that memory stays bounded whatever the network and the draws.

    One example is passed through to see the sizes of what the layers make. Where examples have to pass one by one, the
    network itself sees to it that few draws of its weights are there at a time.
    """
    example = x[:1].to(net.mean.device)
    with torch.no_grad():
        net(example, "mean")  # the first pass settles how the layers are drawn
    if not net.drawn_by_rules:
        return _examples_within_budget(net, max(x[0].numel(), _growth(net, example)))
    numbers = [x[0].numel()]
    layers = [m for m in net.model.modules() if not list(m.children()) or isinstance(m, StochasticConv)]

    def note(module: nn.Module, args: tuple[Any, ...], out: Any) -> None:
        numbers.append(sum(t.numel() for t in (*args, out) if isinstance(t, Tensor)))
        if isinstance(module, StochasticConv):
            numbers[-1] += out[0, 0].numel() * args[0].shape[1] * math.prod(module.conv.kernel_size)
        if per_example_weights and isinstance(module, StochasticLayer) and module.draws_weights(args[0]):
            # The weights, their noise (three normals each for a Laplace weight), and what is on the way.
            numbers[-1] += (3 if isinstance(module.weight.distribution, Gaussian) else 7) * module.weight.mean.numel()

    hooks = [layer.register_forward_hook(note) for layer in layers]
    try:
        with torch.no_grad():
            net(example, "mean")
    finally:
        for hook in hooks:
            hook.remove()
    return _examples_within_budget(net, max(numbers))


def _examples_within_budget(net: StochasticNetwork, numbers: int) -> int:
    """How many examples there may be, if the largest thing made of each has so many numbers."""
    budget = MEMORY_BUDGET
    if net.mean.is_cuda:
        budget = min(GPU_MEMORY_BUDGET, torch.cuda.get_device_properties(net.mean.device).total_memory // 4)
    return max(1, min(LARGEST_CHUNK, budget // (2 * numbers * net.mean.element_size())))


class _Sizes(TorchDispatchMode):
    """The size of whatever any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.seen += [t.numel() for t in (out if isinstance(out, tuple | list) else [out]) if isinstance(t, Tensor)]
        return out


@torch.no_grad()
def _growth(net: StochasticNetwork, example: Tensor) -> int:
    """By how much the largest thing made grows with one more example: what is made of weights alone does not."""
    sizes = []
    for count in (1, 2):
        # As it is computed one by one: other kernels do not make the whole of an attention.
        with sdpa_kernel(SDPBackend.MATH), _Sizes() as found:
            net(torch.cat([example] * count), "mean")
        sizes.append(found.seen)
    one, two = sizes
    return max(b - a for a, b in zip(one, two, strict=True)) if len(one) == len(two) else max(two)
