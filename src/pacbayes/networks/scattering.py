"""A fixed body that no data have shaped: the scattering transform (Bruna and Mallat 2013), for data-free priors.

Wavelets of some scales and directions, the modulus, wavelets of the larger scales again, the modulus, a local mean.
What comes out hardly changes when an image is shifted or bent a little, so a linear classifier on it does well.

Neighbouring places, directions and colours say almost the same, and weights that are drawn one by one cannot use that.
So in the end the axes are turned: cosines over places and colours, waves around the directions. A turn changes no
length and no angle, but each number now says something of its own.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pacbayes.errors import InvalidInput

LENGTH = 10.0
"""Of each order's part, so that weights and their deviations are of the usual size."""

LOG_FLOOR = 0.05
"""Added before a logarithm is taken: moduli below it, of flat places, count as none."""

# Of the Morlet wavelet at scale 1: the width of its envelope and its frequency, as in the article.
_WIDTH, _FREQUENCY = 0.8, 3 * math.pi / 4


class Scattering(nn.Module):
    """[n, channels, height, width] to [n, features], each order of scattering centred and of one length.

    The moduli's local means are put on a logarithmic scale, where contrast is a shift.
    """

    def __init__(self, scales: int, directions: int):
        super().__init__()
        self.scales, self.directions = scales, directions
        # A part of the weights' fingerprint: other formulas, other features.
        self.register_buffer("version", torch.tensor(2))
        for j in range(scales):
            self.register_buffer(f"wavelets_{j}", _wavelets(j, directions))
            self.register_buffer(f"mean_{j}", _gaussian(_WIDTH * 2.0 ** (scales - 1 - j)))

    def forward(self, x: Tensor) -> Tensor:
        colours, directions = x.shape[1], self.directions
        # Of each order [n, colours, directions, ..., height, width].
        orders: list[list[Tensor]] = [[self._mean(x, 0)], [], []]
        for first in range(self.scales):
            waves = self._modulus(x, first, 0)
            orders[1].append(self._mean(waves, first).unflatten(1, (colours, directions)))
            for second in range(first + 1, self.scales):
                means = self._mean(self._modulus(waves, second, first), second)
                orders[2].append(means.unflatten(1, (colours, directions, directions)))
        orders[1:] = [[torch.log(part.clamp_min(0) + LOG_FLOOR) for part in order] for order in orders[1:]]
        return torch.cat([_turned(part).flatten(1) for order in orders if order for part in _scaled(order)], 1)

    def _modulus(self, x: Tensor, scale: int, now: int) -> Tensor:
        """|x * wavelet| for each direction, of x at the resolution of scale ``now``, at that of ``scale``."""
        waves = _convolved(x, getattr(self, f"wavelets_{scale - now}"), 2 ** (scale - now))
        real, imaginary = waves.unflatten(1, (-1, 2, self.directions)).unbind(2)
        return (real.square() + imaginary.square() + 1e-12).sqrt().flatten(1, 2)

    def _mean(self, x: Tensor, now: int) -> Tensor:
        return _convolved(x, getattr(self, f"mean_{now}"), 2 ** (self.scales - now))


def _scaled(order: list[Tensor]) -> list[Tensor]:
    """The parts of an order, centred together and of one length."""
    whole = torch.cat([part.flatten(1) for part in order], 1)
    whole = LENGTH * F.normalize(whole - whole.mean(1, keepdim=True))
    pieces = whole.split([part[0].numel() for part in order], 1)
    return [piece.view_as(part) for piece, part in zip(pieces, order, strict=True)]


def _turned(x: Tensor) -> Tensor:
    """[n, colours, directions, ..., height, width] in cosines and waves; a second direction is told from the first."""
    if x.dim() == 6:
        x = torch.stack([part.roll(-number, 2) for number, part in enumerate(x.unbind(2))], 2)
    for axis in range(1, x.dim()):
        basis = _cosines if axis == 1 or axis >= x.dim() - 2 else _waves
        x = (x.movedim(axis, -1) @ basis(x.shape[axis], x.device).to(x.dtype).T).movedim(-1, axis)
    return x


def _cosines(n: int, device: torch.device) -> Tensor:
    """An orthonormal basis of n places in a row: the discrete cosine transform."""
    place = torch.arange(n, dtype=torch.float64, device=device)
    basis = torch.cos(math.pi * (place + 0.5) * place[:, None] / n)
    return basis / basis.norm(dim=1, keepdim=True)


def _waves(n: int, device: torch.device) -> Tensor:
    """An orthonormal basis of n places in a circle: the discrete Fourier transform, in real numbers."""
    place = torch.arange(n, dtype=torch.float64, device=device)
    angle = 2 * math.pi * place * place[: n // 2 + 1, None] / n
    rows = torch.cat([angle.cos(), angle.sin()[1 : (n + 1) // 2]])
    return rows / rows.norm(dim=1, keepdim=True)


def _convolved(x: Tensor, filters: Tensor, stride: int) -> Tensor:
    """Each channel of x with each filter, [n, channels * filters, ...]; the border is mirrored."""
    n, channels = x.shape[:2]
    width = filters.shape[-1] // 2
    x = x.reshape(n * channels, 1, *x.shape[2:])
    while width > 0:
        # A mirror shows no more than there is.
        step = min(width, x.shape[-1] - 1, x.shape[-2] - 1)
        if step < 1:
            raise InvalidInput("these images are too small for a scattering transform: take another model")
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
