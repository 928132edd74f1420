"""The Monte-Carlo step: exactly the terms that are counted, unbiased, and independent where it is said."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from small_data import noise
from torch import nn

from pacbayes import certify
from pacbayes.bounds import misclassification_probability
from pacbayes.certificates import monte_carlo
from pacbayes.certificates.monte_carlo import independent_errors, shared_errors
from pacbayes.data import as_data
from pacbayes.errors import InvalidInput
from pacbayes.networks import StochasticNetwork, memory, stochastic
from pacbayes.networks.memory import chunk_size
from pacbayes.seeds import derived_seed


def numbered(m: int, classes: int = 2):
    """Example i holds the number i + 1."""
    return as_data((torch.arange(1, m + 1)[:, None], torch.arange(m) % classes), classes=classes)


def gaussian_data(m: int = 40, classes: int = 3, seed: int = 1):
    generator = torch.Generator().manual_seed(seed)
    return as_data((torch.randn(m, 4, generator=generator), torch.arange(m) % classes), classes=classes)


@pytest.fixture
def visited(monkeypatch) -> list[tuple[str, list[int]]]:
    """(sampling, example numbers) of each pass."""
    passes = []
    original = StochasticNetwork.forward

    def forward(self, x, sampling="shared", generator=None, dropout=0.0):
        passes.append((sampling, [int(v) - 1 for v in x.flatten()]))
        return original(self, x, sampling, generator, dropout)

    monkeypatch.setattr(StochasticNetwork, "forward", forward)
    return passes


@pytest.mark.parametrize(("m", "draws"), [(10, 10), (10, 30), (10, 37), (10, 3), (7, 100), (1, 5)])
@pytest.mark.parametrize("chunk", [4096, 4])
def test_each_example_is_visited_equally_often_and_the_rest_at_random(m, draws, chunk, coin, visited, monkeypatch):
    monkeypatch.setattr(memory, "LARGEST_CHUNK", chunk)
    errors = independent_errors(coin(), numbered(m), draws, seed=3)
    drawn = [indices for sampling, indices in visited if sampling != "mean"]
    assert {sampling for sampling, _ in visited} <= {"independent", "mean"}
    flat = [i for indices in drawn for i in indices]
    assert len(flat) == draws
    assert Counter(flat[: draws - draws % m]) == (dict.fromkeys(range(m), draws // m) if draws >= m else {})
    assert all(0 <= i < m for i in flat)
    assert max(map(len, drawn)) <= chunk
    assert type(errors) is int and 0 <= errors <= draws


def test_the_remainder_is_drawn_with_replacement_and_evenly(coin, visited):
    """9 picks of 10 examples, 400 times. All different has probability .0036 a time, so 400 times: < 1e-900.

    Each example's count is Bin(3600, 1/10), sd 18: beyond 360 +- 126 has probability < 1e-10 for all ten together.
    """
    for seed in range(400):
        independent_errors(coin(), numbered(10), 9, seed)
    picks = [indices for sampling, indices in visited if sampling == "independent"]
    assert any(len(set(indices)) < 9 for indices in picks)
    counts = Counter(i for indices in picks for i in indices)
    assert all(abs(counts[i] - 360) < 126 for i in range(10))


def test_the_same_seed_the_same_count(hidden_net):
    data = gaussian_data()
    counts = [independent_errors(hidden_net(), data, 2000, seed) for seed in (1, 1, 2, 3, 4)]
    assert counts[0] == counts[1] and len(set(counts)) > 1
    assert shared_errors(hidden_net(), data, 20, 1) == shared_errors(hidden_net(), data, 20, 1)
    assert shared_errors(hidden_net(), data, 20, 1) != shared_errors(hidden_net(), data, 20, 2)


@pytest.mark.parametrize("how", ["independent", "shared"])
def test_the_mean_is_the_empirical_risk(how, hidden_net):
    """Against the conditional error probability, averaged over hidden draws by quadrature.

    40 counts of independent seeds, their spread taken from themselves. False alarm: 7 standard errors of a
    t-distribution of 39 degrees of freedom are exceeded with probability 3e-8.
    """
    net, data = hidden_net(), gaussian_data()
    with torch.no_grad():
        mean, variance = net.conditional(data.x.repeat(2000, 1), "independent", torch.Generator().manual_seed(5))
        each = misclassification_probability(mean, variance, data.y.repeat(2000)).double().view(2000, -1).mean(1)
    if how == "independent":
        rates = [independent_errors(net, data, 1000, seed) / 1000 for seed in range(40)]
    else:
        rates = [sum(shared_errors(net, data, 25, seed)) / 1000 for seed in range(40)]
    found = torch.tensor(rates, dtype=torch.float64)
    error = math.hypot(found.std() / math.sqrt(40), each.std() / math.sqrt(2000))
    assert abs(found.mean() - each.mean()) < 7 * error
    assert error < 0.02


def spread_ratio(counts: list[int], p: float, n: int) -> float:
    """The observed variance of the counts over that of a sum of n independent Bernoulli(p)."""
    observed = torch.tensor(counts, dtype=torch.float64)
    return float(observed.var()) / (n * p * (1 - p))


class Twin(nn.Module):
    """Two positions of an example go through the same Linear."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(1, 1, bias=False), nn.Linear(2, 2, bias=False)

    def forward(self, x):
        return self.last(self.first(x).flatten(1))


