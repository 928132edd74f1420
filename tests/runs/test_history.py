"""The chain of the history: from the configuration and the data, line by line, to the journal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pacbayes.errors import RunError
from pacbayes.files import sha256
from pacbayes.runs import RunFolder, certify_run, predict_run, verify_run
from pacbayes.runs.check import FAILED
from pacbayes.runs.history import chain_start, read_chain, read_epochs


def lines_of(run: RunFolder) -> list[bytes]:
    return run.read("history.jsonl").splitlines()


def failed(run: RunFolder) -> set[str]:
    return {check.name for check in verify_run(run) if check.status == FAILED}


def test_each_line_has_the_hash_of_the_one_before(certified):
    lines = lines_of(certified)
    previous = chain_start(certified.read("config.toml"), certified.read("data.json"))
    for line in lines:
        assert json.loads(line)["previous"] == previous
        previous = sha256(line)
    history = certified.history()
    assert history.end == previous
    assert history.epochs == {"pretraining": 2, "prior": 2, "posterior": 3}


def test_the_first_line_of_the_posterior_and_no_other_names_the_prior(certified):
    named = [json.loads(line) for line in lines_of(certified) if b"prior_fingerprint" in line]
    (record,) = named
    assert (record["stage"], record["epoch"]) == ("posterior", 0)
    assert (
        record["prior_fingerprint"]
        == sha256(certified.read("prior.safetensors"))
        == certified.history().prior_fingerprint
    )


def rechained(records: list[dict], start: str) -> bytes:
    """Lines with their hashes made right: what a forger would write."""
    lines = []
    for record in records:
        lines.append(json.dumps({**record, "previous": sha256(lines[-1].encode()) if lines else start}))
    return "".join(line + "\n" for line in lines).encode()


CHANGES = {
    "a line left out": (lambda lines: lines[:2] + lines[3:], "line 3 does not follow"),
    "the first left out": (lambda lines: lines[1:], "line 1 does not follow from config.toml and data.json"),
    "the last left out": (lambda lines: lines[:-1], None),
    "two exchanged": (lambda lines: [lines[1], lines[0], *lines[2:]], "line 1 does not follow"),
    "one twice": (lambda lines: [*lines[:2], lines[1], *lines[2:]], "line 3 does not follow"),
    "a number changed": (lambda lines: [lines[0].replace(b"0.", b"1.", 1), *lines[1:]], "line 2 does not follow"),
    "a number of the last": (lambda lines: [*lines[:-1], lines[-1].replace(b"0.", b"1.", 1)], None),
    "not JSON": (lambda lines: [*lines[:3], b"{", *lines[4:]], "line 4 is not an epoch"),
    "a list": (lambda lines: [b"[]", *lines[1:]], "line 1 is not an epoch"),
    "a name twice": (lambda lines: [b'{"stage": 1, ' + lines[0][1:], *lines[1:]], "line 1 is not an epoch"),
    "nothing": (lambda lines: [], "its end is missing"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_changed_history_is_found_and_the_line_named(case, certified):
    change, words = CHANGES[case]
    content = b"".join(line + b"\n" for line in change(lines_of(certified)))
    certified.history_file.write_bytes(content)
    assert "history.jsonl" in failed(certified) and failed(certified) & {"history", "end of history"}
    if words is not None:
        with pytest.raises(RunError, match=words):
            certified.history()
        for use in (certify_run, lambda run: predict_run(run, None)):
            with pytest.raises(RunError):
                use(certified)


STRUCTURE = {
    "epochs out of order": lambda records: [records[1], records[0], *records[2:]],
    "a stage that was over": lambda records: [*records, {**records[0], "epoch": 2}],
    "an unknown stage": lambda records: [{**records[0], "stage": "warm-up"}, *records[1:]],
    "no prior": lambda records: [{k: v for k, v in r.items() if k != "prior_fingerprint"} for r in records],
    "a prior elsewhere": lambda records: [{**records[0], "prior_fingerprint": "0" * 64}, *records[1:]],
    "an epoch that is no number": lambda records: [{**records[0], "epoch": False}, *records[1:]],
}


@pytest.mark.parametrize("case", STRUCTURE)
def test_hashes_that_hold_are_not_enough(case, certified):
    start = chain_start(certified.read("config.toml"), certified.read("data.json"))
    records = [json.loads(line) for line in lines_of(certified)]
    assert read_chain(rechained(records, start), start).end == certified.history().end
    with pytest.raises(RunError, match="line"):
        read_chain(rechained(STRUCTURE[case](records), start), start)


def test_a_history_chained_anew_has_another_end(certified, agree):
    """The forger who makes all the lines right is found by the end of the chain, which the journal began with."""
    start = chain_start(certified.read("config.toml"), certified.read("data.json"))
    records = [json.loads(line) for line in lines_of(certified)]
    certified.history_file.write_bytes(rechained([{**records[0], "risk": 0.0}, *records[1:]], start))
    agree(certified)
    assert failed(certified) == {"end of history"}


def test_a_history_of_fewer_epochs_than_configured(certified, agree):
    start = chain_start(certified.read("config.toml"), certified.read("data.json"))
    records = [json.loads(line) for line in lines_of(certified)]
    certified.history_file.write_bytes(rechained(records[:-1], start))
    agree(certified)
    assert failed(certified) == {"history", "end of history", "kept epoch"}


@pytest.mark.parametrize("name", ["config.toml", "data.json"])
def test_the_chain_begins_with_the_configuration_and_the_data(name, certified, agree):
    (certified.path / name).write_bytes(certified.read(name) + b"\n")
    agree(certified)
    assert "history" in failed(certified)


def test_another_prior_put_in_afterwards(certified, agree):
    """The history named the prior before the bound data were used: one chosen later is not it."""
    (certified.path / "prior.safetensors").write_bytes(certified.read("posterior.safetensors"))
    agree(certified)
    assert "prior in history" in failed(certified)


GOOD = {"stage": "posterior", "epoch": 0, "rate": 0.1, "objective": 0.2, "risk": 0.1, "kl": 1, "penalty": 0.1}
GOOD |= {"bound": 0.3}


def test_a_history_is_read_in_the_order_of_the_stages(tmp_path: Path):
    lines = [GOOD, GOOD | {"stage": "prior", "lam": 0.5}, GOOD | {"epoch": 1, "bound": 0.2}]
    stages = read_epochs("".join(json.dumps(line) + "\n" for line in lines).encode())
    assert list(stages) == ["prior", "posterior"]
    assert [epoch.bound for epoch in stages["posterior"]] == [0.3, 0.2]
    assert RunFolder(tmp_path).epochs() == {}


@pytest.mark.parametrize(
    "line",
    [
        '{"stage": "posterior", "epoch": 1, "ra',
        "",
        "3",
        "[]",
        "{}",
        json.dumps(GOOD | {"stage": "<script>"}),
        json.dumps(GOOD | {"stage": ["posterior"]}),
        json.dumps(GOOD | {"epoch": 3}),
        json.dumps(GOOD | {"epoch": True}),
        json.dumps(GOOD | {"epoch": 1, "risk": float("nan")}),
        json.dumps(GOOD | {"epoch": 1, "bound": 10**400}),
        json.dumps(GOOD | {"epoch": 1, "penalty": None}),
        json.dumps(GOOD | {"epoch": 1, "penalty": "0.1"}),
        json.dumps(GOOD | {"epoch": 1, "unknown": 1}),
        json.dumps(GOOD | {"epoch": 1, "kept": 2}),
        json.dumps(GOOD | {"epoch": 1, "kept": -2}),
        json.dumps(GOOD | {"epoch": 1, "kept": 0.5}),
        "[" * 100_000,
    ],
)
def test_a_damaged_line_is_named(line: str):
    with pytest.raises(RunError, match=r"history\.jsonl is damaged: line 2 ") as caught:
        read_epochs(f"{json.dumps(GOOD)}\n{line}\n".encode())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("read", [read_epochs, lambda content: read_chain(content, "")])
def test_a_line_longer_than_any_epoch_is_not_parsed(read, monkeypatch):
    monkeypatch.setattr("pacbayes.runs.history.strict_json", lambda line: pytest.fail("parsed"))
    with pytest.raises(RunError, match="line 1 is not an epoch"):
        read(json.dumps(GOOD | {"lam": [0] * 2**16}).encode() + b"\n")


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(RunError, match="line 1 "):
        read_epochs(b"\xff\xfe{}")


def test_a_line_that_is_being_written_is_not_read_yet(tmp_path: Path):
    (tmp_path / "history.jsonl").write_text(json.dumps(GOOD) + '\n{"stage": "post')
    assert len(RunFolder(tmp_path).epochs()["posterior"]) == 1
