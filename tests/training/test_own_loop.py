"""A training loop of one's own: pb.objective is what fit minimises, and the certificate afterwards is as good."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import pacbayes as pb
from pacbayes.errors import InvalidInput
from pacbayes.training.loss import batch_loss, objective_of
from pacbayes.training.objective import OPTIONS
from pacbayes.training.priors import PRETRAINING
from pacbayes.training.settings import Settings


def loader(data: pb.Data, seed: int = 0) -> DataLoader:
    generator = torch.Generator().manual_seed(seed)
    return DataLoader(TensorDataset(data.x, data.y), batch_size=32, shuffle=True, generator=generator)


def train(net, data, epochs=30, rate=3e-3, seed=0, **options) -> list[float]:
    """The loop of the README."""
    optimiser, generator = torch.optim.Adam(net.parameters(), lr=rate), torch.Generator().manual_seed(seed)
    losses = []
    for _ in range(epochs):
        for batch in loader(data, seed):
            optimiser.zero_grad()
            loss = pb.objective(net, batch, m=len(data), generator=generator, **options)
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    "options",
    [{}, {"objective": "McAll", "kappa": 0.3}, {"objective": "lbd"}, {"method": "S", "p_min": 0.01}, {"delta": 0.2}],
)
def test_it_is_the_objective_of_fit(options, blobs, small_net):
    """The value and the gradient that fit follows, for the m that is given and not the batch's."""
    x, y = blobs(16)
    net = small_net()
    with torch.no_grad():
        net.mean += 0.1
    value = pb.objective(net, (x, y), m=500, generator=torch.Generator().manual_seed(3), **options)
    noise = torch.Generator().manual_seed(3)
    settings = Settings(lam="best", **options)
    loss, _ = batch_loss(net, x, y, settings, lambda size: torch.randn(size, generator=noise))
    expected = objective_of(loss, net.kl(), settings, 500)
    torch.testing.assert_close(value.double(), expected.double(), rtol=1e-5, atol=0)
    weights = (net.mean, net.rho)
    for ours, theirs in zip(torch.autograd.grad(value, weights), torch.autograd.grad(expected, weights), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-6)
        assert ours.abs().sum() > 0
    assert net.objective == options.get("objective", "invKL")


def test_a_plain_loop_trains_and_its_certificate_holds(blobs, small_net, average_bound):
    data = pb.Data(*blobs(400), 2)
    net = small_net()
    before = average_bound(net, (data.x, data.y))
    losses = train(net, data)
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])
    certificate = pb.certify(net, data, draws=4000, seed=1)
    assert not certificate.check() and certificate.objective == "invKL" and certificate.m == 400
    assert certificate.risk_bound < 0.7 * before and 0 < certificate.kl < 40


def test_a_prior_of_ones_own_loop_is_remembered(blobs, small_net):
    prior_data, bound_data = pb.split(blobs(400), 0.5)
    net = small_net()
    train(net, prior_data, kappa=0.01)
    pb.freeze_prior(net, prior_data)
    assert float(net.kl().detach()) == 0
    train(net, bound_data, epochs=5, rate=3e-4)
    assert pb.certify(net, bound_data, draws=4000, seed=1).risk_bound < 0.25
    with pytest.raises(InvalidInput, match="the prior was trained on some of these data"):
        pb.certify(net, prior_data, draws=100)
    with pytest.raises(InvalidInput, match="the prior was trained on some of these data"):
        pb.certify(net, blobs(400), draws=100)


def test_pairs_of_arrays_are_remembered_too(blobs, small_net):
    x, y = blobs(60)
    net = small_net()
    pb.freeze_prior(net, (x[:20], y[:20]), (x[20:40], y[20:40]))
    pb.certify(net, (x[40:], y[40:]), draws=100)
    for rows in (slice(0, 20), slice(30, 60)):
        with pytest.raises(InvalidInput, match="the prior was trained on some of these data"):
            pb.certify(net, (x[rows], y[rows]), draws=100)


