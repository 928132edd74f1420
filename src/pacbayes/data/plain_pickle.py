"""Reads the plain data in a pickle without running it.

A pickle is a program that may call anything. This reader walks its opcodes and follows only those that build
strings, numbers, lists, tuples and dicts; the few calls by which numpy stores an array are recognised by name
and noted down, never imported or made. Anything else is refused.
"""

import math
import pickletools
from dataclasses import dataclass
from typing import Any

import numpy as np

from pacbayes.errors import DataError

_IGNORE = {"PROTO", "FRAME"}
_LITERALS = (
    {"BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "SHORT_BINUNICODE"}
    # Python 2 strings: pickletools hands them over as latin-1 text.
    | {"BINSTRING", "SHORT_BINSTRING"}
    | {"SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"}
)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_FIXED_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_RECONSTRUCT = {"numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"}
_FROM_BUFFER = {"numpy.core.numeric _frombuffer", "numpy._core.numeric _frombuffer"}
_DTYPE = "numpy dtype"
_ENCODE = "_codecs encode"
_GLOBALS = _RECONSTRUCT | _FROM_BUFFER | {_DTYPE, _ENCODE, "numpy ndarray"}
_NUMBER_TYPES = {"u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8"}
# A published batch has some 50,000. Each may make an object of 64 bytes, so this bounds the memory.
_MAX_OPCODES = 1_000_000
_MARK = object()


@dataclass(frozen=True)
class _Global:
    name: str


@dataclass
class _Dtype:
    code: str
    order: str = "|"

    def is_number(self) -> bool:
        # Both come from the file and may be anything.
        return type(self.code) is str and self.code in _NUMBER_TYPES and self.order in ("|", "<", ">", "=")


@dataclass
class PlainArray:
    """A numpy array as the pickle describes it; ``to_numpy`` checks the description and gives the array."""

    shape: Any = None
    dtype: Any = None
    fortran: Any = False
    raw: Any = b""

    def to_numpy(self) -> np.ndarray:
        _require(isinstance(self.dtype, _Dtype) and self.dtype.is_number(), "an array not of numbers")
        _require(
            isinstance(self.shape, tuple) and all(type(n) is int and n >= 0 for n in self.shape),
            "an array of unknown shape",
        )
        _require(isinstance(self.raw, str | bytes | bytearray), "an array without bytes")
        # An honest shape is short, and no side is longer than the bytes: their product is of a number's usual size.
        _require(len(self.shape) <= 32 and all(n <= len(self.raw) for n in self.shape), "an array of unknown shape")
        dtype = np.dtype(self.dtype.order + self.dtype.code)
        size = dtype.itemsize * math.prod(self.shape)
        _require(len(self.raw) == size > 0, "an array whose size is not that of its bytes")
        try:
            raw = self.raw.encode("latin-1") if isinstance(self.raw, str) else self.raw
            return np.frombuffer(raw, dtype).reshape(self.shape, order="F" if self.fortran else "C")
        except ValueError as error:
            raise DataError(f"the pickle holds a corrupt array ({error})") from error


def read_plain(pickled: bytes) -> Any:
    """What the pickle holds: None, bool, int, str, bytes, list, tuple, dict with str keys, ``PlainArray``.

    Python 2 strings come as latin-1 ``str``. Raises ``DataError`` for anything that is not plain data.
    """
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    try:
        for position, (opcode, argument, _) in enumerate(pickletools.genops(pickled)):
            _require(position < _MAX_OPCODES, f"more than {_MAX_OPCODES} opcodes")
            if opcode.name == "STOP":
                _require(len(stack) == 1, "more than one object")
                return stack[0]
            _step(opcode.name, argument, stack, memo)
    # What malformed opcodes meet: an empty stack, an unknown memo, a value of another kind.
    except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
        raise DataError(f"the pickle is corrupt ({error})") from error
    raise DataError("the pickle is truncated")


def _step(name: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    """Follow one opcode. Nothing is copied: a small file cannot grow into a large object."""
    if name in _IGNORE:
        return
    if name in _LITERALS:
        stack.append(argument)
    elif name in _CONSTANTS:
        stack.append(_CONSTANTS[name])
    elif name in ("BINPUT", "LONG_BINPUT"):
        memo[argument] = stack[-1]
    elif name == "MEMOIZE":
        memo[len(memo)] = stack[-1]
    elif name in ("BINGET", "LONG_BINGET"):
        stack.append(memo[argument])
    elif name == "MARK":
        stack.append(_MARK)
    elif name == "EMPTY_LIST":
        stack.append([])
    elif name == "EMPTY_DICT":
        stack.append({})
    elif name in _FIXED_TUPLES:
        stack.append(tuple(reversed([stack.pop() for _ in range(_FIXED_TUPLES[name])])))
    elif name == "TUPLE":
        stack.append(tuple(_pop_to_mark(stack)))
    elif name in ("APPEND", "APPENDS"):
        items = [stack.pop()] if name == "APPEND" else _pop_to_mark(stack)
        _require(isinstance(stack[-1], list), "items for something that is no list")
        stack[-1].extend(items)
    elif name in ("SETITEM", "SETITEMS"):
        items = [stack.pop(), stack.pop()][::-1] if name == "SETITEM" else _pop_to_mark(stack)
        _require(isinstance(stack[-1], dict), "items for something that is no dict")
        stack[-1].update((_key(k), v) for k, v in zip(items[::2], items[1::2], strict=True))
    elif name == "GLOBAL":
        stack.append(_known(argument))
    elif name == "STACK_GLOBAL":
        attribute, module = stack.pop(), stack.pop()
        _require(type(module) is str and type(attribute) is str, "a name that is no text")
        stack.append(_known(f"{module} {attribute}"))
    elif name == "REDUCE":
        arguments, function = stack.pop(), stack.pop()
        stack.append(_call(function, arguments))
    elif name == "BUILD":
        state = stack.pop()
        _set_state(stack[-1], state)
    else:
        raise DataError(f"the pickle is refused: it holds more than plain data (opcode {name})")


def _call(function: Any, arguments: Any) -> Any:
    """The note taken in place of a call."""
    _require(isinstance(function, _Global) and isinstance(arguments, tuple), "a call of something unknown")
    if function.name in _RECONSTRUCT:
        return PlainArray()
    if function.name in _FROM_BUFFER:
        raw, dtype, shape, order = arguments
        return PlainArray(shape, dtype, order == "F", raw)
    if function.name == _DTYPE:
        return _Dtype(arguments[0])
    # Python 3 writes bytes for protocol 2 as the encoding of a latin-1 text.
    _require(function.name == _ENCODE and arguments[1:] == ("latin1",), f"a call of {function.name}")
    return arguments[0]


def _set_state(thing: Any, state: Any) -> None:
    _require(isinstance(thing, PlainArray | _Dtype), "a state for something that has none")
    if isinstance(thing, _Dtype):
        thing.order = state[1]
    else:
        _, thing.shape, thing.dtype, thing.fortran, thing.raw = state


def _known(name: str) -> _Global:
    if name not in _GLOBALS:
        raise DataError(f"the pickle is refused: it holds more than plain data ({name[:80]!r})")
    return _Global(name)


def _key(key: Any) -> str:
    _require(isinstance(key, str | bytes) and len(key) <= 100, "a dict key that is no short string")
    return key.decode("latin-1") if isinstance(key, bytes) else key


def _pop_to_mark(stack: list[Any]) -> list[Any]:
    items = []
    while (top := stack.pop()) is not _MARK:
        items.append(top)
    return items[::-1]


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise DataError(f"the pickle is refused: it holds {otherwise}")
