"""Checkpoints: whole or absent, refused where they are not what they should be, and resumed without a trace."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch

from pacbayes.errors import RunError
from pacbayes.training import Checkpoint, fit


class Stop(Exception):
    pass


def stop_after(number: int):
    def callback(epoch):
        if epoch.epoch == number:
            raise Stop

    return callback


CASES = {
    "invKL": {"epochs": 5, "rate": 0.05},
    "lbd": {"objective": "lbd", "epochs": 3, "rate": 0.05},
    "best early": {"epochs": 5, "rate": 0.4, "schedule": "constant"},
    "running, last": {"epochs": 4, "rate": 0.1, "evaluate": "running", "keep": "last", "estimator": "L1", "samples": 5},
    "averaged": {"objective": "ERM", "epochs": 5, "rate": 0.1, "averaged": 3},
    "pre-training": {"method": "CE", "epochs": 4, "rate": 0.1, "dropout": 0.5, "keep": "last"},
}


@pytest.mark.parametrize("case", CASES)
def test_resuming_after_any_epoch_ends_in_the_same_bytes(case, tmp_path, blobs, small_net):
    options, problem = {**CASES[case], "batch_size": 16, "seed": 4}, blobs(40, 3)
    whole = small_net(3)
    expected = fit(whole, problem, **options)
    if case == "best early":
        assert expected.kept < len(expected.epochs) - 1, "the best epoch must lie before the end"
    for number in range(len(expected.epochs)):
        file = tmp_path / f"{number}.safetensors"
        with pytest.raises(Stop):
            fit(small_net(3), problem, **options, checkpoint=Checkpoint(file), callback=stop_after(number))
        net, seen = small_net(3), []
        history = fit(net, problem, **options, checkpoint=Checkpoint(file), callback=seen.append)
        assert history == expected
        assert tuple(seen) == expected.epochs
        assert torch.equal(net.mean, whole.mean) and torch.equal(net.rho, whole.rho)


def test_what_was_trained_to_its_end_needs_no_engine(tmp_path, blobs, small_net, monkeypatch):
    """On a GPU it would be compiled."""
    problem, file = blobs(40), tmp_path / "c.safetensors"
    expected = fit(small_net(), problem, epochs=2, checkpoint=Checkpoint(file))
    monkeypatch.delattr(sys.modules["pacbayes.training.fit"], "engine_for")
    assert fit(small_net(), problem, epochs=2, checkpoint=Checkpoint(file)) == expected


def test_interrupted_again_and_again(tmp_path, blobs, small_net):
    problem, file = blobs(40), tmp_path / "c.safetensors"
    whole = small_net()
    expected = fit(whole, problem, epochs=5, rate=0.05)
    for number in range(5):
        with pytest.raises(Stop):
            fit(small_net(), problem, epochs=5, rate=0.05, checkpoint=Checkpoint(file), callback=stop_after(number))
    net = small_net()
    assert fit(net, problem, epochs=5, rate=0.05, checkpoint=Checkpoint(file)) == expected
    assert torch.equal(net.mean, whole.mean)


def test_a_checkpoint_changes_nothing(tmp_path, blobs, small_net):
    with_one, without = small_net(), small_net()
    fit(with_one, blobs(40), epochs=3, checkpoint=Checkpoint(tmp_path / "c.safetensors"))
    fit(without, blobs(40), epochs=3)
    assert torch.equal(with_one.mean, without.mean)


def test_a_checkpoint_may_be_named_by_a_string(tmp_path, blobs, small_net):
    file = tmp_path / "c.safetensors"
    whole = fit(small_net(), blobs(40), epochs=1, checkpoint=Checkpoint(file))
    assert fit(small_net(), blobs(40), epochs=1, checkpoint=Checkpoint(str(file))) == whole


def test_few_writes_but_always_the_last_one(tmp_path, blobs, small_net, monkeypatch):
    writes = []
    original = Checkpoint.save

    def save(self, tensors, note):
        original(self, tensors, note)
        writes.append(len(note["epochs"]))

    monkeypatch.setattr(Checkpoint, "save", save)
    checkpoint = Checkpoint(tmp_path / "c.safetensors", every=3600)
    fit(small_net(), blobs(40), epochs=6, checkpoint=checkpoint)
    assert writes == [1, 6]
    _, note = checkpoint.load()
    assert len(note["epochs"]) == 6


@pytest.fixture
def good_file(tmp_path, blobs, small_net) -> Path:
    file = tmp_path / "c.safetensors"
    with pytest.raises(Stop):
        fit(small_net(), blobs(40), epochs=4, checkpoint=Checkpoint(file), callback=stop_after(1))
    return file


SPOILT = {
    "empty": lambda good: b"",
    "truncated header": lambda good: good[:20],
    "truncated": lambda good: good[:-1],
    "longer": lambda good: good + b"\0",
    "garbage": lambda good: b"garbage" * 100,
    "no note": lambda good: safetensors.torch.save(safetensors.torch.load(good)),
    "note is no JSON": lambda good: safetensors.torch.save(safetensors.torch.load(good), {"note": "{"}),
    "another note": lambda good: safetensors.torch.save(safetensors.torch.load(good), {"note": "[1]"}),
    "unknown field": lambda good: safetensors.torch.save(
        safetensors.torch.load(good), {"note": json.dumps({"epochs": [{"wrong": 1}], "kept": 0})}
    ),
    "no tensors": lambda good: safetensors.torch.save({}, {"note": json.dumps({"epochs": [], "kept": 0})}),
    "another network's": lambda good: safetensors.torch.save(
        {name: torch.zeros(3) for name in safetensors.torch.load(good)},
        {"note": json.dumps({"epochs": [], "kept": 0})},
    ),
}


def noted(good: bytes, change) -> bytes:
    """The same with another note."""
    note = json.loads(json.loads(good[8 : 8 + int.from_bytes(good[:8], "little")])["__metadata__"]["note"])
    return safetensors.torch.save(safetensors.torch.load(good), {"note": change(note)})


def last(**changes):
    """A change of the last epoch that is noted."""
    return lambda good: noted(
        good, lambda note: json.dumps(note | {"epochs": [*note["epochs"][:-1], note["epochs"][-1] | changes]})
    )


SPOILT |= {
    "nested without end": lambda good: noted(good, lambda note: '{"of":' + "[" * 100_000),
    "an identity nested without end": lambda good: noted(good, lambda note: "[" * 100_000),
    "a bound that is a word": last(kept_bound="0.1"),
    "a bound that is a list": last(bound=[0.1]),
    "a bound that is no number": last(bound=math.nan),
    "a kept epoch to come": last(kept=7),
    "an epoch twice": last(epoch=0),
    "no epochs": lambda good: noted(good, lambda note: json.dumps(note | {"epochs": []})),
    "a risk that is a word": lambda good: noted(good, lambda note: json.dumps(note | {"start_risk": "small"})),
}


@pytest.mark.parametrize("spoilt", SPOILT)
def test_what_is_no_checkpoint_of_this_stage_is_refused(spoilt, good_file, blobs, small_net):
    good_file.write_bytes(SPOILT[spoilt](good_file.read_bytes()))
    content = good_file.read_bytes()
    with pytest.raises(RunError, match="checkpoint") as raised:
        fit(small_net(), blobs(40), epochs=4, checkpoint=Checkpoint(good_file))
    assert "\n" not in str(raised.value) and str(good_file) in str(raised.value)
    assert good_file.read_bytes() == content


@pytest.mark.parametrize("kind", ["a pipe", "a link", "a folder"])
def test_what_is_no_plain_file_is_not_waited_for(kind, good_file):
    elsewhere = good_file.rename(good_file.with_name("elsewhere"))
    make = {"a pipe": os.mkfifo, "a link": lambda path: path.symlink_to(elsewhere), "a folder": Path.mkdir}
    make[kind](good_file)
    with pytest.raises(RunError, match="is not a plain file: delete it"):
        Checkpoint(good_file).load()


def test_a_start_without_a_finite_risk_can_be_gone_on_from(tmp_path, blobs, small_net, monkeypatch):
    problem, file = blobs(40), tmp_path / "c.safetensors"
    fitting = sys.modules["pacbayes.training.fit"]
    engine_for, risks = fitting.engine_for, []

    def engine(stage):
        made = engine_for(stage)
        risk = made.risk
        made.risk = lambda: risks.append(0) or (math.nan if len(risks) == 1 else risk())
        return made

    monkeypatch.setattr(fitting, "engine_for", engine)
    with pytest.raises(Stop):
        fit(small_net(), problem, epochs=3, checkpoint=Checkpoint(file), callback=stop_after(0))
    assert len(fit(small_net(), problem, epochs=3, checkpoint=Checkpoint(file)).epochs) == 3


def test_a_partial_neighbour_left_by_a_crash_is_ignored(good_file, blobs, small_net):
    (good_file.parent / f".{good_file.name}.4711.partial").write_bytes(b"half of a checkpoi")
    whole, resumed = small_net(), small_net()
    fit(whole, blobs(40), epochs=4)
    fit(resumed, blobs(40), epochs=4, checkpoint=Checkpoint(good_file))
    assert torch.equal(whole.mean, resumed.mean)


@pytest.mark.parametrize("where", ["os.fsync", "pathlib.Path.replace"])
def test_a_write_that_fails_leaves_the_old_checkpoint(where, good_file, monkeypatch):
    before = good_file.read_bytes()

    def fail(*args):
        raise OSError("no space left")

    checkpoint = Checkpoint(good_file)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space"):
        patch.setattr(where, fail)
        checkpoint.save({"mean": torch.zeros(2)}, {})
    assert good_file.read_bytes() == before
    assert list(good_file.parent.iterdir()) == [good_file]


def test_no_file_is_no_state(tmp_path):
    checkpoint = Checkpoint(tmp_path / "none.safetensors")
    assert checkpoint.load() is None


@pytest.mark.parametrize("change", ["data", "settings", "prior"])
def test_a_checkpoint_goes_on_only_where_it_was_made(change, blobs, small_net, tmp_path):
    """A file used for the prior and then for the posterior would make a prior that has seen the bound data."""
    checkpoint = Checkpoint(tmp_path / "c.safetensors")
    fit(small_net(), blobs(), epochs=2, checkpoint=checkpoint)
    data = blobs(seed=1 if change == "data" else 0)
    net = small_net(variance=0.02 if change == "prior" else 0.03)
    with pytest.raises(RunError, match="not a checkpoint of this training"):
        fit(net, data, epochs=3 if change == "settings" else 2, checkpoint=checkpoint)
    fit(small_net(), blobs(), epochs=2, checkpoint=checkpoint)
