"""Every example runs as it stands and ends in a certificate."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pacbayes

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
# Those that are for people who have another package.
OPTIONAL = {"lightning_loop": "lightning", "frozen_body torchvision": "torchvision", "frozen_body timm": "timm"}


@pytest.mark.slow
@pytest.mark.parametrize("words", sorted({*NAMES, *OPTIONAL}))
def test_it_runs(words, tmp_path):
    name, *arguments = words.split()
    package = OPTIONAL.get(words)
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed, and need not be")
    places = [str(Path(pacbayes.__file__).parents[1]), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"}
    warnings = [] if package else ["-W", "error"]
    command = [sys.executable, *warnings, EXAMPLES / f"{name}.py", *arguments]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "With probability at least 9" in done.stdout and "failed" not in done.stdout


def test_the_sweep_is_that_of_the_page():
    page = (EXAMPLES.parent / "docs" / "sweeps.md").read_text()
    assert f"```toml\n{(EXAMPLES / 'sweep.toml').read_text()}```" in page


def test_all_are_in_the_list():
    table = (EXAMPLES / "README.md").read_text()
    assert len(NAMES) == 7 and all(f"| `{name}.py` |" in table for name in NAMES)
