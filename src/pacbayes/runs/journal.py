"""The journal of a run: what wrote which file, with the file's hash; one line an event, chained.

The first line is chained to the end of the history, every other to the line before; each ends in its own hash. So a
changed byte in any file of the run is found, in the journal itself too, and every certificate issued stays on record.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pacbayes.errors import RunError
from pacbayes.files import in_shell, sha256, strict_json, write_atomically
from pacbayes.runs.folder import RunFolder

NAME = "journal.jsonl"
EVENTS = {
    "trained": ("config.toml", "data.json", "history.jsonl", "prior.safetensors", "posterior.safetensors"),
    "drawn": ("single.safetensors",),
    "certified": ("certificate.json",),
    "classes certified": ("classes.json",),
    "evaluated": ("evaluation.json",),
    "reported": ("report.html",),
    "signed": ("signature.json",),
}
"""The files that each event writes."""


def derived_files(*, single: bool) -> list[str]:
    """What goes when a certificate takes another's place: all that was made from that one, and the network that it was
    for, unless the new one is for a single network, which was written before it."""
    events = ("evaluated", "reported", "signed", *(() if single else ("drawn",)))
    return [name for event in events for name in EVENTS[event]]


@dataclass(frozen=True)
class Line:
    event: str
    wrote: dict[str, str]
    """The SHA-256 of each file written."""
    previous: str
    risk_bound: float | None = None
    """Of a certificate: so that all those issued can be seen, not only the one kept."""

    def content(self) -> dict[str, Any]:
        record = {"event": self.event, "wrote": self.wrote, "risk_bound": self.risk_bound, "previous": self.previous}
        return {name: value for name, value in record.items() if value is not None}

    @property
    def hash(self) -> str:
        return sha256(json.dumps(self.content()).encode())

    def text(self) -> str:
        return json.dumps({**self.content(), "sha256": self.hash}) + "\n"


@dataclass(frozen=True)
class Journal:
    lines: tuple[Line, ...]

    def files(self) -> dict[str, str]:
        """The present files and their hashes."""
        found: dict[str, str] = {}
        before = ""
        for line in self.lines:
            if line.event == "certified":
                gone = derived_files(single=before == "drawn")
                found = {name: value for name, value in found.items() if name not in gone}
            found |= line.wrote
            before = line.event
        return found

    def risk_bounds(self) -> list[float]:
        """Those of all certificates issued, in their order."""
        return [line.risk_bound for line in self.lines if line.risk_bound is not None]


def certificates_issued(run: RunFolder) -> int:
    """How many there have been, the present one among them; 1 where no journal says."""
    try:
        return max(1, len(read_journal(run).risk_bounds()))
    except RunError:
        return 1


def going_on(run: RunFolder) -> str:
    return f"It goes on with pacbayes train --resume --out {in_shell(run.path)}"


def read_journal(run: RunFolder) -> Journal:
    """The journal, if every line is what was written and follows from the one before."""
    if not (run.path / NAME).exists():
        if run.weights_file("posterior").exists():
            raise RunError(f"{run.path / NAME} is missing: it says what this run wrote, and cannot be made again")
        raise RunError(f"{run.path / NAME} is missing: the run is not finished. {going_on(run)}")
    content = run.read(NAME)
    *texts, rest = content.decode("utf-8", "replace").split("\n")
    lines: list[Line] = []
    for number, text in enumerate(texts, 1):
        line = _line(text)
        if line is None or line.text() != text + "\n":
            raise RunError(f"{NAME} is not what was written: line {number} does not have the hash that it states")
        if lines and line.previous != lines[-1].hash:
            raise RunError(f"{NAME} is not what was written: line {number} does not follow from the one before")
        if (line.event == "trained") != (not lines):
            raise RunError(f"{NAME} is not that of one run: line {number} is {line.event!r}")
        lines.append(line)
    if rest or not lines:
        raise RunError(f"{NAME} is not what was written: its end is missing")
    return Journal(tuple(lines))


def start_journal(run: RunFolder, history_end: str, posterior: bytes) -> None:
    """The first line, for a run whose training is over and whose posterior is about to be written."""
    written = {name: run.read(name) for name in EVENTS["trained"] if name != "posterior.safetensors"}
    written["posterior.safetensors"] = posterior
    line = Line("trained", {name: sha256(content) for name, content in written.items()}, history_end)
    if os.path.lexists(run.path / NAME):
        # Cut off before the posterior was there, or it has gone since: what was issued for it stays counted.
        if read_journal(run).lines[0] != line:
            raise RunError(f"{run.path / NAME} is that of another training: begin again in another folder")
        return
    write_atomically(run.path / NAME, line.text().encode())


def note(run: RunFolder, event: str, risk_bound: float | None = None, content: bytes | None = None) -> None:
    """Add a line for the files that the event has just written; or for one that it is about to write, its content."""
    journal = read_journal(run)
    wrote = {name: sha256(run.read(name) if content is None else content) for name in EVENTS[event]}
    line = Line(event, wrote, journal.lines[-1].hash, risk_bound)
    write_atomically(run.path / NAME, "".join(each.text() for each in (*journal.lines, line)).encode())


def singles_drawn(run: RunFolder) -> int:
    """How many single networks were drawn for certificates of this run."""
    return sum(line.event == "drawn" for line in read_journal(run).lines)


def forget_derived_files(run: RunFolder, *, single: bool) -> None:
    """Remove what goes with a certificate that has been replaced."""
    for name in derived_files(single=single):
        (run.path / name).unlink(missing_ok=True)


def check_files(run: RunFolder, names: Iterable[str]) -> None:
    """Refuse files that are not those in the journal."""
    recorded = read_journal(run).files()
    for name in names:
        if name not in recorded or sha256(run.read(name)) != recorded[name]:
            raise RunError(
                f"{run.path / name} is not the file that this run wrote: see 'pacbayes verify {in_shell(run.path)}'"
            )


def check_shown(run: RunFolder) -> None:
    """Refuse a run as :func:`check_certified` does, or other numbers beside its certificate than the journal's."""
    check_certified(run)
    check_files(run, [name for name in EVENTS["evaluated"] if os.path.lexists(run.path / name)])


def check_certified(run: RunFolder) -> None:
    """Refuse a trained run or a certificate, if there is one, that is not what the journal says."""
    issued = [name for event in ("certified", "classes certified") for name in EVENTS[event]]
    check_files(run, [*EVENTS["trained"], *(name for name in issued if os.path.lexists(run.path / name))])


def _line(text: str) -> Line | None:
    try:
        record = strict_json(text)
        del record["sha256"]
        line = Line(**record)
        bound = line.risk_bound
        whole = (
            set(line.wrote) == set(EVENTS[line.event])
            and all(type(value) is str for value in (*line.wrote.values(), line.previous))
            and ((type(bound) is float and 0 <= bound <= 1) if line.event == "certified" else bound is None)
        )
    except (ValueError, LookupError, TypeError):
        return None
    return line if whole else None