def test_a_loop_with_a_loss_of_ones_own_must_name_its_data_too(blobs, small_net):
    x, y = blobs(60)
    for prior in (lambda net: net.freeze_prior(), lambda net: pb.learn_prior(net, (x[:30], y[:30]))):
        net = small_net()
        optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
        torch.nn.functional.cross_entropy(net(x, "mean"), y).backward()
        optimiser.step()
        with pytest.raises(InvalidInput, match="data that nobody has named"):
            prior(net)
        pb.freeze_prior(net, (x, y))
    # Who only looks at its outputs trains nothing.
    net = small_net()
    pb.fit(net, (x, y), epochs=1)
    net(x).argmax(1)
    net.freeze_prior()


def test_a_loop_after_a_prior_is_not_hidden_by_its_scale(blobs, small_net):
    prior_data, bound_data = pb.split(blobs(200), 0.5)
    net = small_net()
    pb.learn_prior(net, prior_data)
    train(net, bound_data, epochs=1)
    with pytest.raises(InvalidInput, match="data that nobody has named"):
        pb.scale_prior(net, prior_data)


def test_nothing_in_front_of_the_network_may_train(blobs, small_net):
    x, y = blobs(60)
    front, net = torch.nn.Linear(x.shape[1], x.shape[1]), small_net()
    for use in (
        lambda inputs: pb.objective(net, (inputs, y), m=60),
        lambda inputs: pb.certify(net, (inputs, y), draws=100),
        lambda inputs: pb.fit(net, (inputs, y), epochs=1),
    ):
        with pytest.raises(InvalidInput, match="Make it a part of the model"):
            use(front(x))
    pb.certify(net, (front(x).detach(), y), draws=100)


def test_a_prior_must_name_its_data(small_net):
    with pytest.raises(InvalidInput, match="name the data"):
        pb.freeze_prior(small_net())


def test_the_noise_is_fresh_unless_a_generator_fixes_it(blobs, small_net):
    batch, net = blobs(16), small_net(classes=2, variance=0.3)
    values = [pb.objective(net, batch, m=100).item() for _ in range(3)]
    assert len(set(values)) == 3
    fixed = [pb.objective(net, batch, m=100, generator=torch.Generator().manual_seed(1)).item() for _ in range(2)]
    assert fixed[0] == fixed[1]


def test_weights_that_are_not_finite_have_no_certificate(blobs, small_net):
    """A loop of one's own may diverge: it must not end in a certificate."""
    for vector in ("mean", "rho"):
        net = small_net()
        with torch.no_grad():
            getattr(net, vector)[0] = float("nan")
        with pytest.raises(pb.PacBayesError):
            pb.certify(net, blobs(60), draws=100)


@pytest.mark.parametrize("option", ["epochs", "rate", "batch_size", "lam", "seed"])
def test_what_belongs_to_the_loop_is_not_taken_and_ignored(option, blobs, small_net):
    with pytest.raises(InvalidInput, match=f"unknown option '{option}'"):
        pb.objective(small_net(), blobs(16), m=100, **{option: 1})
    assert option not in OPTIONS


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, y: (x, y.float()), "int64"),
        (lambda x, y: (x, y[:-1]), r"\[15\]"),
        (lambda x, y: (x[:, 0], y), r"float32 \[16\]"),
    ],
)
def test_bad_batches_are_named(change, words, blobs, small_net):
    with pytest.raises(InvalidInput, match=words):
        pb.objective(small_net(), change(*blobs(16)), m=100)


@pytest.mark.parametrize("m", [0, 7, -3])
def test_too_few_bound_data(m, blobs, small_net):
    with pytest.raises(InvalidInput, match="8"):
        pb.objective(small_net(), blobs(16), m=m)


def test_single_settings_of_a_priors_stages(blobs, small_net):
    seen = []
    pb.learn_prior(small_net(), blobs(60), pretraining={"epochs": 3}, training={"epochs": 2}, callback=seen.append)
    assert [epoch.epoch for epoch in seen] == [0, 1, 2, 0, 1]
    assert seen[0].rate == pytest.approx(PRETRAINING.rate)
