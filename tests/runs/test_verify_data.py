"""Verification against the data: the split, a data-free prior, data that have moved, and the count made again."""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch
from scipy import stats

from pacbayes.certificates import certify
from pacbayes.certificates.audit import ERROR_RATE, allowance
from pacbayes.certificates.evidence import Evidence
from pacbayes.data import Data
from pacbayes.files import sha256, write_atomically
from pacbayes.runs import RunFolder, certify_run, certify_run_classes, train_run, verify_run
from pacbayes.runs.check import FAILED, OPEN, PASSED
from pacbayes.runs.data import training_data
from pacbayes.runs.history import HistoryWriter, chain_start
from pacbayes.runs.journal import note, start_journal
from pacbayes.training import Epoch


def found(run: RunFolder, **options) -> dict[str, tuple[str, str]]:
    return {check.name: (check.status, check.detail) for check in verify_run(run, **options)}


def test_a_place_for_the_data_hides_no_fault_of_the_folder(certified):
    (certified.path / "data.json").write_text("{}")
    for place in (None, str(certified.path.parent / "data.npz")):
        failed = {name for name, (status, _) in found(certified, data=place).items() if status == FAILED}
        assert {"data", "data.json"} <= failed


def test_the_split_is_made_again_from_the_seed(certified):
    status, detail = found(certified)["split"]
    assert status == PASSED and "30 examples for the prior, 30 for the bound" in detail and "seed 0" in detail


@pytest.mark.parametrize(("old", "new"), [("seed = 0", "seed = 1"), ("prior_fraction = 0.5", "prior_fraction = 0.4")])
def test_another_split_is_found(old, new, certified):
    text = certified.config_file.read_text()
    assert old in text
    certified.config_file.write_text(text.replace(old, new))
    assert found(certified)["split"][0] == FAILED


def test_parts_that_overlap_are_found(certified, monkeypatch):
    """Planted: the prior's part unshuffled, the bound's the shuffled tail."""
    from pacbayes.data import splits

    monkeypatch.setattr(
        "pacbayes.runs.verify_data.split_indices",
        lambda m, fraction, seed: (np.arange(round(m * fraction)), splits.permutation(m, seed)[round(m * fraction) :]),
    )
    status, detail = found(certified)["split"]
    assert status == FAILED and "overlap" in detail


def test_data_that_have_moved_are_found_where_one_says(certified, tmp_path):
    shutil.move(tmp_path / "data.npz", tmp_path / "elsewhere.npz")
    assert found(certified)["data"][0] == OPEN
    checks = found(certified, data=str(tmp_path / "elsewhere.npz"), recompute=True)
    assert {status for status, _ in checks.values()} == {PASSED}
    arrays = dict(np.load(tmp_path / "elsewhere.npz"))
    np.savez(tmp_path / "other.npz", **{**arrays, "x": arrays["x"] + 1})
    checks = found(certified, data=str(tmp_path / "other.npz"))
    assert checks["bound data"][0] == checks["split"][0] == FAILED


def test_verification_fetches_nothing(certified, monkeypatch, tmp_path):
    """A folder from anywhere cannot make us go to the network."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PACBAYES_DATA", raising=False)
    monkeypatch.setattr("pacbayes.data.catalogue.fetch", lambda *_: pytest.fail("a download"))
    certified.config_file.write_text(certified.config_file.read_text().replace("data.npz", "mnist"))
    assert found(certified)["data"][0] == OPEN


def test_a_run_from_a_machine_with_another_device(certified, agree):
    """The KL and the count are made on the processor, whatever the run was trained on."""
    certified.config_file.write_text(certified.config_file.read_text().replace('device = "cpu"', 'device = "cuda:77"'))
    checks = found(certified)
    assert "device" not in checks["history"][1]
    assert "cuda" not in checks["KL"][1]


def test_a_data_free_prior_is_the_initialisation(tiny, data_file, tmp_path, agree):
    config = tiny(data_file(tmp_path / "data.npz"), prior="data-free")
    run = train_run(config, tmp_path / "run")
    certify_run(run, draws=50, test_draws=2)
    assert found(run)["data-free prior"][0] == PASSED and found(run)["split"][0] == PASSED
    # A prior that has seen all the data, said to be data-free: everything else agrees.
    learnt = tiny(tmp_path / "data.npz", scaling="none")
    other = train_run(learnt, tmp_path / "other")
    net = other.network()
    data = training_data(config)
    rebuilt = hand_made(tmp_path / "forged", config, data.bound, net)
    checks = found(rebuilt)
    assert {name for name, (status, _) in checks.items() if status == FAILED} == {"data-free prior"}
    certificate = rebuilt.certificate()
    replace(certificate, versions={"torch": "1.0"}).save(rebuilt.certificate_file)
    agree(rebuilt)
    status, words = found(rebuilt)["data-free prior"]
    assert status == FAILED and "try 1.0" in words, "whoever forges a prior can write any version"


def test_no_divergence_hides_in_the_rounding_of_an_initialisation(tiny, data_file, tmp_path):
    """Each prior mean within what another machine's rounding is allowed, but all of them towards the posterior."""
    config = tiny(data_file(tmp_path / "data.npz"), prior="data-free", prior_variance=1e-8)
    net = train_run(config, tmp_path / "run").network()
    with torch.no_grad():
        net.mean.copy_(net.prior_mean + 9e-6)
        net.rho.copy_(net.prior_rho)
        net.prior_mean.copy_(net.mean)
    net.note_fixed()  # who forges it takes its digest, too
    forged = hand_made(tmp_path / "forged", config, training_data(config).bound, net)
    status, words = found(forged)["data-free prior"]
    assert status == FAILED and "from the initialisation itself" in words


