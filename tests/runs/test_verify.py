"""Verification: a good run passes, and whatever was changed in it is found by the check that should find it."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest

from pacbayes.certificates import Certificate
from pacbayes.certificates.certify import divergences
from pacbayes.certificates.evidence import Evidence
from pacbayes.errors import RunError
from pacbayes.files import sha256
from pacbayes.runs import RunFolder, certify_run, train_run, verify_run
from pacbayes.runs.check import FAILED, OPEN, PASSED


def statuses(run: RunFolder) -> dict[str, str]:
    return {check.name: check.status for check in verify_run(run)}


def failed(run: RunFolder) -> set[str]:
    return {name for name, status in statuses(run).items() if status == FAILED}


def edit(run: RunFolder, **changes: object) -> None:
    record = json.loads(run.certificate_file.read_text())
    run.certificate_file.write_text(json.dumps(record | changes))


def test_a_good_run_passes_every_check(certified):
    found = {check.name: check.status for check in verify_run(certified, recompute=True)}
    assert set(found.values()) == {PASSED}
    assert set(found) >= {
        "journal", "files", "issued", "history", "prior in history", "end of history", "record", "arithmetic",
        "prior fingerprint", "posterior fingerprint", "KL", "split", "bound data", "m", "Monte Carlo",
    }  # fmt: skip


def test_a_good_run_passes_for_every_limit_and_sampling(certified):
    for options in (
        {"limit": "one-sided"}, {"limit": "clopper-pearson"}, {"sampling": "shared", "draws": 5},
        {"delta": 0.1, "mc_delta": 0.3},
    ):  # fmt: skip
        certify_run(certified, **{"draws": 100, "test_draws": 2, **options})
        assert failed(certified) == set()


@pytest.mark.parametrize("which", ["prior", "posterior"])
@pytest.mark.parametrize("place", [0.0, 0.3, 0.6, 1.0])
def test_one_flipped_bit_in_the_weights(which, place, certified):
    file = certified.weights_file(which)
    content = bytearray(file.read_bytes())
    content[round(place * (len(content) - 1))] ^= 1
    file.write_bytes(content)
    assert f"{which} fingerprint" in failed(certified)


@pytest.mark.parametrize("which", ["prior", "posterior"])
def test_missing_or_truncated_weights(which, certified):
    file = certified.weights_file(which)
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    expected = {f"{which}.safetensors", f"{which} fingerprint", "KL"} | (
        {"prior in history"} if which == "prior" else set()
    )
    assert failed(certified) == expected
    file.unlink()
    assert failed(certified) == expected


def test_exchanged_weights(certified):
    shutil.copy(certified.weights_file("posterior"), certified.weights_file("prior"))
    assert failed(certified) == {"prior.safetensors", "prior fingerprint", "prior in history", "KL"}


NUMBERS = {
    "risk_bound": "arithmetic", "empirical_risk": "arithmetic", "empirical_risk_bound": "arithmetic", "kl": "KL",
    "penalty": "arithmetic", "m": "m", "delta": "arithmetic", "mc_delta": "arithmetic", "draws": "arithmetic",
    "confidence": "arithmetic", "errors": "arithmetic", "visits": "arithmetic",
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("way", [-1, 1])
def test_any_edited_number(name, way, certified):
    old = getattr(Certificate.load(certified.certificate_file), name)
    edit(certified, **{name: old + way if isinstance(old, int) else old * (1 + way * 1e-6)})
    assert NUMBERS[name] in failed(certified)


@pytest.mark.parametrize(
    ("name", "value", "check"),
    [
        ("prior_fingerprint", "0" * 64, "prior fingerprint"),
        ("posterior_fingerprint", "0" * 64, "posterior fingerprint"),
        ("bound_data_fingerprint", "0" * 64, "bound data"),
        ("limit", "one-sided", "arithmetic"),
        ("limit", "none", "arithmetic"),
        ("sampling", "shared", "arithmetic"),
        ("bound", "McAll", "arithmetic"),
        ("objective", None, "record"),
        ("seed", "7", "record"),
    ],
)
def test_any_edited_word(name, value, check, certified):
    edit(certified, **{name: value})
    assert check in failed(certified)


def test_a_smaller_kl_with_all_that_follows_from_it(certified, agree):
    good = Certificate.load(certified.certificate_file)
    counts = {f: getattr(good, f) for f in ("errors", "visits", "draws", "m", "delta", "mc_delta", "limit", "sampling")}
    for kl in (good.kl * (1 - 5e-10), good.kl * (1 - 1e-8), good.kl / 2, 0.0):
        forged = dataclasses.replace(good, kl=kl, **Evidence(**counts, kl=kl).derived())
        assert forged.check() == []
        forged.save(certified.certificate_file)
        agree(certified)
        assert failed(certified) == ({"KL"} if kl > 0.9 * good.kl else {"KL", "kept epoch"})


def test_a_larger_m_with_all_that_follows_from_it(certified, agree):
    good = Certificate.load(certified.certificate_file)
    counts = {
        f: getattr(good, f) for f in ("errors", "visits", "draws", "kl", "delta", "mc_delta", "limit", "sampling")
    }
    forged = dataclasses.replace(good, m=2 * good.m, **Evidence(**counts, m=2 * good.m).derived())
    forged.save(certified.certificate_file)
    agree(certified)
    assert failed(certified) == {"m"}


def test_the_certificate_of_another_run(certified, tiny, tmp_path):
    other = train_run(tiny(tmp_path / "data.npz", seed=1), tmp_path / "other")
    certify_run(other, draws=50, test_draws=2)
    shutil.copy(other.certificate_file, certified.certificate_file)
    assert {"prior fingerprint", "posterior fingerprint", "bound data"} <= failed(certified)


@pytest.mark.parametrize("change", ["one value", "one label", "order", "fewer", "classes"])
def test_changed_data(change, certified):
    file = certified.path.parent / "data.npz"
    arrays = dict(np.load(file))
    if change == "one value":
        arrays["x"][:, 0] += 1e-3
    elif change == "one label":
        arrays["y"] = (arrays["y"] + 1) % 3
    elif change == "order":
        arrays = {name: value[::-1] for name, value in arrays.items()}
    elif change == "fewer":
        arrays |= {"x": arrays["x"][:-10], "y": arrays["y"][:-10]}
    else:
        arrays["y"][0] = 5
    np.savez(file, **arrays)
    assert "bound data" in failed(certified)
    assert ("m" in failed(certified)) == (change == "fewer")
    assert "KL" not in failed(certified), "it is that of the two weight files"


def test_data_that_are_not_at_hand_are_said_to_be_unchecked(certified):
    (certified.path.parent / "data.npz").unlink()
    found = statuses(certified)
    assert found["data"] == OPEN and "m" not in found
    assert found["arithmetic"] == found["prior fingerprint"] == found["KL"] == PASSED
    edit(certified, errors=0)
    assert failed(certified) == {"certificate.json", "arithmetic"}


def test_data_that_are_there_but_spoilt_fail(certified):
    """Unlike data that are elsewhere, these are not those that were certified."""
    file = certified.path.parent / "data.npz"
    content = file.read_bytes()
    for spoilt in (content[:100], b"", b"no archive"):
        file.write_bytes(spoilt)
        assert failed(certified)


def test_an_edited_configuration(certified):
    text = certified.config_file.read_text()
    for old, new in (('model = "mlp"', 'model = "mlp-2"'), ("prior_fraction = 0.5", "prior_fraction = 0.4")):
        certified.config_file.write_text(text.replace(old, new))
        assert failed(certified)
    certified.config_file.write_text(text.replace("seed = 0", "seed = 1"))
    assert "bound data" in failed(certified)
    certified.config_file.write_text("seed = [")
    assert failed(certified)


def test_a_posterior_in_the_place_of_the_prior_contradicts_the_history(certified, forge):
    """All hashes are right, the KL is 0 as the files say, and the history has another one."""
    good = certified.certificate()
    shutil.copy(certified.weights_file("posterior"), certified.weights_file("prior"))
    with pytest.raises(RunError, match="not the prior that the posterior was trained from"):
        certified.network()
    forge(certified)
    kl, profile = divergences(certified.network())
    numbers = {"kl": kl, "profile_kl": profile if good.profile_kl is not None else None}
    follows = dataclasses.replace(good.evidence(), **numbers).derived()
    prior = sha256(certified.read("prior.safetensors"))
    dataclasses.replace(good, prior_fingerprint=prior, **numbers, **follows).save(certified.certificate_file)
    forge(certified)
    assert good.kl > 0.01 and failed(certified) == {"kept epoch"}


def test_no_certificate_no_pass(certified):
    certified.certificate_file.unlink()
    assert failed(certified) == {"certificate.json", "record"}
    for content in ("", "{}", "[1]", "\0"):
        certified.certificate_file.write_text(content)
        assert failed(certified) == {"certificate.json", "record"}


def test_a_forged_count_is_found_by_counting_again(certified, agree):
    """Every number that follows from the count is right: only fresh draws can tell."""
    certificate = Certificate.load(certified.certificate_file)
    forged = certificate.errors // 3 if certificate.errors > 100 else certificate.visits
    constants = {
        n: getattr(certificate, n) for n in ("visits", "draws", "kl", "m", "delta", "mc_delta", "limit", "sampling")
    }
    edit(certified, errors=forged, **Evidence(errors=forged, **constants).derived())
    agree(certified)
    assert failed(certified) == set()
    checks = {check.name: check.status for check in verify_run(certified, recompute=True)}
    assert checks["Monte Carlo"] == FAILED


def test_the_cells_of_another_number_of_classes_are_not_computed(everything, agree, monkeypatch):
    issued = everything.classes()
    more = dataclasses.replace(issued, m=[*issued.m, 0], visits=[*issued.visits, 0], counts=[[0] * 4] * 4)
    more.save(everything.path / "classes.json")
    agree(everything)
    monkeypatch.setattr("pacbayes.certificates.ClassCertificate.check", lambda self: pytest.fail("computed"))
    found = {check.name: check.detail for check in verify_run(everything) if check.status == FAILED}
    assert found == {"classes": "it is for 4 classes, and the data have 3"}
