"""Many draws of a layer's weights in one GPU kernel: where a certificate with a draw for each example spends its time.

Imported only where there is a GPU: Triton comes with PyTorch's CUDA builds.
"""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 512


class GpuNormals:
    """Standard normals from a generator, and weights drawn around their means without a pass for the noise."""

    def __init__(self, generator: torch.Generator | None, like: Tensor):
        self.generator, self.like = generator, like

    def __call__(self, shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=self.like.dtype, device=self.like.device)

    def around(self, mean: Tensor, scale: Tensor, copies: int) -> Tensor:
        """``mean + scale * noise``, [copies, *mean.shape], in float32."""
        out = torch.empty((copies, *mean.shape), dtype=mean.dtype, device=mean.device)
        # The seed stays on the device: nothing waits for it.
        seed = torch.randint(2**62, (1,), generator=self.generator, device=mean.device)
        grid = (triton.cdiv(mean.numel(), 4 * _BLOCK), copies)
        with torch.cuda.device(mean.device):  # Triton takes the current one
            _around[grid](out, mean.contiguous(), scale.contiguous(), seed, mean.numel(), _BLOCK)
        return out


@triton.jit
def _around(out, mean, scale, seed, size, BLOCK: tl.constexpr):
    copy = tl.program_id(1)
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    # Philox, as PyTorch's own generator: four words for each counter, and a key of their own for every call.
    zero = lane * 0
    a, b, c, d = tl.philox(tl.load(seed), lane, zero + copy, zero, zero)
    first, second = _box_muller(a, b)
    third, fourth = _box_muller(c, d)
    _put(out, mean, scale, first, copy, tl.program_id(0) * 4, size, BLOCK)
    _put(out, mean, scale, second, copy, tl.program_id(0) * 4 + 1, size, BLOCK)
    _put(out, mean, scale, third, copy, tl.program_id(0) * 4 + 2, size, BLOCK)
    _put(out, mean, scale, fourth, copy, tl.program_id(0) * 4 + 3, size, BLOCK)


@triton.jit
def _box_muller(a, b):
    # (word + 1/2) / 2^32: never 0, so the tail reaches 6.7 deviations; Triton's own stops at 5.7.
    u = (a.to(tl.uint32, bitcast=True).to(tl.float32) + 0.5) * 2.3283064365386963e-10
    angle = b.to(tl.uint32, bitcast=True).to(tl.float32) * 1.4629180792671596e-09
    radius = tl.sqrt(tl.maximum(-2.0 * tl.log(u), 0.0))
    return radius * tl.cos(angle), radius * tl.sin(angle)


@triton.jit
def _put(out, mean, scale, noise, copy, block, size, BLOCK: tl.constexpr):
    at = block * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    value = tl.load(mean + at, mask=inside) + tl.load(scale + at, mask=inside) * noise
    tl.store(out + copy.to(tl.int64) * size + at, value, mask=inside)
