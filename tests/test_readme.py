"""The README's Python runs as it stands, and its numbers from the results are those of the results."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pacbayes import Certificate
from pacbayes.experiments import read_results

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


BLOCKS = [
    (title, code)
    for title, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", README, re.S | re.M)
    for code in re.findall(r"```python\n(.*?)```", text, re.S)
]


@pytest.mark.parametrize(("title", "code"), BLOCKS, ids=[title for title, _ in BLOCKS])
def test_the_code_runs(title, code, tmp_path):
    if "import lightning" in code:
        pytest.importorskip("lightning", reason="an example for those who have it")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "With probability at least 96.5 %" in done.stdout
    if title == "In Python":
        assert Certificate.load(tmp_path / "certificate.json").risk_bound < 0.1


def test_the_table_of_results_is_that_of_the_results():
    records = read_results(ROOT / "results" / "mnist-data-free.jsonl")
    for record in (r for r in records if r["seed"] == 0):
        (line,) = re.findall(rf"^\| {record['objective']} \|.*$", README, re.M)
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        ours, paper = (cells[1], cells[2]) if record["method"] == "G" else (cells[3], cells[4])
        assert ours == f"{record['risk_bound']:.4f}".lstrip("0")
        assert paper == f"{record['paper']['risk_bound']:.4f}".lstrip("0")
