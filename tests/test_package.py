"""The package as users get it: the wheel, its import, and the examples in its documentation."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

import pacbayes

ROOT = Path(__file__).parents[1]
# It imports Triton, which is where a GPU is; its own tests run there.
NOT_HERE = {"pacbayes.__main__", "pacbayes.networks.gpu_draws"}
MODULES = sorted({"pacbayes", *(m.name for m in pkgutil.walk_packages(pacbayes.__path__, "pacbayes."))} - NOT_HERE)


def clean_environment() -> dict[str, str]:
    """Without anything that would let the source tree in."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PIP_REQUIRE_VIRTUALENV")
    return {name: value for name, value in os.environ.items() if name not in hidden} | {"OMP_NUM_THREADS": "1"}


def output_of(*command: object, cwd: Path) -> str:
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy, so that nothing is left in the source tree."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    output_of(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, tree, cwd=tree)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel alone; what it depends on is borrowed from this one."""
    place = tmp_path_factory.mktemp("installed")
    venv.create(place / "env", with_pip=False)
    python = place / "env" / "bin" / "python"
    output_of(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
        "--quiet",
        wheel,
        cwd=place,
    )
    (site,) = (place / "env" / "lib").glob("python*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place


def test_the_wheel_holds_every_file_of_the_package(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and path.suffix in (".py", ".typed", ".html") and "egg-info" not in str(path)
    }
    assert "pacbayes/py.typed" in wanted and "pacbayes/bounds/binary_kl.py" in wanted
    assert wanted <= held
    assert {name.split("/")[0] for name in held if ".dist-info" not in name} == {"pacbayes"}
    assert not [name for name in held if "test" in name]


def test_the_wheel_carries_its_license_and_its_command(wheel):
    archive = zipfile.ZipFile(wheel)
    texts = {name.split("/", 1)[1]: name for name in archive.namelist() if ".dist-info/" in name}
    assert any("LICENSE" in name for name in texts)
    assert "pacbayes = pacbayes.__main__:main" in archive.read(texts["entry_points.txt"]).decode()


def test_the_installed_wheel_is_imported_and_works(installed):
    program = """
import pacbayes as pb, torch
print(pb.__file__)
net = pb.stochastic(torch.nn.Linear(3, 2))
data = torch.randn(20, 3), torch.arange(20) % 2
pb.fit(net, data, epochs=1)
print(pb.certify(net, data, draws=50).versions["pacbayes"])
"""
    python = installed / "env" / "bin" / "python"
    file, version = output_of(python, "-c", program, cwd=installed).split()
    assert Path(file).is_relative_to(installed) and not Path(file).is_relative_to(ROOT)
    assert version in (ROOT / "pyproject.toml").read_text()


def test_the_installed_command(installed):
    for words in (["pacbayes"], ["python", "-m", "pacbayes"]):
        text = output_of(installed / "env" / "bin" / words[0], *words[1:], "--help", cwd=installed)
        assert "Usage:" in text and "certify" in text
    for name in ("train", "certify", "verify", "predict"):
        assert "Usage:" in output_of(installed / "env" / "bin" / "pacbayes", name, "--help", cwd=installed)


def test_importing_changes_nothing_and_loads_nothing_heavy():
    program = """
import random, sys, warnings
import numpy as np, torch
def state():
    return (
        torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate(), torch.get_default_dtype(),
        torch.get_num_threads(), torch.get_num_interop_threads(), torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision(), np.geterr(),
        list(warnings.filters),
    )
before = state()
import pacbayes
pacbayes.fit
assert state() == before
print([name for name in ("scipy", "sklearn", "matplotlib", "pooch", "jinja2", "typer", "rich") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=clean_environment() | {"PYTHONPATH": str(Path(pacbayes.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_what_is_public_is_there():
    for name in pacbayes.__all__:
        assert getattr(pacbayes, name) is not None
    assert list(pacbayes.__all__) == sorted(pacbayes.__all__)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_docstrings(name):
    module = importlib.import_module(name)
    names = {**vars(module), "torch": torch, "nn": nn, "pb": pacbayes}
    with torch.random.fork_rng():
        failed, _ = doctest.testmod(module, extraglobs=names, optionflags=doctest.ELLIPSIS)
    assert failed == 0


def test_names_are_those_of_a_package(tmp_path):
    """They come when they are asked for, and behave as if they had been there all along."""
    names = dir(pacbayes)
    assert {*pacbayes.__all__, "__version__"} <= set(names) and not {"Any", "find_spec"} & set(names)
    assert pacbayes.__version__ and pacbayes.fit is pacbayes.fit
    for name in ("nothing", "a.b", "cli.app", "_LAZY", "__wrapped__"):
        assert not hasattr(pacbayes, name)
    script = "import sys, pacbayes; hasattr(pacbayes, '__wrapped__'); print('torch' in sys.modules)"
    assert output_of(sys.executable, "-c", script, cwd=tmp_path) == "False\n"
    output_of(sys.executable, "-m", "doctest", pacbayes.__file__, cwd=tmp_path)
