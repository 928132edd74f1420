"""Issuing: only for data the prior never saw and a network whose fixed part is fixed, with fresh draws."""

from __future__ import annotations

import copy
import math
import pickle
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from pacbayes.bounds import clopper_pearson_upper
from pacbayes.certificates import certify, holdout_bound
from pacbayes.certificates import test_error as error_on
from pacbayes.certificates.monte_carlo import independent_errors, shared_errors
from pacbayes.data import as_data, split
from pacbayes.errors import InvalidInput, PacBayesError, UnsupportedModel
from pacbayes.networks import features, stochastic
from pacbayes.networks.distributions import scale_of
from pacbayes.training import fit
from pacbayes.training.priors import freeze_prior


def gaussian_data(m: int = 60, classes: int = 3, seed: int = 1):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(m) % classes
    return as_data((torch.eye(4)[y] + torch.randn(m, 4, generator=generator), y), classes=classes)


@pytest.fixture
def trained(hidden_net):
    net, data = hidden_net(), gaussian_data()
    fit(net, data, epochs=3, rate=0.05)
    return net, data


@pytest.mark.parametrize(
    ("sampling", "limit", "draws"),
    [
        ("independent", "two-sided", 250),
        ("independent", "one-sided", 250),
        ("independent", "clopper-pearson", 130),
        ("shared", "two-sided", 20),
        ("shared", "one-sided", 20),
    ],
)
def test_the_numbers_follow_from_the_counts(sampling, limit, draws, trained, exact_numbers):
    net, data = trained
    issued = certify(net, data, draws=draws, sampling=sampling, limit=limit, seed=7, delta=0.05, mc_delta=0.02)
    if sampling == "shared":
        assert issued.errors == sum(shared_errors(net, data, draws, 7))
        assert (issued.visits, issued.draws) == (draws * 60, draws)
    else:
        assert issued.errors == independent_errors(net, data, draws, 7)
        assert issued.visits == issued.draws == draws
    assert issued.m == 60 and (issued.delta, issued.mc_delta) == (0.05, 0.02)
    exact = exact_numbers(vars(issued))
    assert 0 <= issued.risk_bound - exact["risk_bound"] < 1e-10
    for name in ("empirical_risk", "empirical_risk_bound", "penalty", "confidence"):
        assert getattr(issued, name) == pytest.approx(float(exact[name]), rel=1e-11)
    assert issued.check() == []


def test_the_kl_is_that_of_posterior_and_prior_and_not_below(trained):
    net, data = trained
    with torch.no_grad():
        net.mean.add_(0.1)
        net.rho.mul_(1.2)
    # In float32, as the weights are drawn; the sum in float64.
    s, prior = (scale_of(v.detach()).double() for v in (net.rho, net.prior_rho))
    gap = net.mean.detach().double() - net.prior_mean.double()
    true = (torch.log(prior / s) + (s**2 + gap**2) / (2 * prior**2) - 0.5).sum().item()
    found = certify(net, data, draws=10, seed=0).kl
    assert true * (1 - 1e-13) <= found <= true * (1 + 1e-9)
    assert true > 0.1


def test_m_is_the_number_of_bound_examples(hidden_net):
    for m in (8, 33, 60):
        assert certify(hidden_net(), gaussian_data(m), draws=10).m == m


def test_fingerprints_name_the_network_and_the_data(trained):
    net, data = trained
    issued = certify(net, data, draws=10)
    assert issued.prior_fingerprint == net.fingerprint("prior") != issued.posterior_fingerprint
    assert issued.posterior_fingerprint == net.fingerprint("posterior")
    assert issued.bound_data_fingerprint == data.fingerprint()
    assert issued.objective == "invKL" and set(issued.versions) >= {"pacbayes", "python", "torch"}


def test_draws_are_fresh_unless_a_seed_is_given(trained):
    """Two fresh seeds of 63 bits agree with probability 1e-19."""
    net, data = trained
    first, second = certify(net, data, draws=500), certify(net, data, draws=500)
    assert first.seed != second.seed
    again = certify(net, data, draws=500, seed=first.seed)
    assert (again.errors, again.risk_bound) == (first.errors, first.risk_bound)


