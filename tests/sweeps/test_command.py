"""``pacbayes sweep``: the example of the documentation, from the file to the page; and what is refused."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from rich.console import Console

from pacbayes import cli
from pacbayes.cli.sweep import _LiveTable
from pacbayes.sweeps import Progress, Specification, Trial

PAGE = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text("utf-8")
BLOCKS = dict(re.findall(r"^```(toml|sh)\n(.*?)^```$", PAGE, re.M | re.S)[:2])


@pytest.fixture
def main(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pacbayes", *map(str, words)])
        status = 0
        try:
            cli.main()
        except SystemExit as end:
            status = int(end.code or 0)
        return status, *capsys.readouterr()

    return run


def test_the_example_of_the_documentation(main, tmp_path):
    (tmp_path / "sweep.toml").write_text(BLOCKS["toml"])
    command = next(line for line in BLOCKS["sh"].splitlines() if line.startswith("pacbayes sweep "))
    status, out, err = main(*command.split()[1:], "--jobs", 2)
    assert status == 0, err
    assert err.count("Charged: 2 priors") == 1 and all(f"trial {number}: bound 0." in err for number in range(4))
    assert "With probability at least 96.5 %" in out and out.count("complete") == 4 and "Charged: 2 priors" in out
    assert (tmp_path / "SWEEP" / "sweep.html").is_file()
    (best,) = re.findall(r"Best: (\S+)\.", out)
    status, out, _ = main("verify", best)
    assert status == 0 and "chosen among 2, by config.toml, and charged" in out
    status, again, _ = main("sweep", "SWEEP")
    assert status == 0 and best in again


def test_the_search_of_the_documentation_is_one():
    _, search = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.M | re.S)
    sweep = Specification.parse(search.encode())
    assert sweep.kind == "search" and sweep.charge.priors == 3 and sweep.prune


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("sweep.toml",), "give a file with --out FOLDER"),
        (("folder", "--out", "x"), "give a file with --out FOLDER"),
        (("folder",), "not the folder of a sweep"),
        (("nothing.toml", "--out", "x"), "nothing.toml: no such file"),
        (("bad.toml", "--out", "x"), "bad.toml: a sweep needs a table"),
        (("far.toml", "--out", "x"), "far.npz"),
    ],
)
def test_what_is_refused_is_said_in_one_line(main, tmp_path, words, message):
    (tmp_path / "folder").mkdir()
    (tmp_path / "sweep.toml").write_text("[axes]\nseed = [0]")
    (tmp_path / "bad.toml").touch()
    (tmp_path / "far.toml").write_text("[axes]\nposterior.rate = [0.1]\n[base]\ndata = 'far.npz'")
    status, _, err = main("sweep", *words)
    assert status == 1 and message in err and err.count("error: ") == 1 and not (tmp_path / "x").exists()


def test_the_live_table(monkeypatch):
    console = Console(force_terminal=True, width=100, record=True)
    monkeypatch.setattr("pacbayes.cli.sweep.errors", console)
    sweep = Specification.parse(b"[axes]\nseed = [0, 1]\nposterior.rate = [0.1]")
    with _LiveTable(sweep, Path("mine")) as table:
        done = Progress(Trial(0, {"seed": 0, "posterior.rate": 0.1}, "complete", 0.25))
        running = Progress(Trial(1, {"seed": 1, "posterior.rate": 0.1}, bound=0.125), "posterior", 7)
        table([running, done])
    shown = console.export_text()
    assert "1 trials ended, 1 running" in shown and "posterior 7" in shown and "0.25" in shown
