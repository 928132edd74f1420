"""Every example runs as it stands and ends in a certificate."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pacbayes

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_runs(name, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(pacbayes.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", EXAMPLES / f"{name}.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "With probability at least 9" in done.stdout and "failed" not in done.stdout


def test_all_are_in_the_list():
    table = (EXAMPLES / "README.md").read_text()
    assert len(NAMES) == 5 and all(f"| `{name}.py` |" in table for name in NAMES)
