"""Trains on data in a folder, certifies and predicts, with far less memory than the inputs would take.

Usage: small_memory.py FOLDER MEBIBYTES. The limit is on memory that is the process's own: files that are only read do
not count, for the kernel takes their pages back whenever it likes.
"""

import resource
import sys
from pathlib import Path

import torch

import pacbayes as pb

torch.set_num_threads(1)
folder, allowance = sys.argv[1], int(sys.argv[2]) * 2**20


def limit_memory() -> None:
    status = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines())
    limit = int(status["VmData"].split()[0]) * 1024 + allowance
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def certified(data: pb.Data) -> pb.Certificate:
    prior_data, bound_data = pb.split(data, fraction=0.02)
    net = pb.stochastic(torch.nn.Linear(data.shape[0], 2), prior_variance=0.01)
    settings = pb.Settings(epochs=1, batch_size=512, evaluate="running")
    pb.learn_prior(net, prior_data, pretraining=None, training=settings)
    pb.fit(net, prior_data, settings=settings)
    return pb.certify(net, bound_data, draws=len(bound_data) + 1000, seed=1)


# The first time, PyTorch imports what it needs.
certified(pb.split((torch.zeros(1000, 2), torch.arange(1000) % 2), 0.5)[0])
limit_memory()
data = pb.load(folder)
assert 4 * data.x.numel() >= 5 * allowance
print(certified(data).m)
try:
    data.x[:]
except (MemoryError, RuntimeError):
    print("too large for memory")
