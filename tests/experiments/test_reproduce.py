"""Experiments as files: what a row is configured to, how rows are run, resumed and shown."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pacbayes.certificates.wording import rounded_up
from pacbayes.errors import InvalidInput, RunError
from pacbayes.experiments import experiments, read_results, referred, reproduce, write_tables
from pacbayes.experiments.results import append_result
from pacbayes.experiments.speed import Speed, save_speed
from pacbayes.experiments.tables import headline_table
from pacbayes.runs import RunFolder, verify_run
from pacbayes.runs.check import Check

FIELDS = {
    "experiment", "row", "method", "objective", "schedule", "seed", "m", "kl", "penalty", "empirical_risk",
    "empirical_risk_bound", "risk_bound", "test_error", "test_error_sd", "draws", "delta", "mc_delta",
    "train_seconds", "certify_seconds", "device", "versions", "commit", "paper",
}  # fmt: skip


@pytest.fixture
def tiny(tmp_path, tiny_text):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "tiny.toml").write_text(tiny_text)
    return experiments(tmp_path / "files")["tiny"]


def run(tiny, tmp_path, rows=("G invKL", "S lbd"), **options):
    configured = [tiny.configured(row, "paper", 0, "cpu") for row in rows]
    reproduce(configured, tmp_path / "work", tmp_path, say=lambda _: None, **options)
    return read_results(tmp_path / "tiny.jsonl")


def test_a_row_takes_base_then_schedule_then_its_own_values(tiny):
    posterior = tiny.configured("S lbd", "paper", 7, "cpu").config.posterior
    assert (posterior.momentum, posterior.schedule, posterior.method) == (0.5, "2@0.005, 1@0.0001", "S")
    assert (posterior.objective, posterior.kappa) == ("lbd", 0.5)
    assert tiny.configured("S lbd", "paper", 7, "cpu").config.seed == 7
    assert tiny.configured("G invKL", "short", 0, "cpu").config.posterior.epochs == 1
    with pytest.raises(InvalidInput, match="no row"):
        tiny.configured("G", "paper", 0, "cpu")
    with pytest.raises(InvalidInput, match="unknown schedule"):
        tiny.configured("G invKL", "long", 0, "cpu")


@pytest.mark.parametrize("concurrent", [1, 2])
def test_finished_rows_are_appended_with_their_provenance(tiny, tmp_path, concurrent):
    records = run(tiny, tmp_path, concurrent=concurrent)
    assert {r["row"] for r in records} == {"G invKL", "S lbd"}
    for record in records:
        assert record.keys() >= FIELDS
        assert record["m"] == 1437 and record["draws"] == 200 and record["seed"] == 0
    assert records == run(tiny, tmp_path), "a finished row is not run again"


def test_a_result_of_another_configuration_does_not_count_as_done(tiny, tmp_path):
    run(tiny, tmp_path, rows=["G invKL"])
    other = tiny.configured("G invKL", "paper", 0, "cpu").with_options({"prior_variance": 0.002})
    reproduce([other], tmp_path / "work", tmp_path, say=lambda _: None)
    first, second = read_results(tmp_path / "tiny.jsonl")
    assert second["config"] == first["config"] | {"prior_variance": 0.002}
    assert first["kl"] != second["kl"]


def test_a_setting_that_came_later_was_at_its_default(tiny, tmp_path):
    """Also within a stage: what the record does not name does not make its row run again."""
    [record] = run(tiny, tmp_path, rows=["G invKL"])
    assert record["config"]["posterior"].pop("estimator") == "auto"
    assert record["config"].pop("held_back") == 0.0
    (tmp_path / "tiny.jsonl").write_text(json.dumps(record) + "\n")
    assert run(tiny, tmp_path, rows=["G invKL"]) == [record]
    record["config"]["posterior"]["kappa"] = 0.25
    (tmp_path / "tiny.jsonl").write_text(json.dumps(record) + "\n")
    assert len(run(tiny, tmp_path, rows=["G invKL"])) == 2


def test_a_result_without_a_configuration_is_what_it_is_called(tiny, tmp_path):
    [record] = run(tiny, tmp_path, rows=["G invKL"])
    del record["config"], record["asked"]
    row = tiny.configured("G invKL", "paper", 0, "cpu")
    for change, runs in (({}, 1), ({"device": "another"}, 2), ({"seed": 1}, 2)):
        (tmp_path / "tiny.jsonl").write_text(json.dumps({**record, **change}) + "\n")
        said: list[str] = []
        reproduce([row], tmp_path / "work", tmp_path, say=said.append)
        assert len(read_results(tmp_path / "tiny.jsonl")) == runs
        assert ("has its result already" if runs == 1 else "are of other settings or devices") in said[0]


def test_rows_that_share_a_device_are_what_they_are_alone(tiny, tmp_path):
    together = {r["row"]: r for r in run(tiny, tmp_path / "a", concurrent=2)}
    alone = {r["row"]: r for r in run(tiny, tmp_path / "b", concurrent=1)}
    for row, record in alone.items():
        for name in ("kl", "errors", "risk_bound", "test_error"):
            assert record[name] == together[row][name]


def test_a_row_that_was_cut_off_goes_on_and_its_folder_verifies(tiny, tmp_path):
    whole = run(tiny, tmp_path / "whole", rows=["G invKL"])[0]

    def stop(line: str) -> None:
        raise KeyboardInterrupt

    configured = [tiny.configured("G invKL", "paper", 0, "cpu")]
    with pytest.raises(KeyboardInterrupt):
        reproduce(configured, tmp_path / "work", tmp_path, say=stop)
    assert read_results(tmp_path / "tiny.jsonl") == []
    (folder,) = (tmp_path / "work" / "tiny").iterdir()
    folder.with_name(f"{folder.name}.seconds").write_text("100\n")  # as if that process had trained so long
    resumed = run(tiny, tmp_path, rows=["G invKL"])[0]
    assert 100 < resumed["train_seconds"] < 160 and whole["train_seconds"] < 60
    assert (resumed["kl"], resumed["errors"]) == (whole["kl"], whole["errors"])
    assert {check.status for check in verify_run(RunFolder.open(folder), recompute=True)} == {"passed"}


def test_a_row_that_was_killed_while_its_folder_was_made_goes_on(tiny, tmp_path):
    whole = run(tiny, tmp_path / "whole", rows=["G invKL"])[0]
    (folder,) = (path for path in (tmp_path / "whole" / "work" / "tiny").iterdir() if path.is_dir())
    (tmp_path / "work" / "tiny" / folder.name).mkdir(parents=True)
    assert run(tiny, tmp_path, rows=["G invKL"])[0]["errors"] == whole["errors"]


def test_a_grid_is_every_combination(tmp_path, tiny_text):
    (tmp_path / "grid.toml").write_text(
        tiny_text[: tiny_text.index("[[rows]]")]
        + '[grid]\n"posterior.method" = ["S", "G"]\n"posterior.kappa" = [0.5, 2.0]\nprior_variance = [0.01]\n'
    )
    grid = experiments(tmp_path)["grid"]
    assert grid.rows == tuple(f"{m} kappa {k} prior_variance 0.01" for m in "SG" for k in ("0.5", "2"))
    row = grid.configured("S kappa 2 prior_variance 0.01", "short", 0, "cpu")
    assert (row.config.posterior.method, row.config.posterior.kappa, row.config.prior_variance) == ("S", 2.0, 0.01)
    assert (row.draws, row.test_draws, row.config.posterior.epochs) == (200, 3, 1)


def test_an_unfinished_last_line_of_the_results_is_left_out(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps({"row": "a"}) + "\n" + '{"row": "b", "ris')
    assert read_results(path) == [{"row": "a"}]
    append_result(tmp_path, {"experiment": "results", "row": "c"})
    assert [record["row"] for record in read_results(path)] == ["a", "c"]


def test_the_page_shows_ours_beside_the_papers_and_what_was_not_run(tiny, tmp_path):
    record = run(tiny, tmp_path, rows=["G invKL"])[0]
    text = write_tables({"tiny": tiny}, tmp_path).read_text()
    assert f"{math.ceil(10_000 * record['risk_bound']) / 10_000:.4f}".lstrip("0") + " / .5000" in text
    assert "| S lbd | not run |" in text


def test_the_projects_own_files_are_right():
    """Each row of each file is a valid configuration with both schedules."""
    folder = Path(__file__).parents[2] / "experiments"
    for experiment in experiments(folder).values():
        for row in experiment.rows:
            for schedule in ("paper", "short"):
                if experiment.kind in ("training", "records", "holdout"):
                    assert experiment.configured(row, schedule, 0, "cpu").config.posterior.delta == 0.025


def test_the_projects_page_is_made_from_its_result_files(tmp_path):
    """results/README.md is not written by hand: made again, it is the same."""
    root = Path(__file__).parents[2]
    for path in (root / "results").glob("*.jsonl"):
        shutil.copy(path, tmp_path)
    written = write_tables(experiments(root / "experiments"), tmp_path)
    page = written.read_text()
    assert page == (root / "results" / "README.md").read_text()
    table_3 = next(part for part in page.split("\n\n") if part.startswith("| data, network, prior"))
    # The README leaves out which row it was.
    cells = [line.split(" | ") for line in table_3.splitlines()]
    assert (
        "\n".join(" | ".join(c for i, c in enumerate(row) if i != 2) for row in cells)
        in (root / "README.md").read_text()
    )


RECORDS = """
title = "Small records"
source = "a test"
kind = "records"
[base]
data = "digits"
pretraining = { epochs = 0 }
prior_training = { epochs = 0 }
[[rows]]
row = "last layer"
paper = { published = 0.5, bar = 0.4 }
test_draws = 3
certificate = { bound = "best", sampling = "exact", delta = 0.035 }
model = "mlp"
drawn = "last"
priors = 10
ordinary = { epochs = 2, rate = 0.1 }
posterior = { epochs = 1 }
[[rows]]
row = "of another day"
paper = { published = 0.3, bar = 0.2 }
"""


def test_a_record_has_a_protocol_and_a_certificate_of_its_own(tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "small.toml").write_text(RECORDS)
    known = experiments(tmp_path / "files")
    for seed in (0, 1):
        row = known["small"].configured("last layer", "paper", seed, "cpu")
        assert row.schedule == "record" and row.config.ordinary.epochs == 2 and row.config.priors == 10
        reproduce([row], tmp_path / "work", tmp_path, say=lambda _: None)
    records = read_results(tmp_path / "small.jsonl")
    assert [r["seed"] for r in records] == [0, 1]
    for record in records:
        assert record["sampling"] == "exact" and record["delta"] == 0.035 and record["mc_delta"] == 0
        assert record["bound"] == "best" and record["priors"] == 10 and record["risk_bound"] < 0.4
        assert record["verification"]["passed"] > 10 and "failed" not in record["verification"]
    page = write_tables(known, tmp_path).read_text()
    assert page.count("| last layer | .5000 | .4000 | ") == 2 and "96.5 %" in page
    assert "| of another day | .3000 | .2000 | not run |" in page
    for path in (path for path in (tmp_path / "work" / "small").iterdir() if path.is_dir()):
        assert not [check for check in verify_run(RunFolder(path)) if check.status == "failed"]


def test_a_record_without_a_bar_is_refused(tmp_path):
    (tmp_path / "small.toml").write_text(RECORDS.replace(", bar = 0.2", ""))
    with pytest.raises(InvalidInput, match="bar"):
        experiments(tmp_path)


def test_a_row_whose_name_cannot_be_asked_for_is_refused(tmp_path):
    (tmp_path / "small.toml").write_text(RECORDS.replace('row = "of another day"', 'row = "of another day, later"'))
    with pytest.raises(InvalidInput, match="comma"):
        experiments(tmp_path)


def test_a_row_that_fails_verification_does_not_count(tiny, tmp_path, monkeypatch):
    checks = [Check("arithmetic", "failed", "one and one are three")]
    monkeypatch.setattr("pacbayes.experiments.runner.verify_run", lambda run: checks)
    said: list[str] = []
    with pytest.raises(RunError, match="1 of the rows failed: tiny, G invKL$"):
        row = tiny.configured("G invKL", "paper", 0, "cpu")
        reproduce([row], tmp_path / "work", tmp_path, say=said.append)
    assert "fails verification: arithmetic: one and one are three" in said[-1]
    assert not (tmp_path / "tiny.jsonl").exists()


def test_a_row_that_fails_does_not_stop_the_others(tiny, tmp_path):
    """The first row's rate is far too high; the second is run, and the error comes at the end."""
    bad, good = (tiny.configured(row, "paper", 0, "cpu") for row in ("G invKL", "S lbd"))
    posterior = replace(bad.config.posterior, schedule="3@1e30")
    bad = replace(bad, config=replace(bad.config, posterior=posterior))
    said: list[str] = []
    with pytest.raises(RunError, match="1 of the rows failed: tiny, G invKL$"):
        reproduce([bad, good], tmp_path / "work", tmp_path, say=said.append)
    assert [r["row"] for r in read_results(tmp_path / "tiny.jsonl")] == ["S lbd"]
    (failed,) = [line for line in said if line.startswith("failed: ")]
    assert failed.startswith("failed: tiny, G invKL: posterior, epoch 0")


