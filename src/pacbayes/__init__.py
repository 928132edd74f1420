"""Train a neural classifier and its guarantee together.

>>> import pacbayes as pb
>>> prior_data, bound_data = pb.split(pb.load("digits"), 0.5)
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pacbayes.public import *  # noqa: F403
    from pacbayes.public import __all__ as __all__


# What is public comes when it is asked for: PyTorch takes seconds to import.
def __getattr__(name: str) -> Any:
    if find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    public = import_module("pacbayes.public")
    if not hasattr(public, name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(public, name)  # and the next time it is there
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
