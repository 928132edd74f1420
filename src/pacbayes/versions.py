"""What a result was made with."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import torch


def versions() -> dict[str, str]:
    try:
        own = version("pacbayes")
    except PackageNotFoundError:
        own = "not installed"
    return {
        "pacbayes": own,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }
