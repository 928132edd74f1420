"""The documentation: its code runs, what it names exists, its numbers are those of the results, and it is built."""

import importlib
import importlib.util
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import typer

import pacbayes
from pacbayes import Certificate, cli
from pacbayes.networks.architectures import ARCHITECTURES
from pacbayes.report import write_picture
from pacbayes.runs import Config, certify_run, train_run

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {path.stem: path.read_text("utf-8") for path in sorted(DOCS.glob("*.md"))}
BLOCKS = {name: re.findall(r"^```([^\n]*)\n(.*?)^```$", text, re.M | re.S) for name, text in PAGES.items()}
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(pacbayes.__file__).parents[1]), "OMP_NUM_THREADS": "1"}

# Python and shell are run; what begins with "# needs NAME", where that package is. TOML becomes the file that its first
# line names. In console blocks, commands have "$ " before them, and are only checked for their options: they take a
# GPU, data or time that not everybody has.
NEEDS, FILE = re.compile(r"# needs (\w+)\n"), re.compile(r"# (\w+\.toml)\n")
OPTIONAL = [
    pytest.param(NEEDS.match(code)[1], code, id=f"{name}-{NEEDS.match(code)[1]}")
    for name, blocks in BLOCKS.items()
    for kind, code in blocks
    if kind == "python" and NEEDS.match(code)
]


def test_every_page_is_there_and_has_its_place():
    pages = [
        "start", "certificate", "choose", "recipes", "paper", "api", "performance", "scaling", "sweeps", "records",
        "validity", "verify", "faq", "extend",
    ]  # fmt: skip
    assert sorted([*pages, "index"]) == sorted(PAGES)
    assert PAGES["index"].split("```{toctree}")[1].split()[1:-1] == pages


def test_every_block_is_of_a_kind_that_is_tested():
    kinds = {kind for blocks in BLOCKS.values() for kind, _ in blocks}
    assert kinds <= {"python", "sh", "toml", "console", "text", "{toctree}", "{eval-rst}"}
    assert all(text.count("\n```") == 2 * len(BLOCKS[name]) for name, text in PAGES.items())
    shown = [
        line for blocks in BLOCKS.values() for kind, code in blocks if kind == "text" for line in code.splitlines()
    ]
    assert not [line for line in shown if line.lstrip("$ ").startswith(("pacbayes ", "pip ", "torchrun "))]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run for the pages that speak of one and do not train it."""
    stages = {"pretraining": {"epochs": 3}, "prior_training": {"epochs": 0}, "posterior": {"epochs": 1}}
    run = train_run(Config().with_options({"model": "mlp", **stages}), tmp_path_factory.mktemp("finished") / "RUN")
    certify_run(run, draws=1000, test_draws=2, seed=1)
    return run.path


def is_here(package):
    return importlib.util.find_spec(package) is not None


def code_of(page):
    """What is run of a page. Python that needs another package runs by itself, below; shell where it stands."""
    for kind, code in BLOCKS[page]:
        needs = NEEDS.match(code)
        if kind in ("sh", "toml") and (needs is None or is_here(needs[1])) or (kind == "python" and needs is None):
            yield kind, code


@pytest.mark.parametrize("page", [page for page in PAGES if list(code_of(page))])
def test_its_code_runs(page, request, tmp_path, monkeypatch):
    # In the order of the page: what a block makes, the next ones see.
    monkeypatch.chdir(tmp_path)
    shell = "".join(code for kind, code in BLOCKS[page] if kind == "sh")
    if " RUN" in shell and "--out RUN" not in shell:
        shutil.copytree(request.getfixturevalue("finished"), "RUN")
    names = {"__name__": "__main__"}
    with torch.random.fork_rng():
        for number, (kind, code) in enumerate(code_of(page)):
            if kind == "python":
                exec(compile(code, f"{page}.md, block {number}", "exec"), names)
                continue
            if kind == "toml":
                Path(FILE.match(code)[1]).write_text(code)
                continue
            for line in NEEDS.sub("", code).splitlines():
                monkeypatch.setattr(sys, "argv", shlex.split(line, comments=True))
                assert sys.argv[0] == "pacbayes", line
                with pytest.raises(SystemExit) as end:
                    cli.main()
                assert not end.value.code, line


@pytest.mark.slow
@pytest.mark.parametrize(("package", "code"), OPTIONAL)
def test_code_that_needs_another_package_runs(package, code, tmp_path):
    if not is_here(package):
        pytest.skip(f"{package} is not installed, and need not be")
    environment = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join([ENVIRONMENT["PYTHONPATH"], *filter(None, sys.path)])}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def commands():
    """Every command of this package that the pages and the README show, whether it is run or not."""
    readme = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)
    for blocks in [*BLOCKS.values(), [("sh", code) for code in readme]]:
        for kind, code in blocks:
            for line in code.splitlines():
                if kind == "sh" or (kind == "console" and line.startswith("$ ")):
                    words = shlex.split(line.removeprefix("$ "), comments=True)
                    if words[:1] == ["pacbayes"]:
                        yield words[1:]
                    elif "-m" in words and words[words.index("-m") + 1] == "pacbayes":
                        yield words[words.index("-m") + 2 :]


def test_every_command_has_the_options_that_it_is_shown_with():
    shown = list(commands())
    assert len(shown) > 20
    group = typer.main.get_command(cli.app)
    for words in shown:
        with typer.Context(group) as context:
            name, command, rest = group.resolve_command(context, words)
            command.make_context(name, rest, parent=context).close()


def test_the_version_of_torch_is_that_of_the_constraints():
    (version,) = re.findall(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M)
    assert f"pip install torch=={version} " in PAGES["start"]


def test_what_the_paper_maps_to_exists():
    named = re.findall(r"`([\w/]+)\.py:(\w+)`", PAGES["paper"])
    assert len(named) > 30
    for file, name in named:
        assert hasattr(importlib.import_module("pacbayes." + file.replace("/", ".")), name), (file, name)


def test_every_network_with_a_name_is_described():
    rows = re.findall(
        r"^\| `([\w-]+)` \| (.+) \|$", PAGES["choose"].partition("## Network")[2].partition("\n## ")[0], re.M
    )
    assert dict(rows) == {name: architecture.about for name, architecture in ARCHITECTURES.items()}


def test_the_speeds_are_those_of_the_results():
    names = {"MNIST, 4 layers": "mnist-4", "CIFAR-10, 9 layers": "cifar10-9", "CIFAR-10, 15 layers": "cifar10-15"}
    records = map(json.loads, (ROOT / "results" / "speed.jsonl").read_text().splitlines())
    # The newest of each speed, as in results/README.md: a table may have some of the networks only.
    measured = {line["what"]: line["value"] for record in records for line in record["lines"]}
    rows = re.findall(
        r"^\| (.+ layers), [\d,]+ examples \| ([\d.]+) s \| [^|]+ \| ([\d.]+) s \| ([\d.]+) s \|",
        PAGES["performance"],
        re.M,
    )
    assert [name for name, *_ in rows] == list(names)
    for name, *shown in rows:
        whats = ("batch 128: an epoch", "batch 512: an epoch")
        values = [measured[f"{names[name]}, {what}"] for what in whats]
        values.append(measured[f"{names[name]}: 150000 independent draws"])
        for text, value in zip(shown, values, strict=True):
            assert float(text) == round(value, len(text.partition(".")[2]))


RECORDS = {
    "MNIST, the paper's 4 layers, data-free, from a random start": "MNIST data-free 4 layers",
    "MNIST, the paper's 4 layers, prior learnt on digits that a program draws": "MNIST data-free 4 layers (strokes)",
    "MNIST, any network, data-free": "MNIST data-free any network",
    "Fashion-MNIST, data-free": "Fashion-MNIST data-free",
    "MNIST, learnt prior, one network drawn from the posterior": "MNIST learnt one network",
    "Fashion-MNIST, learnt prior": "Fashion-MNIST learnt",
    "CIFAR-10, the paper's 9 layers, 50 %": "CIFAR-10 9 layers 50%",
    "CIFAR-10, the paper's 15 layers, 70 %": "CIFAR-10 15 layers 70%",
    "CIFAR-10, any network, learnt prior": "CIFAR-10 learnt any network (longer)",
    "CIFAR-10, data-free": "CIFAR-10 data-free",
}


def bounds_of(name):
    """Every number of a results file that is a bound, rounded up to four digits, by row and field.

    Where a row was run twice, the larger one is the one that counts.
    """
    rows = map(json.loads, (ROOT / "results" / f"{name}.jsonl").read_text().splitlines())
    fields = ("risk_bound", "holdout_bound", "holdout_mean")
    return {
        (row["row"], row["seed"], field): f"{math.ceil(10_000 * row[field]) / 10_000:.4f}".lstrip("0")
        for row in sorted(rows, key=lambda row: row["risk_bound"])
        for field in fields
        if row.get(field) is not None
    }


def test_the_records_of_the_readme_are_those_of_the_results():
    section = (ROOT / "README.md").read_text("utf-8").partition("## Past the paper")[2].partition("\n## ")[0]
    shown = re.findall(r"^\| (.+?) \| \.\d+ \| \*\*(\.\d+)\*\* \|$", section, re.M)
    bounds = bounds_of("records")
    assert len(shown) >= 8
    for name, bound in shown:
        assert bounds[RECORDS[name], 0, "risk_bound"] == bound, name


def test_the_numbers_of_the_page_of_records_are_among_the_results():
    bounds = {bound for name in ("records", "holdout", "ablations") for bound in bounds_of(name).values()}
    shown = re.findall(r"\*\*[^*]*?(\.\d{4})\*\*", PAGES["records"])
    assert len(shown) >= 8 and not set(shown) - bounds


def test_the_errors_are_those_of_the_package():
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    source = re.sub(r'"\s*\n\s*f?"', "", source)
    quoted = re.findall(r"^\*\*`(.*)`\*\*$", PAGES["faq"], re.M)
    assert len(quoted) >= 20
    for words in quoted:
        for piece in words.split("..."):
            assert piece.strip() in source, piece


def test_the_pictures_are_those_of_their_script():
    spec = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    for draw in (pictures.walk, pictures.examples):
        assert draw() == (DOCS / "pictures" / f"{draw.__name__}.svg").read_text("utf-8")


def test_the_picture_of_a_certificate_is_that_of_the_record_beside_it(tmp_path):
    certificate = Certificate.load(DOCS / "certificate.json")
    assert certificate.check() == []
    write_picture(certificate, tmp_path / "it.svg")
    assert (tmp_path / "it.svg").read_bytes() == (DOCS / "certificate.svg").read_bytes()


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