def test_a_record_of_another_loss_is_none_of_a_run(certified, agree):
    issued = certified.certificate()
    counts = vars(issued.evidence()) | {"unit": 2**20, "errors": 0}
    dataclasses.replace(issued, loss="0-1 error", **counts, **Evidence(**counts).derived()).save(
        certified.certificate_file
    )
    agree(certified)
    assert found(certified, recompute=True)["Monte Carlo"][0] == FAILED


@pytest.mark.parametrize("change", ["no divergence", "no errors", "more examples"])
def test_classes_that_were_made_up_are_found(change, certified, agree):
    certify_run(certified, draws=2000, test_draws=2, seed=1)
    issued = certify_run_classes(certified, draws=2000, seed=1)
    assert FAILED not in {status for status, _ in found(certified, recompute=True).values()}
    forged = {
        "no divergence": {"profile_kl": 0.0},
        "no errors": {"counts": [[0] * 3] * 3, "visits": [10**8 * size for size in issued.m]},
        "more examples": {"m": [1000] * 3, "visits": [2000] * 3},
    }[change]
    made_up = dataclasses.replace(issued, **forged)
    dataclasses.replace(made_up, bounds=made_up._recomputed()).save(certified.path / "classes.json")
    agree(certified)
    failed = {name for name, (status, _) in found(certified, recompute=True).items() if status == FAILED}
    assert failed and failed <= {"classes", "count of classes"}


def hand_made(path, config, bound: Data, net) -> RunFolder:
    """A finished and certified run around this network, without its training."""
    run = RunFolder.create(path, config, training_data(config))
    write_atomically(run.weights_file("prior"), safetensors.torch.save(net.state("prior")))
    with run.history_file.open("w") as file:
        history = HistoryWriter(file, chain_start(run.read("config.toml"), run.read("data.json")))
        for stage, settings in config.stages().items():
            for epoch in range(settings.epochs):
                first = stage == "posterior" and epoch == 0
                prior = {"prior_fingerprint": sha256(run.read("prior.safetensors"))} if first else {}
                kl = net.kl().item()
                line = Epoch(epoch, 0.01, 0.1, 0.1, kl, 0.1, 0.2, kept=epoch, kept_bound=0.2)
                history.write({"stage": stage, **prior, **line.record()})
    content = safetensors.torch.save(net.state("posterior"))
    start_journal(run, history.end, content)
    write_atomically(run.weights_file("posterior"), content)
    certificate = certify(net, bound, draws=20)
    certificate.save(run.certificate_file)
    note(run, "certified", certificate.risk_bound)
    return run


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 20, 300, 150_000])
@pytest.mark.parametrize("p", [1e-5, 0.01, 0.3, 0.5, 0.9, 1.0])
def test_a_right_count_is_called_wrong_as_seldom_as_stated(n, p):
    """By the exact law of two binomial counts, summed over all that the one can be."""
    low, high = (int(stats.binom.ppf(q, n, p)) for q in (1e-12, 1 - 1e-12))
    first = np.arange(max(low, 0), high + 1)
    wrong = 0.0
    for count, weight in zip(first, stats.binom.pmf(first, n, p), strict=True):
        # The counts that are too far up: the smallest of them by bisection, for the allowance grows slower than they.
        bad = _first_too_far(int(count), n)
        wrong += 2 * weight * float(stats.binom.sf(bad - 1, n, p))
    assert wrong <= ERROR_RATE


def _first_too_far(count: int, n: int) -> int:
    low, high = count, n + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if middle - count > allowance(count, middle) else (middle + 1, high)
    return low


def test_the_allowance_finds_what_matters():
    """A risk of 3 % said to be 2.5 %, at the usual number of visits."""
    assert allowance(4500, 3750) < 4500 - 3750
