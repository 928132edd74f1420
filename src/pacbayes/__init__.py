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
    if name == "__version__":
        return import_module("pacbayes.versions").versions()["pacbayes"]
    if name.isidentifier() and (name == "__all__" or not name.startswith("_")):
        if find_spec(f"pacbayes.{name}") is not None:
            return import_module(f"pacbayes.{name}")
        public = import_module("pacbayes.public")
        if hasattr(public, name):
            globals()[name] = found = getattr(public, name)  # and the next time it is there
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    helpers = {"Any", "TYPE_CHECKING", "find_spec", "import_module"}
    return sorted({*globals(), "__version__", *__getattr__("__all__")} - helpers)
