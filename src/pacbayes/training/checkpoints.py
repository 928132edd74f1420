"""Where a stage stands, on disk: one safetensors file, written atomically, and the history beside it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pacbayes import processes
from pacbayes.errors import RunError
from pacbayes.files import strict_json, write_atomically


@dataclass
class Checkpoint:
    """The file of one stage; at most one write in ``every`` seconds (0: after each epoch). The first process writes."""

    path: Path
    every: float = 0.0
    _written: float = field(default=float("-inf"), init=False)

    def __post_init__(self) -> None:
        self.path = Path(self.path)

    def due(self) -> bool:
        """Whether the last write is long enough ago: what would be written need not be gathered before."""
        return processes.first() and time.monotonic() - self._written >= self.every

    def save(self, tensors: dict[str, Tensor], note: dict[str, Any]) -> None:
        """Write the tensors and a JSON note."""
        if not processes.first():
            return
        content = safetensors.torch.save(
            {name: t.detach().cpu().contiguous() for name, t in tensors.items()}, {"note": json.dumps(note)}
        )
        write_atomically(self.path, content)
        self._written = time.monotonic()

    def resume(self, of: dict[str, Any], restore: Callable[[dict[str, Tensor], dict[str, Any]], None]) -> None:
        """Have what was last saved restored, if anything was; the note's ``of`` says what it must be a training of."""
        if (saved := self.load()) is None:
            return
        tensors, note = saved
        try:
            if note["of"] != of:
                raise KeyError
            restore(tensors, note)
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError):
            raise RunError(f"{self.path} is not a checkpoint of this training: delete it to start again") from None

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """What was last saved, or None if nothing was."""
        if not os.path.lexists(self.path):
            return None
        # A pipe would be waited for, without end.
        if self.path.is_symlink() or not self.path.is_file():
            raise RunError(f"{self.path} is not a plain file: delete it to start the stage again")
        try:
            with safe_open(self.path, framework="pt") as file:
                note = strict_json(file.metadata()["note"])
                return {name: file.get_tensor(name) for name in file.keys()}, note  # noqa: SIM118
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise RunError(f"{self.path} is not a checkpoint ({error}): delete it to start the stage again") from None
