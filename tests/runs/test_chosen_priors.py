"""A run that is one of several to choose among says so before it is trained, and all its certificates pay."""

from __future__ import annotations

import dataclasses

import pytest

from pacbayes.certificates import Certificate, holdout_bound
from pacbayes.certificates.evidence import Evidence
from pacbayes.errors import InvalidInput
from pacbayes.runs import RunFolder, certify_run, certify_run_classes, train_run, trained_network, verify_run
from pacbayes.runs.check import FAILED, PASSED


def checks(run: RunFolder) -> dict[str, str]:
    return {check.name: check.status for check in verify_run(run)}


@pytest.fixture
def one_of_six(tiny, data_file, tmp_path) -> RunFolder:
    return train_run(tiny(data_file(tmp_path / "data.npz"), priors=6), tmp_path / "run")


def test_its_certificates_pay(one_of_six):
    issued, evaluation = certify_run(one_of_six, draws=300, test_draws=2, seed=1)
    evidence = vars(issued.evidence())
    assert issued.priors == 6 and issued.confidence == 1 - (0.025 + 0.01)
    alone = Evidence(**{**evidence, "priors": 1, "delta": 0.025 / 6}).derived()
    assert issued.risk_bound == alone["risk_bound"] > Evidence(**{**evidence, "priors": 1}).derived()["risk_bound"]
    assert "chosen among" in str(issued)
    classes = certify_run_classes(one_of_six, draws=300, seed=1)
    assert classes.priors == 6 and classes.check() == []
    assert dataclasses.replace(classes, priors=1).check() == ["the bounds do not follow from the counts"]
    # The prior's own bound is one of six to choose from, too.
    failure = issued.delta + issued.mc_delta
    assert evaluation.holdout_bound == holdout_bound(*trained_network(one_of_six), delta=failure / 6, seed=1)
    found = checks(one_of_six)
    assert FAILED not in found.values() and found["priors"] == PASSED


def test_a_certificate_that_does_not_pay_is_found(one_of_six, agree):
    issued, _ = certify_run(one_of_six, draws=300, test_draws=2, seed=1)
    uncharged = {**vars(issued.evidence()), "priors": 1}
    record = {**vars(issued), **Evidence(**uncharged).derived(), "priors": 1}
    Certificate(**record).save(one_of_six.certificate_file)
    agree(one_of_six)
    assert {name for name, status in checks(one_of_six).items() if status == FAILED} == {"priors"}


def test_classes_that_do_not_pay_are_found(one_of_six, agree):
    certify_run(one_of_six, draws=300, test_draws=2, seed=1)
    issued = certify_run_classes(one_of_six, draws=300, seed=1)
    uncharged = dataclasses.replace(issued, priors=1)
    dataclasses.replace(uncharged, bounds=uncharged._recomputed()).save(one_of_six.path / "classes.json")
    agree(one_of_six)
    assert {name for name, status in checks(one_of_six).items() if status == FAILED} == {"classes"}


@pytest.mark.parametrize("priors", [0, -1, 2**60, 1.5, True])
def test_numbers_that_are_none(tiny, tmp_path, priors):
    with pytest.raises(InvalidInput, match="priors"):
        tiny(tmp_path, priors=priors)