def test_fresh_draws_do_not_come_from_the_global_seed(trained):
    net, data = trained
    seeds = []
    for _ in range(2):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            seeds.append(certify(net, data, draws=10).seed)
    assert seeds[0] != seeds[1]


def test_nothing_else_changes(trained):
    net, data = trained
    before = net.fingerprint(), net.fingerprint("prior"), torch.get_rng_state()
    certify(net, data, draws=100)
    holdout_bound(net, data)
    assert (net.fingerprint(), net.fingerprint("prior")) == before[:2]
    assert torch.equal(torch.get_rng_state(), before[2])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delta": 0.0}, "delta must lie strictly between 0 and 1, and is 0.0"),
        ({"delta": 1.0}, "delta"),
        ({"delta": -0.1}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"mc_delta": 0.0}, "mc_delta must lie strictly between 0 and 1, and is 0.0"),
        ({"mc_delta": 1.5}, "mc_delta"),
        ({"delta": 0.5, "mc_delta": 0.5}, "delta \\+ mc_delta must be below 1"),
        ({"limit": "hoeffding"}, "limit 'hoeffding'"),
        ({"sampling": "mixed"}, "sampling 'mixed'"),
        ({"sampling": "mean"}, "sampling 'mean'"),
        ({"sampling": "shared", "limit": "clopper-pearson"}, "Clopper-Pearson"),
        ({"draws": 0}, "0"),
    ],
)
def test_options_that_make_no_certificate(options, words, hidden_net):
    with pytest.raises(InvalidInput, match=words):
        certify(hidden_net(), gaussian_data(), **{"draws": 20, **options})


@pytest.mark.parametrize(
    "options",
    [
        {"limit": "hoeffding"},
        {"sampling": "mixed"},
        {"delta": 0.5, "mc_delta": 0.5},
        {"sampling": "shared", "limit": "clopper-pearson"},
    ],
)
def test_options_are_refused_before_the_draws_are_made(options, hidden_net):
    """A hundred thousand draws are minutes of work on a real network."""
    done: list[float] = []
    with pytest.raises(InvalidInput):
        certify(hidden_net(), gaussian_data(), draws=20, progress=done.append, **options)
    assert done == []


@pytest.mark.parametrize("seed", [-1, 2**64, 2**70])
@pytest.mark.parametrize("sampling", ["independent", "shared"])
def test_a_seed_out_of_range_is_refused(seed, sampling, hidden_net):
    with pytest.raises(PacBayesError, match="seed"):
        certify(hidden_net(), gaussian_data(), draws=10, sampling=sampling, seed=seed)


def test_fewer_than_eight_examples_are_refused(hidden_net):
    with pytest.raises(InvalidInput, match="m = 7"):
        certify(hidden_net(), gaussian_data(7), draws=10)


def test_another_number_of_classes_is_refused(hidden_net):
    with pytest.raises(InvalidInput, match="classes"):
        certify(hidden_net(3), gaussian_data(classes=4), draws=10)


@pytest.fixture
def learnt(hidden_net):
    """A network with a prior learnt on one part of the data."""
    data = gaussian_data(80)
    prior_data, bound_data = split(data, 0.5, seed=3)
    net = hidden_net()
    fit(net, prior_data, objective="ERM", epochs=2, rate=0.05)
    net.freeze_prior()
    fit(net, bound_data, epochs=2, rate=0.01)
    return net, data, prior_data, bound_data


@pytest.mark.parametrize("issue", [lambda net, data: certify(net, data, draws=10), holdout_bound])
def test_the_data_of_the_prior_are_refused(issue, learnt):
    net, data, prior_data, bound_data = learnt
    issue(net, bound_data)
    generator = torch.Generator().manual_seed(0)
    shuffled = prior_data.take(torch.randperm(len(prior_data), generator=generator).tolist())
    copied = as_data((prior_data.x.clone(), prior_data.y.clone()), classes=3)
    for shown in (prior_data, data, shuffled, copied):
        with pytest.raises(InvalidInput, match="prior was trained on"):
            issue(net, shown)


