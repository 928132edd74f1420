"""A detached Ed25519 signature: an issuer stands by a certificate.

What is signed is the last hash of the journal, and through it every file of the run and the whole history.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pacbayes.errors import InvalidInput, RunError
from pacbayes.files import in_shell, strict_json, write_atomically, write_json
from pacbayes.runs.folder import RunFolder
from pacbayes.runs.journal import EVENTS, Journal, note, read_journal

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

(NAME,) = EVENTS["signed"]
_LARGEST_KEY = 2**16


def new_key(path: Path) -> Path:
    """Make a private key, which its owner alone may read, and beside it the public one; the path of that, ``.pub``."""
    _need_cryptography()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if not path.name:
        raise InvalidInput(f"{path} is a folder: name a file for the key")
    if path.suffix == ".pub":
        raise InvalidInput(f"{path} would be the private key: .pub is for the public one, name it without")
    public = path.with_name(f"{path.name}.pub")
    for file in (path, public):
        if os.path.lexists(file):
            raise InvalidInput(f"{file} exists: name another file, keys are not replaced")
    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    # Made with its mode: there is no moment in which others could open it.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as private:
        private.write(secret)
    write_atomically(
        public,
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
    )
    return public


def sign_run(run: RunFolder, key_file: Path) -> str:
    """Write ``signature.json`` into the run folder; the public key, in hex. Verify the run first."""
    key = _private_key(key_file)
    public = _hex_of(key.public_key())
    with run.alone():
        journal = read_journal(run)
        last = journal.lines[-1].hash
        record = {
            "line": len(journal.lines),
            "sha256": last,
            "public_key": public,
            "signature": key.sign(_message(last)).hex(),
        }
        write_json(run.path / NAME, record)
        note(run, "signed")
    return public


def check_signature(run: RunFolder, journal: Journal, key_file: Path | None) -> tuple[bool, str]:
    """Whether the key is known to be the issuer's, and what was signed; RunError where the signature does not hold.

    Without a key file the signature is checked with the key that it states, which may be anybody's.
    """
    record = _record(run)
    public = record["public_key"]
    if key_file is not None and _hex_of(public_key(key_file)) != public:
        raise RunError(f"{NAME} was made with another key, {public[:16]}")
    line = record["line"]
    if not 1 <= line <= len(journal.lines) or journal.lines[line - 1].hash != record["sha256"]:
        raise RunError(f"what {NAME} signs is not in this journal")
    later = journal.lines[line:]
    if any(each.event in ("certified", "classes certified") for each in later) or not journal.risk_bounds():
        raise RunError(f"{NAME} does not sign the present certificate")
    _check(public, record["signature"], record["sha256"])
    unsigned = sorted({name for each in later for name in each.wrote} - {NAME})
    files = "every file of the run" if not unsigned else f"every file of the run but {', '.join(unsigned)}"
    return key_file is not None, f"the key {public[:16]} signs {files}"


def _record(run: RunFolder) -> dict[str, Any]:
    try:
        record = strict_json(run.read(NAME))
        if set(record) == {"line", "sha256", "public_key", "signature"} and type(record["line"]) is int:
            for name, length in (("sha256", 64), ("public_key", 64), ("signature", 128)):
                if len(bytes.fromhex(record[name])) * 2 != length or record[name] != record[name].lower():
                    raise ValueError
            return dict(record)
    except (ValueError, TypeError, AttributeError):
        pass
    raise RunError(f"{run.path / NAME} is not a signature")


def _message(line_hash: str) -> bytes:
    return f"pacbayes-signature-1 {line_hash}".encode()


def _check(public: str, signature: str, line_hash: str) -> None:
    _need_cryptography()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), _message(line_hash))
    except (InvalidSignature, ValueError):
        raise RunError(f"{NAME} does not hold: the key did not make it for this journal") from None


def _private_key(path: Path) -> Ed25519PrivateKey:
    content = _key_file(path, f"'pacbayes sign --new-key {in_shell(path)}' makes a key")
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InvalidInput(f"{path} is not a private key without password, in PEM: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidInput(f"{path} is not an Ed25519 key: make one with 'pacbayes sign --new-key FILE'")
    return key


def public_key(path: Path) -> Ed25519PublicKey:
    """The issuer's key."""
    content = _key_file(path, "Whoever signed the run has the public key, a .pub file")
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        hint = "it is the private one" if b"PRIVATE" in content else error
        raise InvalidInput(f"{path} is not a public key in PEM: {hint}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidInput(f"{path} is not an Ed25519 key")
    return key


def _hex_of(key: Ed25519PublicKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def _key_file(path: Path, hint: str) -> bytes:
    _need_cryptography()
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_KEY)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}. {hint}") from None


def _need_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise InvalidInput("signatures need the package cryptography: pip install 'pacbayes[sign]'") from None
