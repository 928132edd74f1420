"""The README's Python runs as it stands, and its numbers from the results are those of the results."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pacbayes import Certificate

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("title", ["In Python", "Your own model"])
def test_the_code_runs(title, tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", README.split(f"## {title}\n")[1].split("\n## ")[0], re.S)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "With probability at least 96.5 %" in done.stdout
    if title == "In Python":
        assert Certificate.load(tmp_path / "certificate.json").risk_bound < 0.1
    else:
        assert "trainable outside the KL: nothing" in done.stdout


def test_no_code_is_left_out():
    assert README.count("```python") == 2
