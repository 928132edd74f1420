"""The README's Python runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pacbayes import Certificate

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


BLOCKS = [
    (title, code)
    for title, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", README, re.S | re.M)
    for code in re.findall(r"```python\n(.*?)```", text, re.S)
]


@pytest.mark.parametrize(("title", "code"), BLOCKS, ids=[title for title, _ in BLOCKS])
def test_the_code_runs(title, code, tmp_path):
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "With probability at least 96.5 %" in done.stdout
    if title == "In Python":
        assert Certificate.load(tmp_path / "certificate.json").risk_bound < 0.1
