"""Examples that the certified classifier gets wrong, as small pictures or as rows of features."""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass

import numpy as np
import torch

from pacbayes.data import Data
from pacbayes.networks import StochasticNetwork
from pacbayes.networks.votes import tally

_SHOWN = 12
_FEATURES = 6
_LARGEST_SIDE = 64


@dataclass(frozen=True)
class Mistake:
    index: int
    label: str
    answer: str
    """The wrong answer that is given most often."""
    share: float
    """Of the draws, how many are wrong."""
    picture: str
    """A data URI, for images."""
    features: tuple[str, ...]
    """The first few, for other examples."""


@dataclass(frozen=True)
class Mistakes:
    """The worst of the examples looked at, and how many are wrong in half of the draws at least."""

    worst: tuple[Mistake, ...]
    looked_at: int
    mostly_wrong: int
    draws: int
    source: str
    features: tuple[str, ...]
    """The names of those that are shown."""
    more_features: bool


@torch.no_grad()
def find_mistakes(net: StochasticNetwork, data: Data, source: str, *, draws: int, sampling: str) -> Mistakes:
    """The examples on which the most of a few drawn networks err."""
    votes = tally(net, data.x, sampling, draws, torch.Generator(net.mean.device).manual_seed(0))
    wrong = votes.clone()
    wrong[torch.arange(len(data)), data.y] = 0
    share = wrong.sum(1) / draws
    order = sorted(range(len(data)), key=lambda i: (-float(share[i]), i))
    names = class_names(data)
    worst = [
        Mistake(i, names[int(data.y[i])], names[int(wrong[i].argmax())], float(share[i]), *_shown(data.x[i].numpy()))
        for i in order[:_SHOWN]
        if share[i] > 0
    ]
    mostly = int((share >= 0.5).sum())
    more = not is_image(data.shape) and int(np.prod(data.shape)) > _FEATURES
    features = data.feature_names[:_FEATURES] or tuple(f"x[{i}]" for i in range(_FEATURES))
    return Mistakes(tuple(worst), len(data), mostly, draws, source, features, more)


def class_names(data: Data) -> list[str]:
    return list(data.class_names) or [f"class {y}" for y in range(data.classes)]


def is_image(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) > 1


def _shown(x: np.ndarray) -> tuple[str, tuple[str, ...]]:
    if not is_image(x.shape):
        return "", tuple(f"{value:.3g}" for value in x.ravel()[:_FEATURES])
    step = -(-max(x.shape[1:]) // _LARGEST_SIDE)
    x = x[:, ::step, ::step].astype(np.float64)
    # Inputs are standardised in ways of their own: each picture spans all the grey levels.
    low, high = x.min(), x.max()
    levels = np.rint(255 * (x - low) / max(high - low, 1e-12)).astype(np.uint8)
    return "data:image/png;base64," + base64.b64encode(png(levels)).decode(), ()


def png(levels: np.ndarray) -> bytes:
    """A PNG file of uint8 levels [channels, height, width], grey or RGB."""
    channels, height, width = levels.shape
    rows = levels.transpose(1, 2, 0).reshape(height, width * channels)
    # Each row begins with its filter: none.
    raw = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    pieces = ((b"IHDR", header), (b"IDAT", zlib.compress(raw, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in pieces
    )
