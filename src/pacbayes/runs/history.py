"""The history of a run: one line an epoch, each with the hash of the line before it.

The first line has the hash of ``config.toml`` and ``data.json``, the first line of the posterior the hash of
``prior.safetensors``. So no line can be changed, left out or put elsewhere afterwards without changing the last hash.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from pacbayes.errors import RunError
from pacbayes.files import sha256, strict_json
from pacbayes.runs.config import STAGES
from pacbayes.training import Epoch
from pacbayes.training.fit import is_epoch

# Those of an epoch have some 400 bytes; what JSON makes of a line may be thirty times as large.
_LONGEST_LINE = 2**16


def chain_start(config: bytes, data: bytes) -> str:
    """What the first line is chained to: the contents of config.toml and of data.json."""
    return sha256(f"{sha256(config)} {sha256(data)}".encode())


@dataclass
class HistoryWriter:
    """Writes lines, each chained to the one before."""

    file: TextIO
    end: str

    def write(self, record: Mapping[str, Any]) -> None:
        line = json.dumps({**record, "previous": self.end})
        self.file.write(line + "\n")
        self.file.flush()
        self.end = sha256(line.encode())


@dataclass
class Chain:
    """What a history says, once its chain has been followed to the end."""

    end: str
    """The hash of the last line."""
    epochs: dict[str, int] = field(default_factory=dict)
    """The number of lines of each stage."""
    prior_fingerprint: str = ""
    """Of the prior that the posterior's training began with."""


def read_chain(content: bytes, start: str) -> Chain:
    """Follow the chain from its start; a line that does not follow is named."""
    history = Chain(start)
    for number, line in enumerate(io.BytesIO(content), 1):
        if not line.endswith(b"\n"):
            break
        if fault := _follow(history, line[:-1]):
            raise RunError(f"history.jsonl is not what was written: line {number} {fault}")
    if not content.endswith(b"\n"):
        raise RunError("history.jsonl is not what was written: its end is missing")
    return history


def _follow(history: Chain, line: bytes) -> str:
    """Take one line in; what is wrong with it, in words, or nothing."""
    try:
        record = _record_in(line)
        stage, epoch, previous = (record[name] for name in ("stage", "epoch", "previous"))
        place = STAGES.index(stage)
    except (ValueError, LookupError, TypeError):
        return "is not an epoch of a stage"
    if previous != history.end:
        before = "the line before" if history.epochs else "config.toml and data.json"
        return f"does not follow from {before}"
    if any(STAGES.index(other) > place for other in history.epochs):
        return f"belongs to the stage {stage}, which was over"
    if type(epoch) is not int or epoch != history.epochs.get(stage, 0):
        return "is not the next epoch"
    first = stage == "posterior" and epoch == 0
    if ("prior_fingerprint" in record) != first:
        return "must name the prior" if first else "names a prior, and is not the posterior's first"
    if first:
        history.prior_fingerprint = str(record["prior_fingerprint"])
    history.epochs[stage] = epoch + 1
    history.end = sha256(line)
    return ""


def _record_in(line: bytes) -> Any:
    if len(line) > _LONGEST_LINE:
        raise ValueError
    return strict_json(line)


def read_epochs(content: bytes) -> dict[str, list[Epoch]]:
    """The epochs of each stage, in the stages' order; the first line that is none is named."""
    stages: dict[str, list[Epoch]] = {}
    for number, line in enumerate(io.BytesIO(content), 1):
        try:
            record = _record_in(line)
            stage = stages.setdefault(record.pop("stage"), [])
            for name in ("prior_fingerprint", "previous"):
                record.pop(name, None)
            stage.append(Epoch(**record))
            whole = stages.keys() <= set(STAGES) and is_epoch(stage[-1], len(stage) - 1)
        except (ValueError, TypeError, KeyError, AttributeError):
            whole = False
        if not whole:
            raise RunError(f"history.jsonl is damaged: line {number} is not an epoch of a stage")
    return {name: stages[name] for name in STAGES if name in stages}
