"""Signatures: made by the key's owner for this very run, and for nothing else."""

from __future__ import annotations

import json
import random
import shutil
import stat
import sys

import pytest
from mutations import mangled, mutated_json

from pacbayes.errors import InvalidInput, RunError
from pacbayes.report import write_report
from pacbayes.runs import (
    RunFolder,
    certify_run,
    certify_run_classes,
    new_key,
    sign_run,
    train_run,
    verification,
    verify_run,
)
from pacbayes.runs.check import FAILED, OPEN, PASSED
from pacbayes.runs.journal import read_journal


def signature(run: RunFolder, key=None) -> tuple[str, str]:
    (check,) = (check for check in verify_run(run, key=key) if check.name == "signature")
    return check.status, check.detail


def failed(run: RunFolder, key=None) -> set[str]:
    return {check.name for check in verify_run(run, key=key) if check.status == FAILED}


@pytest.fixture
def key(tmp_path):
    new_key(tmp_path / "key")
    return tmp_path / "key"


@pytest.fixture
def public(key):
    return key.with_name("key.pub")


def test_a_signed_run_passes_with_the_key_of_its_issuer(certified, key, public, tmp_path):
    sign_run(certified, key)
    assert signature(certified, public)[0] == PASSED and "every file of the run" in signature(certified, public)[1]
    assert failed(certified, public) == set()
    # Anybody can make a key: without one's own knowledge of whose it is, a signature says little.
    assert signature(certified)[0] == OPEN and failed(certified) == set()
    status, words = signature(certified, new_key(tmp_path / "other"))
    assert status == FAILED and "another key" in words


def test_a_signature_does_not_stand_for_classes_that_came_after_it(certified, key, public):
    sign_run(certified, key)
    certify_run_classes(certified, draws=300, seed=1)
    assert "signature" in failed(certified, public)
    sign_run(certified, key)
    assert "signature" not in failed(certified, public)


def test_only_its_owner_may_read_a_private_key(key, public):
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert b"PRIVATE" in key.read_bytes() and b"PRIVATE" not in public.read_bytes()


def test_keys_are_not_replaced(key, public):
    before = key.read_bytes(), public.read_bytes()
    with pytest.raises(InvalidInput, match="exists"):
        new_key(key)
    key.unlink()
    with pytest.raises(InvalidInput, match="exists"):
        new_key(key)
    assert public.read_bytes() == before[1] and not key.exists()


def test_a_private_key_does_not_look_like_a_public_one(tmp_path):
    with pytest.raises(InvalidInput, match="would be the private key"):
        new_key(tmp_path / "key.pub")
    assert not list(tmp_path.glob("*.pub*"))


def test_a_key_that_is_not_there_is_said_before_the_work(certified, key, tmp_path):
    for sign in (False, True):
        if sign:
            sign_run(certified, key)
        with pytest.raises(InvalidInput, match="Whoever signed the run has the public key"):
            next(verification(certified, key=tmp_path / "gone.pub"))
    with pytest.raises(InvalidInput, match="it is the private one"):
        next(verification(certified, key=key))


def test_a_run_that_is_not_signed(certified, public):
    assert "signature" not in {check.name for check in verify_run(certified)}
    assert failed(certified, public) == {"signature"}


def test_any_change_of_a_signed_run_is_found(certified, key, public):
    sign_run(certified, key)
    for path in sorted(certified.path.iterdir()):
        good = path.read_bytes()
        path.write_bytes(mangled(good, random.Random(path.name)))
        assert path.name in failed(certified, public)
        path.write_bytes(good)


def test_no_forger_can_mend_a_signature(certified, key, public, forge):
    """History and journal written anew agree with each other, and not with what was signed."""
    sign_run(certified, key)
    record = json.loads(certified.certificate_file.read_text())
    certified.certificate_file.write_text(json.dumps(record | {"time": "yesterday"}))
    forge(certified)
    assert failed(certified) == failed(certified, public) == {"signature"}


def test_the_signature_of_another_run_or_certificate(certified, key, public, tiny, tmp_path, forge):
    sign_run(certified, key)
    old = (certified.path / "signature.json").read_bytes()
    other = train_run(tiny(tmp_path / "data.npz", seed=1), tmp_path / "other")
    certify_run(other, draws=50, test_draws=2)
    sign_run(other, key)
    (other.path / "signature.json").write_bytes(old)
    assert "signature" in failed(other, public)
    certify_run(certified, draws=50, test_draws=2)
    assert not (certified.path / "signature.json").exists()
    (certified.path / "signature.json").write_bytes(old)
    assert failed(certified, public) == {"signature.json", "signature"}


def test_what_was_written_after_signing_is_said_not_to_be_signed(certified, key, public):
    sign_run(certified, key)
    write_report(certified)
    status, words = signature(certified, public)
    assert status == PASSED and "but report.html" in words
    sign_run(certified, key)
    assert "but" not in signature(certified, public)[1]
    assert [line.event for line in read_journal(certified).lines][-3:] == ["signed", "reported", "signed"]


def test_spoilt_signatures(certified, key, public, agree):
    """Mangled or mutated, with the journal made to agree: never passed, and no error but our own."""
    sign_run(certified, key)
    path, randomness = certified.path / "signature.json", random.Random("signature")
    good = path.read_bytes()
    for number in range(120):
        path.write_bytes((mangled, mutated_json)[number % 2](good, randomness))
        same = path.read_bytes().split() == good.split() or json_equal(path.read_bytes(), good)
        agree(certified)
        assert same or signature(certified, public)[0] == FAILED


def json_equal(a: bytes, b: bytes) -> bool:
    try:
        return json.loads(a) == json.loads(b)
    except ValueError:
        return False


def test_keys_of_the_wrong_kind(certified, key, public, tmp_path):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    other = ec.generate_private_key(ec.SECP256R1())
    locked = serialization.BestAvailableEncryption(b"secret")
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    files = {
        "curve": other.private_bytes(pem, pkcs8, serialization.NoEncryption()),
        "locked": ed25519.Ed25519PrivateKey.generate().private_bytes(pem, pkcs8, locked),
        "empty": b"",
        "public": public.read_bytes(),
        "noise": bytes(range(256)),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InvalidInput, match=name):
            sign_run(certified, tmp_path / name)
    with pytest.raises(InvalidInput, match="none"):
        sign_run(certified, tmp_path / "none")
    sign_run(certified, key)
    for name in ("curve", "locked", "empty", "noise"):
        with pytest.raises(InvalidInput, match=name):
            verify_run(certified, key=tmp_path / name)
    with pytest.raises(InvalidInput, match="private"):
        verify_run(certified, key=key)


def test_without_the_package_it_is_said_what_to_install(certified, key, public, monkeypatch, tmp_path):
    sign_run(certified, key)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for use in (
        lambda: sign_run(certified, key),
        lambda: new_key(tmp_path / "new"),
        lambda: verify_run(certified, key=public),
    ):
        with pytest.raises(InvalidInput, match=r"pip install 'pacbayes\[sign\]'"):
            use()
    # Whoever gives no key has all other checks, the hash of the signature's file among them.
    assert signature(certified)[0] == OPEN
    (certified.path / "signature.json").write_text("{}")
    assert "signature.json" in failed(certified)


def test_a_run_can_be_signed_in_a_copy(certified, key, public, tmp_path):
    copy = RunFolder(tmp_path / "copy")
    shutil.copytree(certified.path, copy.path)
    sign_run(copy, key)
    assert failed(copy, public) == set()
    with pytest.raises(RunError):
        sign_run(RunFolder(tmp_path / "nothing"), key)