class Folded(Twin):
    """The two positions in front of the examples, as if they were examples: so these have to pass one by one."""

    def forward(self, x):
        return self.last(self.first(x.transpose(0, 1)).transpose(0, 1).flatten(1))


NETS = {
    "positions in front": (Folded, (2, 1)),
    "linear": (lambda: nn.Linear(1, 2, bias=False), (1,)),
    "hidden": (lambda: nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False)), (1,)),
    "positions": (Twin, (2, 1)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.Flatten(), nn.Linear(4, 2, bias=False)),
        (1, 2, 2),
    ),
}


@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize(("passes", "chunk"), [(1, 4096), (3, 4096), (1, 5)])
def test_the_visits_are_independent(kind, passes, chunk, monkeypatch):
    """20 equal examples, each wrong with probability 1/2: a draw that any two visits shared would correlate them.

    The variance of the number of errors over 400 seeds, against npq. Its sampling error is 7.1 % (chi-squared of
    399 degrees of freedom), so 0.6 to 1.6 is left with probability < 1e-9. Draws shared by all would give 20 or more.
    In chunks of five, each with a seed of its own, neighbours that had the same draws would give 4.
    """
    monkeypatch.setattr(memory, "LARGEST_CHUNK", chunk)
    make, shape = NETS[kind]
    net = stochastic(make(), 1.0)
    with torch.no_grad():
        net.mean.zero_()
        if net.hidden_size:
            # The last layer is all but fixed: the hidden draw alone decides.
            first, second = net.mean[net.hidden_size :].view(2, -1)
            first.fill_(1)
            second.fill_(-1)
            net.rho[net.hidden_size :] = 1e-3
    data = as_data((torch.ones(20, *shape), torch.zeros(20)), classes=2)
    counts = [independent_errors(net, data, 20 * passes, seed) for seed in range(400)]
    assert 0.6 < spread_ratio(counts, 0.5, 20 * passes) < 1.6
    # The measure sees dependence where there is some.
    shared = [shared_errors(net, data, 1, seed)[0] for seed in range(400)]
    assert spread_ratio(shared, 0.5, 20) > 10


def test_shared_draws_are_the_same_for_every_chunk(hidden_net, monkeypatch):
    net, data = hidden_net(), gaussian_data(50)
    whole = shared_errors(net, data, 10, seed=4)
    for chunk in (1, 7, 49):
        monkeypatch.setattr(memory, "LARGEST_CHUNK", chunk)
        assert shared_errors(net, data, 10, seed=4) == whole
    monkeypatch.undo()
    monkeypatch.setattr(memory, "MEMORY_BUDGET", 1)
    assert shared_errors(net, data, 10, seed=4) == whole


