"""A model looked at while it runs: what its layers are given, and what becomes of its output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

Result = TypeVar("Result")

# In evaluation mode, attention may take the weights of layers inside it without a call of these layers, and cuDNN's
# recurrent kernels have no gradient.
_WITH_FAST_PATHS = (nn.MultiheadAttention, nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.RNNBase)


@dataclass(frozen=True)
class Call:
    """One call of a layer: the length of its input's first axis, its output, and that tensor's version then."""

    layer: nn.Module
    rows: int
    output: Tensor
    version: int

    def gave(self, out: object) -> bool:
        """Whether this is its output, untouched."""
        return out is self.output and self.output._version == self.version


def watched(run: Callable[[], Result], layers: Iterable[nn.Module]) -> tuple[Result, list[Call]]:
    """What ``run`` returns, and the calls of these layers on the way."""
    calls: list[Call] = []

    def note(layer: nn.Module, args: tuple[Tensor, ...], named: dict[str, Tensor], out: Tensor) -> None:
        calls.append(Call(layer, len(first_argument(args, named)), out, out._version))

    handles = [layer.register_forward_hook(note, with_kwargs=True) for layer in layers]
    try:
        return run(), calls
    finally:
        for handle in handles:
            handle.remove()


def first_argument(args: tuple[Tensor, ...], named: dict[str, Tensor]) -> Tensor:
    """What a layer is given, whether by position or by name."""
    return next(iter((*args, *named.values())))


def has_fast_paths(model: nn.Module) -> bool:
    return any(isinstance(module, _WITH_FAST_PATHS) for module in model.modules())


@contextmanager
def no_fast_paths() -> Iterator[None]:
    """PyTorch's switches for them are global: they are put back."""
    mha, cudnn = torch.backends.mha.get_fastpath_enabled(), torch.backends.cudnn.enabled
    torch.backends.mha.set_fastpath_enabled(False)
    torch.backends.cudnn.enabled = False
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(mha)
        torch.backends.cudnn.enabled = cudnn
