"""A fixed body that no data have shaped: the scattering transform (Bruna and Mallat 2013), for data-free priors.

Wavelets of some scales and directions, the modulus, wavelets of the larger scales again, the modulus, a local mean.
What comes out hardly changes when an image is shifted or bent a little, so a linear classifier on it does well.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LENGTH = 10.0
"""Of each order's part, so that weights and their deviations are of the usual size."""

LOG_FLOOR = 0.05
"""Added before a logarithm is taken: moduli below it, of flat places, count as none."""

# Of the Morlet wavelet at scale 1: the width of its envelope and its frequency, as in the article.
_WIDTH, _FREQUENCY = 0.8, 3 * math.pi / 4


class Scattering(nn.Module):
    """[n, channels, height, width] to [n, features], each order of scattering centred and of one length.

    With ``logarithms`` the moduli's local means are put on a logarithmic scale, where contrast is a shift.
    """

    def __init__(self, scales: int, directions: int, logarithms: bool = False):
        super().__init__()
        self.scales, self.directions, self.logarithms = scales, directions, logarithms
        for j in range(scales):
            self.register_buffer(f"wavelets_{j}", _wavelets(j, directions))
            self.register_buffer(f"mean_{j}", _gaussian(_WIDTH * 2.0 ** (scales - 1 - j)))

    def forward(self, x: Tensor) -> Tensor:
        n = len(x)
        orders: list[list[Tensor]] = [[self._mean(x, 0)], [], []]
        for first in range(self.scales):
            waves = self._modulus(x, first, 0)
            orders[1].append(self._mean(waves, first))
            for second in range(first + 1, self.scales):
                orders[2].append(self._mean(self._modulus(waves, second, first), second))
        parts = [torch.cat([p.reshape(n, -1) for p in order], 1) for order in orders if order]
        if self.logarithms:
            parts[1:] = [torch.log(part.clamp_min(0) + LOG_FLOOR) for part in parts[1:]]
        return torch.cat([LENGTH * F.normalize(part - part.mean(1, keepdim=True)) for part in parts], 1)

    def _modulus(self, x: Tensor, scale: int, now: int) -> Tensor:
        """|x * wavelet| for each direction, of x at the resolution of scale ``now``, at that of ``scale``."""
        waves = _convolved(x, getattr(self, f"wavelets_{scale - now}"), 2 ** (scale - now))
        real, imaginary = waves.unflatten(1, (-1, 2, self.directions)).unbind(2)
        return (real.square() + imaginary.square() + 1e-12).sqrt().flatten(1, 2)

    def _mean(self, x: Tensor, now: int) -> Tensor:
        return _convolved(x, getattr(self, f"mean_{now}"), 2 ** (self.scales - now))


def _convolved(x: Tensor, filters: Tensor, stride: int) -> Tensor:
    """Each channel of x with each filter, [n, channels * filters, ...]; the border is mirrored."""
    n, channels = x.shape[:2]
    width = filters.shape[-1] // 2
    x = x.reshape(n * channels, 1, *x.shape[2:])
    while width > 0:
        # A mirror shows no more than there is.
        step = min(width, x.shape[-1] - 1, x.shape[-2] - 1)
        x, width = F.pad(x, (step,) * 4, mode="reflect"), width - step
    out = F.conv2d(x, filters, stride=stride)
    return out.reshape(n, channels * len(filters), *out.shape[2:])


def _grid(width: float) -> tuple[Tensor, Tensor]:
    reach = math.ceil(3 * width)
    places = torch.arange(-reach, reach + 1, dtype=torch.float64)
    return places[:, None], places[None, :]


def _wavelets(scale: int, directions: int) -> Tensor:
    """Morlet wavelets [2 * directions, 1, size, size], real parts first; the mean of each is 0."""
    width, frequency = _WIDTH * 2.0**scale, _FREQUENCY / 2.0**scale
    y, x = _grid(width)
    parts: list[Tensor] = []
    for number in range(directions):
        angle = math.pi * number / directions
        along, across = math.cos(angle) * x + math.sin(angle) * y, -math.sin(angle) * x + math.cos(angle) * y
        envelope = torch.exp(-(along.square() + (4 / directions * across).square()) / (2 * width**2))
        wave = envelope * torch.exp(1j * frequency * along)
        wave = wave - envelope * (wave.sum() / envelope.sum())
        parts.append(wave * (4 / directions) / (2 * math.pi * width**2))
    waves = torch.stack(parts)
    return torch.cat([waves.real, waves.imag]).float()[:, None]


def _gaussian(width: float) -> Tensor:
    y, x = _grid(width)
    bell = torch.exp(-(x.square() + y.square()) / (2 * width**2))
    return (bell / bell.sum()).float()[None, None]