def test_a_long_stage_says_how_long_it_will_take(tiny, tmp_path):
    row = tiny.configured("G invKL", "paper", 0, "cpu").with_options({"posterior": {"schedule": "30@0.005"}})
    said: list[str] = []
    reproduce([row], tmp_path / "work", tmp_path, say=said.append)
    stages = [line for line in said if "posterior" in line]
    assert [line.split("posterior ")[1].split(",")[0] for line in stages] == [f"{n}/30" for n in (2, 6, 12, 18, 24, 30)]
    assert all("min left" in line for line in stages[:-1]) and "left" not in stages[-1]


HOLDOUT = """
title = "Small posteriors and their priors"
source = "a test"
kind = "holdout"
test_draws = 3
draws = 2000
[base]
data = "digits"
model = "mlp"
pretraining = { epochs = 1 }
prior_training = { epochs = 0 }
posterior = { epochs = 1 }
[grid]
prior_fraction = [0.1, 0.5]
"""


def test_a_posterior_stands_beside_the_holdout_bound_of_its_prior(tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "small.toml").write_text(HOLDOUT)
    known = experiments(tmp_path / "files")
    row = known["small"].configured("prior_fraction 0.1", "short", 0, "cpu")
    reproduce([row], tmp_path / "work", tmp_path, say=lambda _: None)
    (record,) = read_results(tmp_path / "small.jsonl")
    assert record["schedule"] == "record" and record["m"] == 1293
    page = write_tables(known, tmp_path).read_text()
    assert record["holdout_mean"] < record["holdout_bound"]
    names = ("risk_bound", "holdout_mean", "holdout_bound")
    shown = (f"{math.ceil(10_000 * record[name]) / 10_000:.4f}".lstrip("0") for name in names)
    assert f"| prior_fraction 0.1 | 0 | {' | '.join(shown)} | " in page
    assert "| prior_fraction 0.5 | not run |" in page


