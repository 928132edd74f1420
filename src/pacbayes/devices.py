"""Where to compute."""

from __future__ import annotations

import torch

from pacbayes.errors import InvalidInput


def device_named(name: str) -> torch.device:
    """A device that can be used."""
    try:
        device = torch.device(name)
        # Read back, which a device that computes nothing cannot.
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        raise InvalidInput(f"device {name!r} cannot be used: {str(error).splitlines()[0]}") from None
    return device