@pytest.mark.parametrize("issue", [lambda net, data: certify(net, data, draws=10), holdout_bound])
def test_a_part_of_the_prior_data_is_refused_too(issue, learnt):
    """Two splits with different seeds overlap in half of their examples: the published 'faulty split'."""
    net, data, prior_data, _ = learnt
    _, overlapping = split(data, 0.5, seed=4)
    for shown in (overlapping, prior_data.take(range(20))):
        with pytest.raises(InvalidInput, match="prior was trained on"):
            issue(net, shown)


def test_every_stage_of_the_prior_counts(hidden_net):
    first, second, third = gaussian_data(seed=1), gaussian_data(seed=2), gaussian_data(seed=3)
    net = hidden_net()
    fit(net, first, method="CE", epochs=1)
    fit(net, second, objective="ERM", epochs=1)
    net.freeze_prior()
    certify(net, third, draws=10)
    for shown in (first, second):
        with pytest.raises(InvalidInput, match="prior was trained on"):
            certify(net, shown, draws=10)


def test_data_of_few_distinct_rows_can_be_certified(hidden_net):
    """Rows that recur because there are few kinds of examples are no sign of a prior that saw the bound data."""
    y = torch.arange(200) % 3
    prior_data, bound_data = split(as_data((torch.eye(4)[y], y), classes=3), 0.5)
    net = hidden_net()
    fit(net, prior_data, epochs=1)
    net.freeze_prior()
    fit(net, bound_data, epochs=1)
    assert certify(net, bound_data, draws=10).m == 100


def test_data_of_the_posterior_are_what_it_is_certified_on(trained):
    net, data = trained
    assert net.trained_on
    issued = certify(net, data, draws=10)
    assert issued.m == len(data) and issued.bound_data_fingerprint == data.fingerprint()


class WithBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.zeros(4))
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.last = nn.Linear(4, 3)

    def forward(self, x):
        return self.last(self.frozen(x + self.shift))


@pytest.mark.parametrize("what", ["shift", "frozen.weight"])
def test_a_fixed_part_that_changed_after_the_freeze_voids_the_certificate(what):
    net, data = stochastic(WithBuffer(), 0.1), gaussian_data()
    certify(net, data, draws=10)
    with torch.no_grad():
        net.model.state_dict()[what].add_(1e-3)
    with pytest.raises(UnsupportedModel, match="changed since the prior was frozen"):
        certify(net, data, draws=10)
    net.freeze_prior()
    certify(net, data, draws=10)


def test_holdout_is_the_priors_clopper_pearson_with_one_draw_an_example(learnt):
    net, _, _, bound_data = learnt
    with torch.no_grad():
        net.mean.add_(5)  # a posterior far from the prior must not matter
    errors = independent_errors(net.prior_network(), bound_data, len(bound_data), 11)
    for delta in (0.035, 0.2):
        expected = clopper_pearson_upper(errors, len(bound_data), delta)
        assert holdout_bound(net, bound_data, delta=delta, seed=11) == expected
    assert errors < len(bound_data) * 0.9


def test_holdout_draws_are_fresh(coin):
    """20 bounds from counts of 40 fair coins: all the same with probability below 1e-15."""
    data = as_data((torch.ones(40, 1), torch.arange(40) % 2), classes=2)
    assert len({holdout_bound(coin(), data) for _ in range(20)}) > 1


def test_holdout_without_draws_counts_the_errors_of_the_priors_means(learnt):
    net, _, _, bound_data = learnt
    wrong = int((net.prior_network()(bound_data.x, "mean").argmax(1) != bound_data.y).sum())
    with torch.no_grad():
        net.mean.add_(5)
    expected = clopper_pearson_upper(wrong, len(bound_data), 0.1)
    for seed in (1, 2):
        assert holdout_bound(net, bound_data, delta=0.1, seed=seed, drawn=False) == expected
    assert wrong < len(bound_data) * 0.9