def test_the_page_has_the_newest_speeds_of_each_device(tmp_path):
    for value in (2.0, 3.0):
        save_speed([Speed("an epoch", value, "s", "start-up 1 s")], "cpu", 1.0, 9.0, tmp_path)
    page = write_tables({}, tmp_path).read_text()
    assert "## speed: CPU" in page and "| an epoch | 3 s | start-up 1 s |" in page and "2 s" not in page


def test_a_newer_table_of_some_speeds_hides_those_alone(tmp_path):
    save_speed([Speed("an epoch", 1.0, "s", "elsewhere")], "cpu", 1.0, 9.0, tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_text(path.read_text().replace('"CPU"', '"GPU"'))
    save_speed([Speed("an epoch", 2.0, "s", "old"), Speed("draws", 5.0, "s", "")], "cpu", 1.0, 9.0, tmp_path)
    save_speed([Speed("an epoch", 3.0, "s", "new")], "cpu", 1.0, 9.0, tmp_path)
    page = write_tables({}, tmp_path).read_text()
    shown = ("| an epoch | 3 s | new |", "| draws | 5 s |", "| an epoch | 1 s | elsewhere |")
    assert [page.count(line) for line in shown] == [1, 1, 1] and "old" not in page.partition("## speed")[2]


def test_another_certificate_is_another_result(tiny, tmp_path):
    row = tiny.configured("G invKL", "paper", 0, "cpu")
    for draws in (row.draws, row.draws, 3000):
        reproduce([replace(row, draws=draws)], tmp_path / "work", tmp_path, say=lambda _: None)
    assert [record["draws"] for record in read_results(tmp_path / "tiny.jsonl")] == [row.draws, 3000]


def test_the_rows_of_table_3_are_those_that_it_shows():
    """Each is run by one command, and the page shows no other."""
    root = Path(__file__).parents[2]
    known = experiments(root / "experiments")
    table = headline_table(known["headline"], known, root / "results")
    for name in known["headline"].rows:
        of, row = referred(known, known["headline"], name)
        schedule = known["headline"].entry(name)["of"].get("schedule", "paper")
        line = next(line for line in table.splitlines() if line.startswith(f"| {name} |"))
        records = [r for r in read_results(root / "results" / f"{of.name}.jsonl") if r["row"] == row]
        bounds = {rounded_up(r["risk_bound"], 4)[1:] for r in records if (r["schedule"], r["seed"]) == (schedule, 0)}
        assert f"**{min(bounds)}** | {row}" in line
