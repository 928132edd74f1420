"""Several processes take the steps of one."""

from __future__ import annotations

import many_steps
import numpy as np
import pytest
import safetensors.torch
import torch
import torch.distributed as dist

import pacbayes as pb
from pacbayes import processes
from pacbayes.certificates.monte_carlo import independent_errors
from pacbayes.data.streamed import Streamed
from pacbayes.networks.normals import Rows, of_examples
from pacbayes.processes import Share
from pacbayes.training.engine import PlainEngine
from pacbayes.training.stage import Stage


@pytest.fixture(scope="module")
def alone():
    return many_steps.all_cases()


@pytest.mark.parametrize("count", [2, 4])
def test_the_steps_of_one_process(count, alone, torchrun, tmp_path):
    """Every objective, method and way of drawing; float64, so that what is left is the order of summation."""
    done = torchrun(count, many_steps.__file__, tmp_path)
    assert done.status == 0, done.err
    found = [safetensors.torch.load_file(tmp_path / f"process-{rank}.safetensors") for rank in range(count)]
    for name, expected in alone.items():
        assert expected.isfinite().all()
        torch.testing.assert_close(
            found[0][name], expected, rtol=1e-6, atol=1e-6, msg=lambda text, n=name: f"{n}: {text}"
        )
        for other in found[1:]:
            # All but the sums are weights of the one network that they train together.
            assert torch.equal(other[name], found[0][name]), name


def test_alone_nothing_is_started(alone):
    processes.join()
    assert not dist.is_initialized()
    assert (processes.rank(), processes.size(), processes.first(), processes.restarted()) == (0, 1, True, False)
    assert processes.from_first(2**62 + 1) == 2**62 + 1
    assert Share.of(5) == Share(0, 5, 5, 1.0)


@pytest.mark.parametrize(("count", "total"), [(2, 8), (3, 8), (4, 3), (5, 1)])
def test_shares_are_a_partition(count, total, monkeypatch):
    monkeypatch.setattr(processes, "size", lambda: count)
    rows, weights = [], []
    for rank in range(count):
        monkeypatch.setattr(processes, "rank", lambda rank=rank: rank)
        share = Share.of(total)
        assert 0 <= share.start < share.stop <= share.total == total
        weights.append(share.weight)
        rows += range(share.start, share.stop) if share.weight else ()
    assert rows == list(range(total)) and sum(weights) == pytest.approx(1)


def test_each_process_reads_its_share_of_data_on_disk(tmp_path, monkeypatch):
    """Of every batch in training, of the evaluation, and of the draws: once each, by one of three processes."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(50, 3)))
    np.save(tmp_path / "y.npy", np.arange(50) % 2)
    data = pb.load(tmp_path)
    stage = Stage(pb.stochastic(pb.build("mlp", (3,), 2)), data, pb.Settings(batch_size=12))
    reads, read = [], Streamed.read
    monkeypatch.setattr(Streamed, "read", lambda self, rows: reads.append(rows.tolist()) or read(self, rows))
    monkeypatch.setattr(processes, "size", lambda: 3)
    monkeypatch.setattr(processes, "_with_all", lambda communicate: None)
    monkeypatch.setattr("pacbayes.certificates.monte_carlo.chunk_size", lambda net, x: 7)
    engine = PlainEngine(stage)
    work = {
        "epoch": lambda: engine.epoch(0, 0.0),
        "risk": engine.risk,
        "draws": lambda: independent_errors(stage.net, data, 2 * len(data), 1),
    }
    for name, run in work.items():
        shares = []
        for rank in range(3):
            monkeypatch.setattr(processes, "rank", lambda rank=rank: rank)
            reads.clear()
            run()
            shares.append([list(rows) for rows in reads])
        if name != "draws":  # in batches of 12, 12, 12, 12 and 2 rows: one of the three has none of the last
            assert [len(rows) for rows in shares[0]] == [4, 4, 4, 4, 1], name
            shares[0].pop()
        seen = sorted(row for share in shares for rows in share for row in rows)
        assert seen == sorted([*range(50)] * (2 if name == "draws" else 1)), name


def test_rows_of_the_noise_of_a_batch():
    whole = torch.arange(40.0).view(2, 5, 4)
    asked = []

    def normals(shape):
        asked.append(shape)
        return whole.view(shape)

    rows = Rows(normals, 1, 3, 5)
    assert torch.equal(of_examples(rows, axis=1)((2, 2, 4)), whole[:, 1:3])
    assert torch.equal(of_examples(rows, axis=-2)((2, 2, 4)), whole[:, 1:3])
    assert torch.equal(of_examples(rows)((2, 8)), whole.view(5, 8)[1:3])
    assert torch.equal(rows((4, 10)), whole.view(4, 10))
    assert asked == [(2, 5, 4), (2, 5, 4), (5, 8), (4, 10)]
    assert of_examples(normals) is normals


@pytest.mark.parametrize("rank", [0, 1])
def test_to_agree_on_a_prior_hides_no_change(rank, monkeypatch):
    """Only a prior that was taken from the first process counts as fixed anew."""
    monkeypatch.setattr(processes, "size", lambda: 2)
    monkeypatch.setattr(processes, "rank", lambda: rank)
    monkeypatch.setattr(processes, "_with_all", lambda communicate: None)
    net = pb.stochastic(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2)), layers=["1"])
    net.prior_mean.add_(1e-6)  # written over in the first process, or taken from it in another one
    net.agree_on_prior()
    assert (net.fixed_part_changed() is None) == (rank > 0)
    net.freeze_prior()
    with torch.no_grad():
        next(net.model[0].parameters()).add_(1)
    net.agree_on_prior()
    assert net.fixed_part_changed()


UNEQUAL = """
import torch, pacbayes as pb
from pacbayes import processes
from pacbayes.certificates import monte_carlo

processes.join()
sizes = (7, 20)
monte_carlo.chunk_size = lambda net, x: sizes[processes.rank()]
assert processes.least(sizes[processes.rank()]) == 7
linear = torch.nn.Linear(1, 2, bias=False)
with torch.no_grad():
    linear.weight.copy_(torch.tensor([[1.0], [-1.0]]))
net = pb.stochastic(linear, 1e-10)
y = ((torch.arange(60) >= 20) & (torch.arange(60) < 40)).long()  # the network says 0, so that these are errors
errors = monte_carlo.independent_errors(net, pb.Data(torch.ones(60, 1), y, 2), 180, seed=1)
assert errors == 60, errors
processes.leave()
"""


def test_processes_of_unequal_memory_visit_every_example(torchrun, tmp_path):
    """Each would cut the visits into chunks by its own memory: they must agree on one size."""
    (tmp_path / "work.py").write_text(UNEQUAL)
    done = torchrun(2, tmp_path / "work.py")
    assert done.status == 0, done.err


ON_A_GPU = """
import torch
from pacbayes import processes

processes.join()
numbers = torch.arange(4.0, device="cuda")
torch.distributed.all_reduce(numbers)
torch.distributed.broadcast(numbers, 0)
assert numbers.tolist() == [0, 1, 2, 3]
assert "nccl" in torch.distributed.get_backend_config()
processes.leave()
"""


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_processes_speak_by_nccl(torchrun, tmp_path):
    """One process on one GPU: NCCL starts, and its kernels run."""
    (tmp_path / "work.py").write_text(ON_A_GPU)
    done = torchrun(1, tmp_path / "work.py")
    assert done.status == 0, done.err
