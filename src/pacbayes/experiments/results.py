"""The files of results: a line of JSON for each finished row, and what it was made on and by."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import torch

from pacbayes.errors import RunError
from pacbayes.files import write_atomically


def read_results(path: Path) -> list[dict[str, Any]]:
    """The finished rows of a result file; an unfinished last line is left out."""
    if not path.is_file():
        return []
    lines = path.read_text("utf-8").split("\n")[:-1]
    try:
        return [json.loads(line) for line in lines if line]
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}") from None


def append_result(results: Path, record: dict[str, Any]) -> Path:
    """Append a line to the experiment's file. One write, so that processes may append to the same file."""
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"{record['experiment']}.jsonl"
    # What a process that died has left of a line, which no reader counts, must not spoil the next one.
    torn = path.is_file() and not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0
    if torn:
        write_atomically(path, path.read_bytes().rpartition(b"\n")[0] + b"\n")
    with path.open("ab", buffering=0) as file:
        file.write(json.dumps(record).encode() + b"\n")
    return path


def device_name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU"


def commit() -> str:
    """The commit of the code that runs, with a plus where files differ from it.

    Where the code was copied, perhaps beside an older history, whoever copied it says in PACBAYES_COMMIT.
    """
    if said := os.environ.get("PACBAYES_COMMIT"):
        return said
    try:
        head, changes = (_git("rev-parse", "HEAD"), _git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head[:12] + ("+" if changes else "")


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
