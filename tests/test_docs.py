"""The documentation: its code runs, what it names exists, its numbers are those of the results, and it is built."""

import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pacbayes
from pacbayes.certificates.certificate import percent

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {path.stem: path.read_text("utf-8") for path in sorted(DOCS.glob("*.md"))}
BLOCKS = {name: re.findall(r"^```(python|sh)\n(.*?)^```$", text, re.M | re.S) for name, text in PAGES.items()}
# Commands of this page run in order, with its Python; verify.md shows keys and folders that are the reader's.
SHELL = {"start"}
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(pacbayes.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


def test_every_page_is_there_and_has_its_place():
    pages = [
        "start", "certificate", "choose", "recipes", "paper", "api", "performance", "scaling", "sweeps", "validity",
        "verify", "faq",
    ]  # fmt: skip
    assert sorted([*pages, "index"]) == sorted(PAGES)
    assert PAGES["index"].split("```{toctree}")[1].split()[1:-1] == pages


@pytest.mark.parametrize("page", [name for name, found in BLOCKS.items() if any(kind == "python" for kind, _ in found)])
def test_its_code_runs(page, tmp_path):
    # In one process: what a block makes, the next ones see.
    steps = []
    for kind, code in BLOCKS[page]:
        if kind == "python":
            steps.append(code)
        elif page in SHELL:
            steps += [f"run({line.split()[1:]!r})" for line in code.splitlines()]
            assert all(line.startswith("pacbayes ") for line in code.splitlines())
    program = (
        "import subprocess, sys\n"
        "def run(words): subprocess.run([sys.executable, '-m', 'pacbayes', *words], check=True)\n"
        + "\n".join(steps)
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    if page in SHELL:
        assert (tmp_path / "RUN" / "report.html").is_file() and "failed" not in done.stdout


def test_what_the_paper_maps_to_exists():
    named = re.findall(r"`([\w/]+)\.py:(\w+)`", PAGES["paper"])
    assert len(named) > 30
    for file, name in named:
        assert hasattr(importlib.import_module("pacbayes." + file.replace("/", ".")), name), (file, name)


def test_the_numbers_are_those_of_the_results():
    rows = re.findall(
        r"^\| (mnist-[\w-]+) \| ([^|]+) \| ([^|]+) \| (\d+) s \| ([\d.]+) s \|$", PAGES["performance"], re.M
    )
    assert len(rows) == 4
    for experiment, row, bound, training, certifying in rows:
        records = map(json.loads, (ROOT / "results" / f"{experiment}.jsonl").read_text().splitlines())
        shown = [
            (percent(r["risk_bound"]), f"{r['train_seconds']:.0f}", f"{r['certify_seconds']:.1f}")
            for r in records
            if r["row"] == row and r["seed"] == 0
        ]
        assert (bound, training, certifying) in shown


def test_the_errors_are_those_of_the_package():
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    source = re.sub(r'"\s*\n\s*f?"', "", source)
    quoted = re.findall(r"^\*\*`(.*)`\*\*$", PAGES["faq"], re.M)
    assert len(quoted) >= 7
    for words in quoted:
        for piece in re.split(r"\.\.\.|: |\(BatchNorm2d\)|, the smallest is 1", words):
            assert piece.strip() in source, piece


def test_the_pictures_are_those_of_their_script():
    spec = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    for draw in (pictures.walk, pictures.examples):
        assert draw() == (DOCS / "pictures" / f"{draw.__name__}.svg").read_text("utf-8")


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("furo")
    pytest.importorskip("myst_parser")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", DOCS, tmp_path / "site"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    reference = (tmp_path / "site" / "api.html").read_text("utf-8")
    missing = [name for name in pacbayes.__all__ if name != "bounds" and f'id="pacbayes.{name}"' not in reference]
    assert not missing
