"""``pacbayes sign`` and ``pacbayes verify --key``."""

from __future__ import annotations

import re

import pytest


def test_a_key_a_signature_and_its_check(run, pacbayes_main, tmp_path):
    made = pacbayes_main("sign", "--new-key", tmp_path / "key")
    assert made.status == 0 and "key.pub" in made.out
    signed = pacbayes_main("sign", run, "--key", tmp_path / "key")
    assert signed.status == 0 and "signature.json" in signed.out
    good = pacbayes_main("verify", run, "--key", tmp_path / "key.pub")
    assert good.status == 0 and re.search(r"^passed +signature", good.out, re.M)
    assert pacbayes_main("sign", "--new-key", tmp_path / "other").status == 0
    bad = pacbayes_main("verify", run, "--key", tmp_path / "other.pub")
    assert bad.status == 1 and re.search(r"^failed +signature", bad.out, re.M)


def test_a_run_that_fails_verification_is_not_signed(run, pacbayes_main, tmp_path):
    pacbayes_main("sign", "--new-key", tmp_path / "key")
    (run / "evaluation.json").write_text("{}")
    result = pacbayes_main("sign", run, "--key", tmp_path / "key")
    assert result.status == 1 and "evaluation.json" in result.err and not (run / "signature.json").exists()


def test_a_run_without_a_certificate_is_not_signed(run, pacbayes_main, tmp_path):
    pacbayes_main("sign", "--new-key", tmp_path / "key")
    (run / "certificate.json").unlink()
    result = pacbayes_main("sign", run, "--key", tmp_path / "key")
    assert result.status == 1 and "no certificate" in result.err


@pytest.mark.parametrize(
    "flags", [(), ("RUN",), ("--key", "k"), ("RUN", "--new-key", "k"), ("--key", "k", "--new-key", "n")]
)
def test_what_to_give(flags, run, pacbayes_main, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    result = pacbayes_main("sign", *(run if flag == "RUN" else flag for flag in flags))
    assert result.status == 1 and "--new-key" in result.err and not (tmp_path / "k").exists()


def test_words_from_a_folder_command_no_terminal(run, pacbayes_main):
    """Escape sequences in a record, a configuration or a name of a file are shown as signs, not sent."""
    text = (run / "certificate.json").read_text()
    old = re.search(r'"prior_fingerprint": "(.*?)"', text).group(1)
    (run / "certificate.json").write_text(text.replace(old, "\\u001b[2J\\u0007\\u202e"))
    (run / "\x1b[31mred\n").write_text("")
    result = pacbayes_main("verify", run)
    assert result.status == 1 and "\x1b" not in result.out and "\x07" not in result.out and "\u202e" not in result.out
    (run / "config.toml").write_text('model = "\\u001b[2J' + "x" * 50_000 + '"')
    for name in ("certify", "report"):
        result = pacbayes_main(name, run)
        assert result.status == 1 and "\x1b" not in result.err and len(result.err) < 2100


def test_a_signing_that_was_cut_off_can_be_repeated(run, pacbayes_main, tmp_path):
    pacbayes_main("sign", "--new-key", tmp_path / "key")
    journal = (run / "journal.jsonl").read_bytes()
    for _ in range(2):
        assert pacbayes_main("sign", run, "--key", tmp_path / "key").status == 0
        # The signature is there, and its line in the journal is not.
        (run / "journal.jsonl").write_bytes(journal)
    assert pacbayes_main("verify", run).status == 1
    assert pacbayes_main("sign", run, "--key", tmp_path / "key").status == 0
    assert pacbayes_main("verify", run, "--key", tmp_path / "key.pub").status == 0
