"""Random changes of images that keep their class: for the training of priors, a batch at a time, on its device."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from pacbayes.errors import InvalidInput

Change = Callable[[Tensor, float, torch.Generator], Tensor]


def augmented(x: Tensor, changes: list[tuple[Change, float]], generator: torch.Generator) -> Tensor:
    """Each image [n, channels, height, width] changed in ways of its own."""
    for change, size in changes:
        x = change(x, size, generator)
    return x


def parse_augmentation(text: str) -> list[tuple[Change, float]]:
    """The changes that a text names, such as ``"flip, shift 4, cutout 8"``; none for an empty one.

    - ``flip``: mirrored, left and right, every other time;
    - ``shift N``: moved by up to N pixels each way, the border mirrored;
    - ``cutout N``: a square of N by N pixels somewhere is set to 0;
    - ``affine N``: turned and sheared by up to N degrees, stretched by up to N per cent each way.
    """
    changes = []
    for words in (item.split() for item in text.split(",") if text):
        known = words[0] if words else ""
        try:
            size = float(words[1]) if known != "flip" else 0.0
            whole = known == "affine" or size == int(size)
            if known not in CHANGES or len(words) != (1 if known == "flip" else 2) or not (whole and 0 <= size <= 1000):
                raise ValueError
        except (ValueError, IndexError, OverflowError):
            raise InvalidInput(
                f'augmentation {text!r} is not a list of changes such as "flip, shift 4, cutout 8, affine 10"'
            ) from None
        changes.append((CHANGES[known], size))
    return changes


def check_size(shape: tuple[int, ...], text: str) -> None:
    """Refuse to move images [channels, height, width] further than they are large."""
    for change, size in parse_augmentation(text):
        if change is _shift and size >= min(shape[1:]):
            raise InvalidInput(f"images of {shape[1]} x {shape[2]} pixels cannot be moved by {size:g}: say less")


def mixed(x: Tensor, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """In this share of the images a rectangle from the image before, and how much of each image is its own (CutMix).

    The rectangle's area, before the border cuts it off, is uniform.
    """
    side = (1 - _uniform(x, generator)).sqrt()
    inside = _uniform(x, generator) < share
    for axis in (2, 3):
        extent = x.shape[axis]
        place = torch.arange(extent, device=x.device).view((-1, 1) if axis == 2 else (1, -1)) + 0.5
        inside = inside & ((place - extent * _uniform(x, generator)).abs() < extent * side / 2)
    return torch.where(inside, x.roll(1, 0), x), 1 - inside.to(x.dtype).mean((1, 2, 3))


def _flip(x: Tensor, size: float, generator: torch.Generator) -> Tensor:
    return torch.where(_uniform(x, generator) < 0.5, x.flip(-1), x)


def _shift(x: Tensor, size: float, generator: torch.Generator) -> Tensor:
    reach = int(size)
    n, _, height, width = x.shape
    padded = F.pad(x, (reach,) * 4, mode="reflect")
    start = (torch.rand(2, n, 1, generator=generator, device=x.device) * (2 * reach + 1)).long()
    rows, columns = (
        s + torch.arange(extent, device=x.device) for s, extent in zip(start, (height, width), strict=True)
    )
    examples = torch.arange(n, device=x.device)[:, None, None]
    # Indices around a slice put the sliced axis, the channels, last.
    return padded[examples, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _cutout(x: Tensor, size: float, generator: torch.Generator) -> Tensor:
    inside = torch.ones((), dtype=torch.bool, device=x.device)
    for axis in (2, 3):
        extent = x.shape[axis]
        place = torch.arange(extent, device=x.device).view((-1, 1) if axis == 2 else (1, -1))
        # The square may reach over the border, or the middle would be hidden more often.
        start = (_uniform(x, generator) * (extent + size - 1)).floor() - (size - 1)
        inside = inside & (place >= start) & (place < start + size)
    return x.masked_fill(inside, 0.0)


def _affine(x: Tensor, size: float, generator: torch.Generator) -> Tensor:
    n = len(x)
    turn, shear = (2 * torch.rand(2, n, generator=generator, device=x.device) - 1) * math.radians(size)
    stretch = 1 + (2 * torch.rand(2, n, generator=generator, device=x.device) - 1) * size / 100
    cos, sin = turn.cos(), turn.sin()
    first = torch.stack([cos * stretch[0], -sin * stretch[1] + shear.tan(), torch.zeros_like(turn)], 1)
    second = torch.stack([sin * stretch[0], cos * stretch[1], torch.zeros_like(turn)], 1)
    grid = F.affine_grid(torch.stack([first, second], 1).to(x.dtype), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, align_corners=False)


def _uniform(x: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(len(x), 1, 1, 1, generator=generator, device=x.device)


CHANGES: dict[str, Change] = {"flip": _flip, "shift": _shift, "cutout": _cutout, "affine": _affine}