def test_shared_draws_use_one_network_for_all_examples(coin):
    data = as_data((torch.ones(30, 1), torch.zeros(30)), classes=2)
    assert set(shared_errors(coin(), data, 50, seed=0)) == {0, 30}


@pytest.mark.parametrize("per_example", [True, False])
def test_the_chunk_shrinks_with_the_budget(per_example, monkeypatch):
    net = stochastic(nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 3)), 0.1)
    data = as_data((torch.ones(2, 1, 6, 6), torch.zeros(2)), classes=3)
    sizes = []
    for budget in (2**40, 2**24, 2**20, 2**16, 1):
        monkeypatch.setattr(memory, "MEMORY_BUDGET", budget)
        sizes.append(chunk_size(net, data.x, per_example_weights=per_example))
        # One float of each output and each column of the convolution at least, for each example.
        assert sizes[-1] == 1 or sizes[-1] * 4 * (8 * 36 + 36 * 9) <= budget
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == memory.LARGEST_CHUNK and sizes[-1] == 1
    assert 1 < sizes[2] < sizes[0]


def test_the_chunk_of_a_network_whose_examples_pass_one_by_one_shrinks_with_the_budget(monkeypatch):
    """Attention makes [heads, length, length] numbers of an example, which no layer's output shows."""
    length = 64
    encoder = nn.TransformerEncoderLayer(4, 2, 4, batch_first=True)
    net = stochastic(nn.Sequential(encoder, nn.Flatten(), nn.Linear(4 * length, 3)), 0.1)
    data = as_data((torch.ones(2, length, 4), torch.zeros(2)), classes=3)
    assert not net.drawn_by_rules
    sizes = []
    for budget in (2**40, 2**24, 2**20, 1):
        monkeypatch.setattr(memory, "MEMORY_BUDGET", budget)
        sizes.append(chunk_size(net, data.x))
        assert sizes[-1] == chunk_size(net, data.x, per_example_weights=False)
        assert sizes[-1] == 1 or sizes[-1] * 4 * length * length <= budget
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == memory.LARGEST_CHUNK and sizes[-1] == 1
    assert sizes[1] > 50


def test_ties_and_nan_count_as_errors(monkeypatch):
    data = as_data((torch.eye(6), torch.zeros(6)), classes=2)
    nan, inf = float("nan"), float("inf")
    outputs = torch.tensor([[1.0, 0.0], [1.0, 1.0], [nan, 0.0], [1.0, nan], [nan, nan], [inf, inf]])
    monkeypatch.setattr(
        StochasticNetwork, "forward", lambda self, x, *args: outputs[x.argmax(-1)] if len(x) > 1 else outputs[:1]
    )
    net = stochastic(nn.Linear(6, 2), 0.1)
    assert independent_errors(net, data, 6, 0) == 5
    assert shared_errors(net, data, 2, 0) == [5, 5]


def test_test_error_against_a_direct_loop(hidden_net):
    net, data = hidden_net(), gaussian_data(30)
    mean, deviation = monte_carlo.test_error(net, data, draws=40, seed=9)
    counts = shared_errors(net, data, 40, 9)
    rates = [count / 30 for count in counts]
    average = sum(rates) / 40
    assert mean == pytest.approx(average, rel=1e-12)
    assert deviation == pytest.approx(math.sqrt(sum((r - average) ** 2 for r in rates) / 39), rel=1e-12)
    assert monte_carlo.test_error(net, data, draws=1, seed=9) == (rates[0], 0.0)