def test_twins_in_the_prior_data_are_pointed_out():
    """Oversampled before the split: the prior has seen a part of the bound data."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(600, 5, generator=generator), (torch.arange(600) % 5 == 0).long()
    rare = torch.nonzero(y).squeeze(1)
    prior_data, bound_data = split((torch.cat([x, x[rare]]), torch.cat([y, y[rare]])), 0.5)
    net = stochastic(nn.Linear(5, 2), 0.1)
    freeze_prior(net, prior_data)
    with (
        pytest.warns(UserWarning, match="have input and label of one that the prior has seen"),
        pytest.warns(UserWarning, match="are copies of others"),
    ):
        certify(net, bound_data, draws=50)
    freeze_prior(other := stochastic(nn.Linear(5, 2), 0.1), (x[:300], y[:300]))
    certify(other, (x[300:], y[300:]), draws=50)


def test_the_constant_of_catonis_bound_is_not_chosen_by_the_result():
    x, y = torch.randn(60, 5), torch.arange(60) % 2
    net = stochastic(nn.Linear(5, 2), 0.1)
    net.fix_catoni(0.5)
    net.fix_catoni(1.0)
    certify(net, (x, y), draws=50, bound="catoni")
    net.fix_catoni(2.0)
    with pytest.raises(InvalidInput, match="was computed before C was fixed"):
        certify(net, (x, y), draws=50, bound="catoni")
    certify(net, (x + 1, y), draws=50, bound="catoni")  # which have chosen nothing


def test_the_constant_of_catonis_bound_is_not_chosen_by_an_error_on_the_bound_data():
    held, bound = split((torch.randn(120, 5), torch.arange(120) % 2), 0.5)
    net = stochastic(nn.Linear(5, 2), 0.1)
    error_on(net, held, draws=2)
    net.fix_catoni(1.0)
    error_on(net, bound, draws=2)
    certify(net, bound, draws=50, bound="catoni")
    for copied in (
        lambda net: net,
        copy.deepcopy,
        lambda net: pickle.loads(pickle.dumps(net)),
        lambda net: features(net, bound)[1],
        lambda net: net.prior_network(),
    ):
        net = stochastic(nn.Linear(5, 2), 0.1)
        for _ in range(2):
            error_on(net, (bound.x, bound.y), draws=2)
        assert len(net.looks) == 1
        looked = copied(net)
        looked.fix_catoni(1.0)
        with pytest.raises(InvalidInput, match="was computed before C was fixed"):
            certify(looked, bound, draws=50, bound="catoni")
        freeze_prior(looked, held)  # which takes C back
        certify(looked, bound, draws=50, bound="catoni")


def test_the_constant_of_catonis_bound_is_not_chosen_by_what_the_prior_shows():
    """The prior's own network is a copy, and what it shows on the bound data counts all the same."""
    held, bound = split((torch.randn(120, 5), torch.arange(120) % 2), 0.5)
    net = stochastic(nn.Linear(5, 2), 0.1)
    error_on(net.prior_network(), bound, draws=2)
    net.fix_catoni(1.0)
    with pytest.raises(InvalidInput, match="was computed before C was fixed"):
        certify(net, bound, draws=50, bound="catoni")
    net = stochastic(nn.Linear(5, 2), 0.1)
    certify(net.prior_network(), bound, draws=50)
    net.fix_catoni(1.0)
    with pytest.raises(InvalidInput, match="was computed before C was fixed"):
        certify(net, bound, draws=50, bound="catoni")


def test_a_loss_that_depends_on_the_batch_is_refused():
    def of_the_batch(outputs, labels):
        losses = nn.functional.cross_entropy(outputs, labels, reduction="none")
        return losses / losses.max()

    net = stochastic(nn.Linear(5, 2), 0.1)
    with pytest.raises(InvalidInput, match="depends on the other examples"):
        certify(net, (torch.randn(60, 5), torch.arange(60) % 2), draws=50, loss=of_the_batch)


