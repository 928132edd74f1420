"""Where to compute."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch

from pacbayes.errors import InvalidInput, first_line


@cache
def has_triton() -> bool:
    """Whether kernels can be made for a GPU: PyTorch comes without Triton on some systems, such as Windows."""
    return find_spec("triton") is not None


def device_named(name: str) -> torch.device:
    """A device that can be used."""
    try:
        device = torch.device(name)
        # Read back, which a device that computes nothing cannot; in float64, which sums and bounds need.
        torch.zeros(1, dtype=torch.float64, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError, ImportError) as error:
        raise InvalidInput(f"device {name!r} cannot be used: {first_line(error)}") from None
    return device
