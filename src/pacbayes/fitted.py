"""Transformers of scikit-learn that were fitted before they were given: by data that nobody knows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted


def holds_a_fitted_one(transformer: Any) -> bool:
    """Whether a transformer, as it was cloned, is fitted all the same, or a part of it is."""
    return any(_is_fitted(part, held) for part, held in _parts(transformer))


def _parts(value: Any) -> Iterator[tuple[Any, bool]]:
    """A transformer, its parts, and what functions among them hold; each with whether a function holds it."""
    waiting: list[tuple[Any, bool]] = [(value, False)]
    seen = set()
    while waiting:
        part, held = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part, held
        inside: list[Any] = []
        if isinstance(part, BaseEstimator):
            waiting += [(value, held) for value in part.get_params(deep=False).values()]
        elif isinstance(part, MethodType):
            inside = [part.__self__, part.__func__]
        elif isinstance(part, partial):
            inside = [part.func, *part.args, *part.keywords.values()]
        elif isinstance(part, FunctionType):
            cells = [cell.cell_contents for cell in part.__closure__ or () if cell != CellType()]
            inside = [*cells, *(part.__defaults__ or ()), *(part.__kwdefaults__ or {}).values()]
        elif isinstance(part, list | tuple):
            waiting += [(value, held) for value in part]
        elif isinstance(part, dict):
            waiting += [(value, held) for value in part.values()]
        elif callable(part) and not isinstance(part, type):
            inside = list(getattr(part, "__dict__", {}).values())
        waiting += [(value, True) for value in inside]


def _is_fitted(part: Any, held: bool) -> bool:
    """Whether this is an estimator that has been fitted: held by a function, or one that does not let itself be cloned.

    One made of others is as fitted as these.
    """
    if isinstance(part, FrozenEstimator):
        return True
    fresh = not held and getattr(type(part), "__sklearn_clone__", None) is BaseEstimator.__sklearn_clone__
    if not isinstance(part, BaseEstimator) or fresh or not get_tags(part).requires_fit:
        return False
    if any(isinstance(inner, BaseEstimator) for inner in part.get_params().values()):
        return False
    try:
        check_is_fitted(part)
    except NotFittedError:
        return False
    return True