def test_a_loss_of_the_batch_is_found_where_all_answers_are_right():
    def share(outputs, labels):
        return (outputs.argmax(-1) != labels).float() / len(labels)

    y = torch.arange(60) % 2
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.copy_(100 * torch.eye(2))
    with pytest.raises(InvalidInput, match="depends on the other examples"):
        certify(stochastic(model, 0.01), (torch.eye(2)[y], y), draws=50, loss=share)


def test_a_loss_is_asked_about_labels_that_occur():
    cost = torch.tensor([[0.0, 1.0, 1.0], [0.5, 0.0, 1.0]])
    net = stochastic(nn.Linear(5, 3), 0.1)
    data = as_data((torch.randn(60, 5), torch.arange(60) % 2), classes=3)
    certify(net, data, draws=50, loss=lambda outputs, labels: cost[labels, outputs.argmax(-1)])


def test_a_shape_that_the_model_does_not_take_is_one_line():
    net, y = stochastic(nn.Linear(5, 2), 0.1), torch.arange(60) % 2
    for check in (partial(certify, draws=50), holdout_bound):
        with pytest.raises(InvalidInput, match=r"does not take examples of shape \[4\]"):
            check(net, (torch.randn(60, 4), y))


def test_copies_are_pointed_out():
    """Copied before the split, or certified on the prior data twice over: m counts what was never drawn."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(120, 5, generator=generator), torch.randint(2, (120,), generator=generator)
    net = stochastic(nn.Linear(5, 2), 0.1)
    with pytest.warns(UserWarning, match="120 of the 240 examples are copies"):
        certify(net, (x.repeat(2, 1), y.repeat(2)), draws=50)
    certify(net, (x, y), draws=50)
    # Few distinct inputs recur by themselves; a few measured ones do not.
    certify(net, ((x > 0).float() / 2, y), draws=50)
    with pytest.warns(UserWarning, match="360 of the 400 examples are copies"):
        certify(net, (x[:40].repeat(10, 1), y[:40].repeat(10)), draws=50)


@pytest.mark.parametrize(
    "shown", [lambda net, data: fit(net, data, epochs=1), lambda net, data: certify(net, data, draws=50)]
)
@pytest.mark.parametrize("loaded", [False, True])
def test_the_constant_of_catonis_bound_is_not_chosen_by_what_a_copy_shows(shown, loaded):
    """Neither by the history of its training nor by its certificate; nor does one that is loaded come without that."""
    net, data = stochastic(nn.Linear(5, 2), 0.1), (torch.randn(60, 5), torch.arange(60) % 2)
    shown(copy.deepcopy(net), data)
    if loaded:
        other = stochastic(nn.Linear(5, 2), 0.1)
        other.fix_catoni(1.0)
        net.load_state(other.state("prior"), "prior")
    else:
        net.fix_catoni(1.0)
    with pytest.raises(InvalidInput, match="was computed before C was fixed"):
        certify(net, data, draws=50, bound="catoni")


def test_copies_for_other_data_may_fix_their_own_constant():
    base = stochastic(nn.Linear(5, 2), 0.1)
    for shift in range(2):
        net = copy.deepcopy(base)
        net.fix_catoni(1.0)
        certify(net, (torch.randn(60, 5) + shift, torch.arange(60) % 2), draws=50, bound="catoni")


def test_a_pair_that_is_given_again_is_not_kept_again():
    net, pair = stochastic(nn.Linear(5, 2), 0.1), (np.random.default_rng(0).random((60, 5)), np.arange(60) % 2)
    for _ in range(3):
        fit(net, pair, epochs=1)
    assert len(net.trained_on) == 1
    fit(net, (pair[0][::-1].copy(), pair[1]), epochs=1)
    assert len(net.trained_on) == 2