def test_a_fixed_body_is_run_once_and_the_test_error_is_the_same():
    body, passes = nn.Sequential(nn.Linear(4, 8), nn.Tanh()), []
    net = stochastic(nn.Sequential(body, nn.Linear(8, 3)), 0.1, layers=["1"])
    data = as_data((torch.randn(50, 4), torch.arange(50) % 3))
    counts = torch.tensor(shared_errors(net, data, 40, 9)) / 50
    hook = nn.modules.module.register_module_forward_hook(
        lambda m, *_: passes.append(m) if type(m) is nn.Tanh else None
    )
    before = torch.get_rng_state()
    try:
        mean, deviation = monte_carlo.test_error(net, data, draws=40, seed=9)
    finally:
        hook.remove()
    assert torch.equal(torch.get_rng_state(), before)
    assert mean == pytest.approx(float(counts.mean())) and deviation == pytest.approx(float(counts.std()))
    # Some examples alone, to see that they do not depend on each other; and not once for each draw.
    assert 0 < len(passes) < 40


def test_test_error_is_the_rate_at_which_the_label_is_not_the_largest(hidden_net):
    """The same networks drawn by hand, each from a seed of its own."""
    net, data = hidden_net(), gaussian_data(30)
    expected = []
    with torch.no_grad():
        for draw in range(15):
            generator = torch.Generator().manual_seed(derived_seed(2, *monte_carlo._SHARED) + draw)
            outputs = net(data.x, "shared", generator)
            expected.append(int((outputs.argmax(1) != data.y).sum()))
    assert shared_errors(net, data, 15, 2) == expected


def test_progress_goes_up_to_one(hidden_net):
    seen: list[float] = []
    independent_errors(hidden_net(), gaussian_data(), 100, 0, seen.append)
    assert seen == sorted(seen) and seen[-1] == 1
    seen.clear()
    shared_errors(hidden_net(), gaussian_data(), 4, 0, seen.append)
    assert seen == [0.25, 0.5, 0.75, 1]


@pytest.mark.parametrize("draws", [0, -1])
@pytest.mark.parametrize("count", [independent_errors, shared_errors])
def test_at_least_one_draw(count, draws, hidden_net):
    with pytest.raises(InvalidInput, match=f"at least 1, and is {draws}"):
        count(hidden_net(), gaussian_data(), draws, 0)


def test_no_two_parts_of_the_draws_have_the_same_stream():
    """PyTorch's generator on a CPU takes the last 32 bits of a seed; hashed ones would meet among so many."""
    start = derived_seed(3, *monte_carlo._INDEPENDENT)
    assert len({monte_carlo._stream(start, number) % 2**32 for number in range(300_000)}) == 300_000
    assert all(0 <= monte_carlo._stream(2**63 - 2, number) < 2**63 for number in range(4))


def test_neighbouring_streams_are_unrelated():
    """The first eight normals of 20,000 streams: mean, variance, and the correlation of each with the next stream's.

    Each is normal to a good approximation; beyond 6 deviations with probability 2e-9, 24 times.
    """
    generator = torch.Generator()
    z = torch.stack(
        [
            torch.randn(8, generator=generator.manual_seed(monte_carlo._stream(77, i)), dtype=torch.float64)
            for i in range(20_000)
        ]
    )
    for values, deviation in ((z, 1.0), (z.square() - 1, math.sqrt(2)), (z[1:] * z[:-1], 1.0)):
        assert (values.mean(0).abs() < 6 * deviation / math.sqrt(len(values))).all()


class Calibrated(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, outputs, y):
        return 1 - self.layer(outputs).softmax(1).gather(1, y[:, None])[:, 0]


def test_a_loss_that_learns_is_refused():
    net, loss = stochastic(nn.Linear(4, 2), 0.01), Calibrated()
    for fixed in (False, True):
        with pytest.raises(InvalidInput, match="the loss has weights of its own"):
            certify(net, noise(), loss=loss.requires_grad_(not fixed), draws=10)
    free = torch.ones((), requires_grad=True)
    with pytest.raises(InvalidInput, match="the loss has weights of its own"):
        certify(net, noise(), loss=lambda outputs, y: free * (outputs.argmax(1) != y), draws=10)
