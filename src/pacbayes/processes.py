"""Several processes that work as one, started by ``torchrun``: each has its share of every batch and of the draws.

One process alone is its own first and last, and nothing here touches ``torch.distributed``.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from pacbayes.errors import ProcessLost, first_line

_joined = False


def join() -> None:
    """Meet the other processes of this ``torchrun``; without one, stay alone. Each takes the GPU of its own number."""
    global _joined
    if _joined or not (dist.is_available() and dist.is_torchelastic_launched()):
        return
    # Before they meet: imported later, and torch.func does, it would hold on to the group by default arguments, whose
    # threads would then be alive when the process ends, and abort it.
    importlib.import_module("torch.distributed.nn.functional")

    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    _with_all(partial(_meet, "cpu:gloo,cuda:nccl" if cuda else "gloo"))
    _joined = True


def _meet(backend: str) -> None:
    store, own_rank, world_size = next(dist.rendezvous("env://"))
    # torchrun's store outlives a restart: without this, the new processes would look for the dead ones.
    store = dist.PrefixStore(f"{world_size} processes, restart {os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    dist.init_process_group(backend, store=store, rank=own_rank, world_size=world_size)


def leave() -> None:
    """Part from the others, once all are done."""
    global _joined
    if _joined:
        barrier()
        dist.destroy_process_group()
        _joined = False


def several() -> bool:
    """Whether ``torchrun`` has started more than one, joined or not."""
    return dist.is_available() and dist.is_torchelastic_launched() and os.environ.get("WORLD_SIZE", "1") != "1"


def restarted() -> bool:
    """Whether ``torchrun`` has started these processes anew, after one of them failed."""
    return _joined and os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"


def rank() -> int:
    return dist.get_rank() if _joined else 0


def size() -> int:
    return dist.get_world_size() if _joined else 1


def first() -> bool:
    """Whether this is the process that writes files and speaks."""
    return rank() == 0


def add(tensor: Tensor) -> Tensor:
    """The sum over all processes, in place."""
    if size() > 1:
        _with_all(partial(dist.all_reduce, tensor))
    return tensor


def copy_from_first(tensor: Tensor) -> Tensor:
    """The first process's values, in place."""
    if size() > 1:
        _with_all(partial(dist.broadcast, tensor, 0))
    return tensor


def from_first(number: int) -> int:
    """The first process's number, in [-2^63, 2^63)."""
    return int(copy_from_first(torch.tensor(number, dtype=torch.int64)))


def least(number: int) -> int:
    """The least of all processes' numbers."""
    found = torch.tensor(number, dtype=torch.int64)
    if size() > 1:
        _with_all(partial(dist.all_reduce, found, op=dist.ReduceOp.MIN))
    return int(found)


def barrier() -> None:
    """Wait for all."""
    add(torch.zeros(()))


@contextmanager
def in_turn() -> Iterator[None]:
    """The first process goes ahead, and the others follow when it is done: what it fetches is there for them."""
    if not first():
        barrier()
    try:
        yield
    finally:
        if first():
            barrier()


def _with_all(communicate: Callable[[], object]) -> None:
    try:
        communicate()
    except RuntimeError as error:
        raise ProcessLost(
            "another process of this run has ended or cannot be reached: see its own message. A training goes on with "
            f"--resume, with any number of processes ({first_line(error)[:200]})"
        ) from error


@dataclass(frozen=True)
class Share:
    """The rows of a batch that are this process's."""

    start: int
    stop: int
    total: int
    weight: float
    """Their share of a mean over the batch."""

    @classmethod
    def of(cls, total: int) -> Share:
        start, stop = (total * edge // size() for edge in (rank(), rank() + 1))
        if start == stop:
            # Fewer rows than processes. It takes one all the same, to draw what the others draw, and does not count it.
            return cls(0, 1, total, 0.0)
        return cls(start, stop, total, (stop - start) / total)

    def mean(
        self, loss: Tensor, error: Tensor, gradients: Sequence[Tensor | None] = ()
    ) -> tuple[Tensor, Tensor, Sequence[Tensor | None]]:
        """Means over these rows made those over the batch, in one exchange between the processes."""
        if size() == 1:
            return loss, error, gradients
        given = [loss.detach(), error, *(g for g in gradients if g is not None)]
        pooled = add(torch.cat([value.flatten() for value in given]).mul_(self.weight))
        loss, error, *rest = (
            p.view(v.shape) for p, v in zip(pooled.split([v.numel() for v in given]), given, strict=True)
        )
        parts = iter(rest)
        return loss, error, [None if g is None else next(parts) for g in gradients]
