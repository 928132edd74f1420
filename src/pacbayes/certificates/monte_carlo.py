"""Counting the errors of drawn networks: the Monte-Carlo step of section 3.5, with independent terms."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from pacbayes import processes
from pacbayes.certificates.evidence import LOSS_UNIT
from pacbayes.checks import check_count, plain
from pacbayes.data import Data, as_data
from pacbayes.data.streamed import on_device
from pacbayes.errors import InvalidInput
from pacbayes.networks.features import body_is_fixed, features
from pacbayes.networks.memory import chunk_size
from pacbayes.networks.precision import full_precision
from pacbayes.networks.stochastic import StochasticNetwork, check_stochastic
from pacbayes.seeds import chosen_seed, derived_seed

# Tags that keep these streams apart from each other's and from training's, whatever seed is given.
_INDEPENDENT, _SHARED = (1, 1, 0), (1, 1, 1)

Progress = Callable[[float], None]
Loss = Callable[[Tensor, Tensor], Tensor]
"""From outputs [n, classes] and labels [n] to n values in [0, 1]."""


@torch.no_grad()
def independent_errors(
    net: StochasticNetwork, data: Data, draws: int, seed: int, progress: Progress | None = None
) -> int:
    """The errors in ``draws`` example visits, each with a draw of all the weights of its own.

    Each example is visited ``draws // m`` times; the rest are visits to examples picked at random, with replacement.
    So the outcomes are independent, and the average of their means is the empirical risk Err_S(Q) exactly: what
    :func:`~pacbayes.bounds.chernoff_upper` and :func:`~pacbayes.bounds.clopper_pearson_upper` ask for.
    """

    def count(x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        return _wrong(net(x, "independent", generator), y).sum()

    return int(_totals(net, data, draws, seed, progress, count))


@torch.no_grad()
def independent_losses(
    net: StochasticNetwork, data: Data, loss: Loss, draws: int, seed: int, progress: Progress | None = None
) -> int:
    """As :func:`independent_errors`, for a loss in [0, 1]: its sum in parts of 1/``LOSS_UNIT``, each rounded up."""
    _refuse_what_is_no_loss(net, data, loss)

    def count(x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        return whole_parts(loss(net(x, "independent", generator), y), len(y)).sum()

    return int(_totals(net, data, draws, seed, progress, count))


@torch.no_grad()
def vote_errors(
    net: StochasticNetwork, data: Data, voters: int, draws: int, seed: int, progress: Progress | None = None
) -> tuple[int, int, int]:
    """Visits with a vote of that many independent draws each: how often the first voter errs, two picked at random
    with replacement both do, and the vote does."""

    def count(x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        wrong = torch.empty(voters, len(y), dtype=torch.bool, device=y.device)
        votes = torch.zeros(len(y), net.classes, dtype=torch.int64, device=y.device)
        for voter in range(voters):
            outputs = net(x, "independent", generator)
            wrong[voter] = _wrong(outputs, y)
            # A tie of the label's output with another's is a vote for nobody.
            counts = ~wrong[voter] | (outputs.argmax(-1) != y)
            votes.scatter_add_(1, outputs.argmax(-1, keepdim=True), counts.long().unsqueeze(-1))
        pair = torch.randint(voters, (2, len(y)), generator=generator, device=y.device)
        both = wrong.gather(0, pair).all(0)
        return torch.stack([wrong[0].sum(), both.sum(), _wrong(votes, y).sum()])

    first, pairs, vote = _totals(net, data, draws, seed, progress, count, (3,)).tolist()
    return first, pairs, vote


@torch.no_grad()
def pair_errors(net: StochasticNetwork, data: Data, voters: int, draws: int, seed: int) -> int:
    """Visits in which two of that many voters, picked at random with replacement, both err: two draws for each."""

    def count(x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        first, second = (_wrong(net(x, "independent", generator), y) for _ in range(2))
        same = torch.randint(voters, (len(y),), generator=generator, device=y.device) == 0
        return (first & (second | same)).sum()

    return int(_totals(net, data, draws, seed, None, count))


@torch.no_grad()
def confusion_counts(net: StochasticNetwork, data: Data, draws: int, seed: int) -> Tensor:
    """[classes, classes]: visits of examples of each class (rows) by the answer, int64 on the CPU.

    A tie of the label's output with another's counts for that other, and an output that is no number is the answer, as
    it is in a prediction: the diagonal never errs upwards.
    """

    def count(x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        outputs, label = net(x, "independent", generator), y.unsqueeze(-1)
        least, answer = torch.finfo(outputs.dtype).min, outputs.argmax(-1)
        rival = outputs.nan_to_num(least, neginf=least).scatter(-1, label, -math.inf).argmax(-1)
        answer = torch.where((answer == y) & _wrong(outputs, y), rival, answer)
        return torch.bincount(y * net.classes + answer, minlength=net.classes**2)

    return _totals(net, data, draws, seed, None, count, (net.classes**2,)).cpu().view(net.classes, net.classes)


def _totals(
    net: StochasticNetwork,
    data: Data,
    draws: int,
    seed: int,
    progress: Progress | None,
    count: Callable[[Tensor, Tensor, torch.Generator], Tensor],
    shape: tuple[int, ...] = (),
) -> Tensor:
    """The sum of the counts over all visits.

    The visits are cut into chunks, each with a seed of its own, and the chunks dealt to the processes: so the sum is
    the same for any number of them.
    """
    check_count("draws", draws)
    device = net.mean.device
    start = derived_seed(seed, *_INDEPENDENT)
    generator = torch.Generator(device)
    x, y = on_device(data.x, device), data.y.to(device)
    # One size for all, though their memory may differ: chunks of different sizes would not be parts of one whole.
    size = processes.least(chunk_size(net, data.x))
    visits = _visits(len(data), draws, size, generator.manual_seed(start))
    mine = range(processes.rank(), len(visits), processes.size())
    total = torch.zeros(shape, dtype=torch.int64, device=device)
    for number in mine:
        generator.manual_seed(_stream(start, 1 + number))
        with full_precision():
            total += count(x[visits[number]], y[visits[number]], generator)
        if progress is not None:
            progress((number + 1) / len(visits))
    return processes.add(total)


def _stream(start: int, number: int) -> int:
    """The seed of a part of the draws: added, not hashed, since PyTorch looks at the last 32 bits of a seed on a CPU,
    and of so many that are random two may be equal."""
    return (start + number) % 2**63


def check_budget(seconds: float, sampling: str) -> None:
    if not 0 < seconds < math.inf:
        raise InvalidInput(f"the budget must be a positive number of seconds, and is {seconds}")
    if sampling != "independent":
        raise InvalidInput("a time budget is for independent draws")


def draws_within(seconds: float, count: Callable[[int], object]) -> int:
    """How many draws ``count(draws)`` makes in this time, from a few short trials whose results are not looked at."""
    start = time.perf_counter()

    def timed(draws: int) -> float:
        before = time.perf_counter()
        count(draws)
        return time.perf_counter() - before

    draws, took = 64, timed(64)
    # All processes go by the clock of the first.
    while not processes.from_first(int(took > seconds / 40 or time.perf_counter() - start > seconds / 4)):
        draws *= 4
        took = timed(draws)
    # One trial may have had to wait for other work.
    took = sorted([took, timed(draws), timed(draws)])[1]
    left = max(0.0, seconds - (time.perf_counter() - start))
    return processes.from_first(max(1, math.floor(0.95 * left * draws / took)))


@torch.no_grad()
def shared_errors(
    net: StochasticNetwork, data: Data, draws: int, seed: int, progress: Progress | None = None, precise: bool = True
) -> list[int]:
    """For each of ``draws`` networks, drawn once and used on all the data, its number of errors (the paper's way).

    ``precise=False`` is faster on a GPU, and for what no certificate rests on.
    """
    check_count("draws", draws)
    start = derived_seed(seed, *_SHARED)
    generator = torch.Generator(net.mean.device)
    size = chunk_size(net, data.x, per_example_weights=False)
    x_all, y_all = on_device(data.x, net.mean.device), data.y.to(net.mean.device)
    counts = torch.zeros(draws, dtype=torch.int64, device=net.mean.device)
    seen = 0
    with full_precision() if precise else nullcontext():
        # All draws of one chunk, then of the next: data that are on disk are read once.
        for x, y in zip(x_all.split(size), y_all.split(size), strict=True):
            for draw in range(processes.rank(), draws, processes.size()):
                # The same seed for every chunk: the same weights.
                generator.manual_seed(_stream(start, draw))
                counts[draw] += _wrong(net(x, "shared", generator), y).sum()
                if progress is not None:
                    progress((seen + len(y) * (draw + 1) / draws) / len(data))
            seen += len(y)
    return processes.add(counts).tolist()


def test_error(net: StochasticNetwork, data: Any, draws: int = 1000, seed: int = 0) -> tuple[float, float]:
    """Mean and standard deviation, over drawn networks, of the error on these data: as in the paper's tables."""
    check_stochastic(net)
    seed, draws = chosen_seed(seed), plain(draws)
    check_count("draws", draws)
    data = as_data(data, classes=net.classes)
    net.looks.note(data)
    if draws > 1 and body_is_fixed(net, data) and not net.fixed_part_changed():
        data, head = features(net, data)
        assert isinstance(head, StochasticNetwork)
        net = head
    rates = torch.tensor(shared_errors(net, data, draws, seed, precise=False), dtype=torch.float64) / len(data)
    return float(rates.mean()), float(rates.std()) if draws > 1 else 0.0


@torch.no_grad()
def network_errors(net: StochasticNetwork, data: Data) -> int:
    """The errors of the one network at the means, on all the data."""
    size = chunk_size(net, data.x, per_example_weights=False)
    chunks = zip(data.x.split(size), data.y.split(size), strict=True)
    device = net.mean.device
    with full_precision():
        return sum(int(_wrong(net(x.to(device), "mean"), y.to(device)).sum()) for x, y in chunks)


def whole_parts(losses: Tensor, count: int) -> Tensor:
    """Losses in [0, 1], rounded up to parts of 1/``LOSS_UNIT``."""
    if not isinstance(losses, Tensor):
        raise InvalidInput(f"the loss must give a tensor, and gave a {type(losses).__name__}")
    if losses.shape != (count,):
        raise InvalidInput(f"the loss must give one value for each of {count} examples, and gave {tuple(losses.shape)}")
    losses = losses.double()
    if not bool(((losses >= 0) & (losses <= 1)).all()):
        raise InvalidInput("the loss must lie in [0, 1], and a value does not")
    return (losses * LOSS_UNIT).ceil().long()


def _refuse_what_is_no_loss(net: StochasticNetwork, data: Data, loss: Loss) -> None:
    x, y = data.x[:8].to(net.mean.device), data.y[:8].to(net.mean.device)
    outputs = net(x, "mean")
    with torch.inference_mode(False), torch.enable_grad():
        value = loss(outputs.clone(), y)
    if getattr(value, "requires_grad", False) or (isinstance(loss, nn.Module) and any(True for _ in loss.parameters())):
        raise InvalidInput(
            "the loss has weights of its own: it must be a fixed function, since what it learns from the bound data is "
            "not in the KL"
        )
    # With wrong labels too, of those that there are: right answers may cost nothing, whatever the batch.
    known = data.y.unique().to(y.device)
    others = known[(torch.searchsorted(known, y) + 1) % len(known)]
    for labels in (y, others, torch.where(torch.arange(len(y), device=y.device) % 2 > 0, y, others)):
        apart = torch.cat([whole_parts(loss(outputs[i : i + 1], labels[i : i + 1]), 1) for i in range(len(y))])
        for size in {2, 5, len(y)}:
            together = whole_parts(loss(outputs[:size], labels[:size]), len(labels[:size]))
            if bool(((together - apart[:size]).abs() > 1e-5 * LOSS_UNIT).any()):
                raise InvalidInput(
                    "the loss of an example depends on the other examples of the batch: there is no valid certificate "
                    "for it"
                )


def _wrong(outputs: Tensor, y: Tensor) -> Tensor:
    """Ties and NaN count as errors: the label must be strictly above all others."""
    y = y.unsqueeze(-1)
    least = -math.inf if outputs.is_floating_point() else -1
    return ~(outputs.gather(-1, y) > outputs.scatter(-1, y, least).amax(-1, keepdim=True)).squeeze(-1)


def _visits(m: int, draws: int, size: int, generator: torch.Generator) -> list[Tensor]:
    rest = torch.randint(m, (draws % m,), generator=generator, device=generator.device)
    processes.copy_from_first(rest)  # other GPUs may make other numbers of one seed
    whole = torch.arange(m, device=generator.device).split(size)
    return [*whole * (draws // m), *(rest.split(size) if len(rest) else ())]
