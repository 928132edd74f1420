"""Digits that nobody wrote: lines of a pen, bent, slanted and thickened at random, in the manner of MNIST's.

A prior may be learnt from them and is then free of any data set. Everything is drawn from the raw output of Philox by
sums, products and roots, which are the same on every machine, and so are the pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pacbayes.data.splits import permutation

Array = npt.NDArray[np.float32]
Pen = list[tuple[float, float]]

# For each digit its usual forms, each of one stroke or more: (across, down) in the unit square. A point that comes
# twice is a corner.
_SEVEN: Pen = [(0.2, 0.07), (0.5, 0.06), (0.8, 0.06), (0.8, 0.06), (0.64, 0.4), (0.52, 0.7), (0.45, 0.97)]
_ONE: Pen = [(0.35, 0.22), (0.52, 0.03), (0.52, 0.03), (0.52, 0.5), (0.52, 0.97)]
_HEAD: Pen = [
    (0.74, 0.26),
    (0.64, 0.44),
    (0.42, 0.5),
    (0.24, 0.38),
    (0.24, 0.18),
    (0.42, 0.04),
    (0.64, 0.06),
    (0.74, 0.26),
]
FORMS: list[list[list[Pen]]] = [
    [
        [[(0.5, 0.02), (0.3, 0.1), (0.18, 0.35), (0.18, 0.65), (0.3, 0.9), (0.5, 0.98), (0.7, 0.9), (0.82, 0.65),
          (0.82, 0.35), (0.7, 0.1), (0.5, 0.02)]],
    ],
    [
        [[(0.5, 0.03), (0.5, 0.35), (0.5, 0.65), (0.5, 0.97)]],
        [_ONE],
        [_ONE, [(0.3, 0.97), (0.72, 0.97)]],
    ],
    [
        [[(0.2, 0.25), (0.3, 0.08), (0.5, 0.02), (0.72, 0.1), (0.78, 0.28), (0.66, 0.5), (0.42, 0.74), (0.2, 0.95),
          (0.2, 0.95), (0.5, 0.95), (0.82, 0.94)]],
        [[(0.2, 0.22), (0.35, 0.06), (0.55, 0.03), (0.72, 0.14), (0.74, 0.34), (0.6, 0.62), (0.4, 0.85), (0.2, 0.95),
          (0.13, 0.86), (0.28, 0.79), (0.5, 0.88), (0.85, 0.96)]],
    ],
    [
        [[(0.22, 0.12), (0.42, 0.02), (0.66, 0.05), (0.76, 0.2), (0.66, 0.38), (0.42, 0.47), (0.42, 0.47), (0.68, 0.53),
          (0.8, 0.7), (0.7, 0.9), (0.46, 0.98), (0.2, 0.88)]],
    ],
    [
        [[(0.25, 0.03), (0.22, 0.3), (0.2, 0.52), (0.2, 0.52), (0.5, 0.52), (0.82, 0.5)],
         [(0.7, 0.1), (0.67, 0.5), (0.66, 0.97)]],
        [[(0.6, 0.03), (0.38, 0.32), (0.14, 0.6), (0.14, 0.6), (0.5, 0.6), (0.86, 0.6)],
         [(0.62, 0.03), (0.62, 0.5), (0.62, 0.97)]],
    ],
    [
        [[(0.8, 0.04), (0.55, 0.04), (0.3, 0.05), (0.3, 0.05), (0.27, 0.25), (0.24, 0.45), (0.24, 0.45), (0.5, 0.38),
          (0.74, 0.5), (0.78, 0.72), (0.62, 0.92), (0.38, 0.98), (0.18, 0.88)]],
    ],
    [
        [[(0.66, 0.03), (0.42, 0.2), (0.27, 0.48), (0.22, 0.74), (0.34, 0.95), (0.58, 0.98), (0.76, 0.82), (0.7, 0.6),
          (0.48, 0.54), (0.27, 0.7)]],
    ],
    [
        [_SEVEN],
        [_SEVEN, [(0.36, 0.5), (0.74, 0.5)]],
    ],
    [
        [[(0.72, 0.12), (0.5, 0.02), (0.28, 0.14), (0.32, 0.34), (0.5, 0.48), (0.74, 0.66), (0.74, 0.88), (0.5, 0.98),
          (0.26, 0.88), (0.26, 0.66), (0.5, 0.48), (0.7, 0.32), (0.72, 0.12)]],
    ],
    [
        [[*_HEAD, (0.74, 0.26), (0.72, 0.6), (0.64, 0.97)]],
        [[*_HEAD, (0.76, 0.55), (0.68, 0.84), (0.46, 0.97), (0.24, 0.9)]],
    ],
]  # fmt: skip

SIZE = 28
_BOX = 20  # MNIST's digits fill a box of so many pixels, with their centre of mass in the middle of the image
_PIECES = 3  # straight pieces from each point to the next
_TOGETHER = 250


def read_strokes(paths: Sequence[Path], shape: tuple[int, ...], *, test: bool) -> tuple[np.ndarray, np.ndarray]:
    """Pixels 0 to 255, uint8 of ``shape``, and labels, uint8: each digit as often, each of its forms as often."""
    random = _Random(1 if test else 0)
    images, labels = [], []
    for digit, forms in enumerate(FORMS):
        for number, form in enumerate(forms):
            count = (shape[0] // len(FORMS) + number) // len(forms)
            for start in range(0, count, _TOGETHER):
                images.append(_drawn(form, min(_TOGETHER, count - start), random))
            labels.append(np.full(count, digit, dtype=np.uint8))
    order = permutation(shape[0], 2 + test)
    return np.concatenate(images)[order].reshape(shape), np.concatenate(labels)[order]


class _Random:
    def __init__(self, seed: int):
        self.source = np.random.Philox(seed)

    def __call__(self, *shape: int) -> Array:
        """Uniform on [-1, 1]."""
        raw = np.asarray(self.source.random_raw(int(np.prod(shape)))) >> np.uint64(40)
        return (raw.astype(np.float32) * np.float32(2.0**-23) - 1).reshape(shape)


def _drawn(form: list[Pen], n: int, random: _Random) -> np.ndarray:
    """n images of one form, uint8 [n, 28, 28]."""
    # Each point of the pen's way a little elsewhere; the whole narrowed, slanted and turned.
    narrow, slant, turn = 0.95 + 0.3 * random(n, 1), 0.15 + 0.25 * random(n, 1), 0.1 * random(n, 1)
    cos, sin = (1 - turn * turn) / (1 + turn * turn), 2 * turn / (1 + turn * turn)
    starts, ends = [], []
    for pen in form:
        shake = 0.045 * (random(n, len(pen), 2) + random(n, len(pen), 2))
        shaken = np.array(pen, dtype=np.float32) - np.float32(0.5) + shake
        x, y = shaken[..., 0] * narrow, shaken[..., 1]
        x = x - slant * y
        way = _smooth(np.stack([cos * x - sin * y, sin * x + cos * y], -1))
        starts.append(way[:, :-1])
        ends.append(way[:, 1:])
    start, end = np.concatenate(starts, 1), np.concatenate(ends, 1)
    thickness = 1.4 + 0.6 * random(n, 1, 1)
    extent = np.maximum(start, end).max(1, keepdims=True) - np.minimum(start, end).min(1, keepdims=True)
    size = (_BOX - 2 * thickness) / extent.max(2, keepdims=True)
    along = end - start
    length = np.sqrt((along * along).sum(2, keepdims=True))
    centre = ((start + end) / 2 * length).sum(1, keepdims=True) / length.sum(1, keepdims=True)
    start, along = (start - centre) * size + (SIZE - 1) / 2, along * size
    images = np.zeros((n, SIZE, SIZE), dtype=np.uint8)
    for row in range(SIZE):
        ink = thickness[:, 0] + 0.5 - _distance(start, along, row)
        images[:, row] = np.floor(255 * np.clip(ink, 0, 1) + np.float32(0.5)).astype(np.uint8)
    return images


def _smooth(points: Array) -> Array:
    """Catmull and Rom's curve through the points, [n, k, 2], in straight pieces."""
    ahead = np.concatenate([points[:, :1], points, points[:, -1:]], 1)
    a, b, c, d = (ahead[:, i : ahead.shape[1] - 3 + i] for i in range(4))
    pieces = [
        b + (t * (c - a) + t * t * (2 * a - 5 * b + 4 * c - d) + t * t * t * (3 * b - a - 3 * c + d)) / 2
        for t in (np.float32(i) / _PIECES for i in range(_PIECES))
    ]
    return np.concatenate([np.stack(pieces, 2).reshape(len(points), -1, 2), points[:, -1:]], 1)


def _distance(start: Array, along: Array, row: int) -> Array:
    """How far each pixel of a row is from the nearest piece of the line, [n, 28]."""
    x = np.arange(SIZE, dtype=np.float32)[None, :, None] - start[:, None, :, 0]
    y = np.float32(row) - start[:, None, :, 1]
    dx, dy = along[:, None, :, 0], along[:, None, :, 1]
    # The nearest point of a piece is between its ends.
    place = np.clip((x * dx + y * dy) / (dx * dx + dy * dy + np.float32(1e-9)), 0, 1)
    x, y = x - place * dx, y - place * dy
    nearest: Array = np.sqrt((x * x + y * y).min(2))
    return nearest
