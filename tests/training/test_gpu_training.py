"""On a GPU: captured steps are the plain ones. Skipped where there is none."""

from __future__ import annotations

import gc
import math

import pytest
import torch

import pacbayes as pb
from pacbayes import Settings, build, load, stochastic
from pacbayes.bounds import kl_inverse
from pacbayes.networks.precision import full_precision
from pacbayes.networks.refusals import check_examples
from pacbayes.training import Ordinary
from pacbayes.training.capture import captured
from pacbayes.training.cuda_graphs import GraphEngine
from pacbayes.training.engine import PlainEngine
from pacbayes.training.ordinary import _Training
from pacbayes.training.stage import Stage

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore"),  # the compiler's own
]


def stage(**options: object) -> Stage:
    data = load("digits")
    net = stochastic(build("cnn-small", data.shape, data.classes), 0.001).to("cuda")
    check_examples(net, data.x)
    return Stage(net, data, Settings(batch_size=100, **options))


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_without_noise_an_epoch_of_graphs_is_the_plain_one(dropout):
    """A graph of eight steps, steps by themselves, and a short batch."""
    trained, sums = [], []
    # Rounded to TF32, two ways to compute the same step drift apart.
    with full_precision():
        for engine in (PlainEngine, GraphEngine):
            one = stage(method="CE", dropout=dropout)
            running = engine(one)
            for number in range(3):
                running.epoch(number, 0.02)
                running.collect()
            trained.append(one.state()["mean"])
            sums.append((float(one.objective_sum), float(one.error_sum), int(one.steps)))
    assert sums[0][2] == sums[1][2] == math.ceil(len(load("digits")) / 100) > 9
    if dropout:  # other masks, the same law
        assert sums[1][0] == pytest.approx(sums[0][0], rel=0.2)
    else:
        torch.testing.assert_close(*trained, rtol=0.02, atol=5e-3)
        assert sums[1][:2] == pytest.approx(sums[0][:2], rel=0.02)


def test_with_noise_graphs_end_where_plain_steps_do():
    """Risk and divergence swing to and fro, at this rate by a third; what they have in common is the bound."""
    bounds = []
    for engine in (PlainEngine, GraphEngine):
        one = stage(objective="invKL", method="G")
        running = engine(one)
        for number in range(200):
            running.epoch(number, 0.02)
            running.collect()
        bounds.append(kl_inverse(running.risk(), float(one.divergence_at(one.net.mean, one.net.rho)) / one.m))
    assert bounds[1] == pytest.approx(bounds[0], rel=0.08)
    assert max(bounds) < 0.86  # .9 before the first step


def test_an_ordinary_step_captured_is_the_plain_one():
    """One epoch in full precision: rounding tips a ReLU here and there, and the two drift apart from then on."""
    data = load("digits")
    settings = Ordinary(
        epochs=3, batch_size=100, rate=0.02, average=0.9, output_rate=0.5, augmentation="shift 1", mixing=0.5
    )
    model = build("cnn-small", data.shape, data.classes).to("cuda")
    before = _Training(model, data, settings).state()
    after, objectives = [], []
    with full_precision():
        for captured in (False, True):
            one = _Training(model, data, settings)
            if not captured:
                one._capturable = lambda: False
            objectives.append(one.epoch(0).objective)
            assert (one.captured is not None) == captured
            after.append(one.state())
    assert objectives[1] == pytest.approx(objectives[0], rel=1e-3)
    for part, tolerance in (("model.", 0.02), ("average.", 0.02), ("velocity.", 0.2)):
        names = [name for name in before if name.startswith(part) and "running" not in name and "num_" not in name]
        plain, graphs, start = (torch.cat([state[name].flatten() for name in names]) for state in (*after, before))
        assert (graphs - plain).norm() < tolerance * (plain - start).norm(), part


def test_ordinary_training_goes_on_where_it_was():
    data = load("digits")
    model = build("cnn-small", data.shape, data.classes).to("cuda")
    options = {"epochs": 3, "batch_size": 100, "rate": 0.05, "augmentation": "shift 1"}
    with full_precision():
        expected = pb.train_ordinary(model, data, **options)
        half = _Training(model, data, Ordinary(**options))
        half.epoch(0)
        rest = _Training(model, data, Ordinary(**options))
        rest.load(half.state())
        for number in (1, 2):
            rest.epoch(number)
    for name, tensor in rest.result().state_dict().items():
        torch.testing.assert_close(tensor, expected.state_dict()[name], rtol=0.05, atol=0.02)


def test_scattering_features_can_be_captured():
    data = load("digits")
    net = stochastic(build("scattering", data.shape, data.classes), 0.01).to("cuda")
    history = pb.fit(net, data, epochs=2, batch_size=100, rate=0.1)
    assert history.epochs[-1].risk < history.epochs[0].risk


def test_an_earlier_graph_that_becomes_garbage_does_not_spoil_a_capture():
    number, stream, generator = torch.zeros((), device="cuda"), torch.cuda.Stream(), torch.Generator("cuda")
    earlier = [captured(lambda: number.add_(1), generator, stream, lambda: None)]

    def body() -> None:
        cycle = [earlier.pop()]
        cycle.append(cycle)
        del cycle
        [[] for _ in range(10_000)]  # enough for Python to collect, unless it is told not to
        number.add_(1)

    captured(body, generator, stream, lambda: None).replay()
    assert float(number) == 1 and gc.isenabled()


class Looks(torch.nn.Module):
    """It reads a number of its inputs back, which no compiled step can."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(64, 16), torch.nn.Linear(16, 10)

    def forward(self, x):
        if not float(x.sum()) < math.inf:
            raise ValueError("the inputs are not finite")
        return self.last(self.first(x.flatten(1)).relu())


def test_what_cannot_be_compiled_takes_plain_steps():
    net = stochastic(Looks(), 0.001).to("cuda")
    with pytest.warns(UserWarning, match="takes plain steps"):
        history = pb.fit(net, load("digits"), epochs=2, batch_size=100, rate=0.01)
    assert all(math.isfinite(epoch.bound) for epoch in history.epochs)


@pytest.mark.parametrize("takes_any_layout", [True, False])
def test_a_model_may_view_the_outputs_of_its_convolution(takes_any_layout):
    class Viewed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Conv2d(1, 4, 3), torch.nn.Linear(144, 10)

        def forward(self, x):
            h = self.first(x)
            return self.last((h.flatten(1) if takes_any_layout else h.view(len(h), -1)).relu())

    net = stochastic(Viewed(), 0.001).to("cuda")
    history = pb.fit(net, load("digits"), epochs=3, batch_size=100, rate=0.01)
    assert all(math.isfinite(epoch.bound) for epoch in history.epochs)
    pb.certify(net, load("digits"), draws=200)
