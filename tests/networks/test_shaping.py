"""The data that have shaped a prior are known, on whichever way it came about."""

import copy
import pickle

import numpy as np
import pytest
import torch
from small_nets import noise
from torch import nn

import pacbayes as pb
from pacbayes import certify, fit, stochastic
from pacbayes.errors import InvalidInput
from pacbayes.networks.layers import Draw
from pacbayes.networks.normals import normals_like
from pacbayes.runs.certify import certify_run
from pacbayes.runs.config import Config
from pacbayes.runs.train import train_run


@pytest.mark.parametrize("spoil", ["every row twice", "other labels", "a tenth"])
def test_prior_data_by_another_way_are_found(spoil):
    data, net = noise(), stochastic(nn.Linear(4, 2), 0.01)
    seen = {
        "every row twice": (torch.cat([data.x, data.x]), torch.cat([data.y, data.y])),
        "other labels": (data.x, 1 - data.y),
        "a tenth": (torch.cat([data.x[:6], noise(seed=1).x]), torch.cat([data.y[:6], data.y])),
    }[spoil]
    fit(net, seen, epochs=1)
    net.freeze_prior()
    with pytest.raises(InvalidInput, match="prior was trained on"):
        certify(net, data, draws=10)


def test_features_know_what_shaped_the_body():
    """A head of one's own on features of a body that has seen the bound data."""
    data = pb.load("digits").take(np.arange(400))
    body = pb.train_ordinary(pb.build("mlp", data.shape, 10), data, epochs=1)
    made, _ = pb.features(body, data)
    prior_data, bound_data = pb.split(made, fraction=0.5)
    net = stochastic(nn.Linear(made.shape[0], 10), 0.001)
    pb.freeze_prior(net, prior_data)
    with pytest.raises(pb.PacBayesError, match="prior was trained on some of these data"):
        certify(net, bound_data, draws=10)


def test_many_small_parts_are_seen_together():
    x = torch.randn(2000, 4, generator=torch.Generator().manual_seed(0))
    x[:30] = x[30:60]
    y = torch.arange(2000) % 2
    net = stochastic(nn.Linear(4, 2), 0.01)
    for i in range(0, 2000, 40):
        pb.fit(net, (x[i : i + 40], y[i : i + 40]), method="CE", epochs=1, keep="last")
    net.freeze_prior()
    with pytest.raises(pb.PacBayesError, match="prior was trained on some of these data"):
        certify(net, (x, y), draws=10)


def test_examples_that_recur_by_themselves_are_no_overlap():
    """Parts of the same data are told apart by their places, also where several parts have shaped the prior."""
    values = torch.randint(3000, (2000,), generator=torch.Generator().manual_seed(0))
    data = pb.Data(torch.stack([values // 100, values % 100], 1).float(), torch.arange(2000) % 2, 2)
    prior_data, bound_data = pb.split(data, fraction=0.8)
    net = stochastic(pb.standardise(nn.Sequential(nn.Linear(2, 2)), prior_data.take(np.arange(800))), 0.01)
    pb.freeze_prior(net, prior_data)
    prior = net.state("prior")
    pb.fit(net, bound_data, epochs=1)
    net.load_state(prior, "prior")  # as it was
    assert certify(net, bound_data, draws=10).m == 400


def test_a_posterior_loaded_as_a_prior_has_seen_the_bound_data():
    net = stochastic(nn.Linear(4, 2), 0.01)
    data = noise()
    pb.fit(net, data, epochs=1)
    net.load_state(net.state("posterior"), "prior")
    with pytest.raises(pb.PacBayesError, match="prior was trained on some of these data"):
        certify(net, data, draws=10)


class Times(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("factor", torch.ones(()))

    def forward(self, x):
        return self.factor * x


@pytest.mark.parametrize(
    "change",
    [lambda net: net.model[0].factor.fill_(2.0), lambda net: net.prior_mean.add_(1.0)],
    ids=["buffer", "prior"],
)
def test_a_prior_that_has_changed_does_not_mend_itself(change):
    net = stochastic(nn.Sequential(Times(), nn.Linear(4, 2)), 0.01)
    data = noise()
    pb.fit(net, data, epochs=1)
    change(net)
    net.load_state(net.state("prior"), "prior")
    with pytest.raises(pb.PacBayesError, match="prior was trained on some of these data"):
        certify(net, data, draws=10)


def test_a_posterior_of_another_network_has_learnt_from_data_that_nobody_has_named():
    net, data = stochastic(nn.Linear(4, 2), 0.01), noise()
    other = copy.deepcopy(net)
    pb.fit(net, data, epochs=1)
    other.load_state(net.state())
    assert certify(other, data, draws=10).check() == []  # any posterior may be certified
    with pytest.raises(pb.PacBayesError, match="learnt from data that nobody has named"):
        other.freeze_prior()
    # One's own may be put back.
    early = (again := stochastic(nn.Linear(4, 2), 0.01)).state()
    pb.fit(again, data, epochs=1)
    again.load_state(early)
    assert not again.trained_on.unnamed


def test_weights_of_a_loop_stay_unnamed_after_another_was_named():
    bound, prior = noise(300, 50), noise(200, 50, seed=1)
    net = stochastic(pb.build("mlp", bound.shape, 2), 1e-4)
    start = net.state()
    learnt_by_heart(net, bound)
    by_heart = net.state()
    net.load_state(start)
    learnt_by_heart(net, prior)
    pb.freeze_prior(net, prior)
    net.load_state(by_heart)
    for again in (net.freeze_prior, lambda: pb.learn_prior(net, prior)):
        with pytest.raises(pb.PacBayesError, match="learnt from data that nobody has named"):
            again()
    # Nor by the other way.
    net.load_state(net.state(), "prior")
    with pytest.raises(pb.PacBayesError, match="learnt from data that nobody has named"):
        certify(net, bound, draws=10)


def test_several_pairs_of_a_prior_and_a_posterior_may_be_loaded_in_turn():
    data, pairs = noise(), []
    for seed in (1, 2):
        other = stochastic(nn.Linear(4, 2), 0.01)
        pb.learn_prior(other, noise(seed=seed), pretraining={"epochs": 1}, training=None)
        pb.fit(other, data, epochs=1)
        pairs.append((other.state("prior"), other.state()))
    net = stochastic(nn.Linear(4, 2), 0.01)
    for prior, posterior in [*pairs, pairs[0]]:
        for states in ({"prior": prior, "posterior": posterior}, {"posterior": posterior, "prior": prior}):
            for which, state in states.items():
                net.load_state(state, which)
            assert certify(net, data, draws=10).check() == []


@pytest.mark.parametrize("way", ["drawn", "conditional_moments"])
def test_gradients_through_every_kind_of_pass_are_noticed(way):
    net, data = stochastic(nn.Linear(4, 2), 0.01), noise()
    normals = normals_like(net.mean, torch.Generator().manual_seed(0))
    out = getattr(net, way)(data.x, Draw("shared", normals))
    (out if way == "drawn" else out[1]).sum().backward()
    with pytest.raises(pb.PacBayesError, match="learnt from data that nobody has named"):
        net.freeze_prior()


def learnt_by_heart(net, data):
    """By a loop of one's own."""
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(30):
        optimiser.zero_grad()
        pb.objective(net, (data.x, data.y), m=len(data), method="CE").backward()
        optimiser.step()


def test_a_prior_of_a_loop_of_ones_own_must_name_its_data():
    bound, other = noise(300, 50), noise(200, 50, seed=1)
    net = stochastic(pb.build("mlp", bound.shape, 2), 1e-4)
    learnt_by_heart(net, bound)
    with pytest.raises(pb.PacBayesError, match="learnt from data that nobody has named"):
        net.freeze_prior()
    with pytest.raises(pb.PacBayesError, match="learnt from data that nobody has named"):
        pb.learn_prior(net, other)
    # Nor is it a prior by way of its own state.
    loaded = copy.deepcopy(net)
    loaded.load_state(net.state(), "prior")
    with pytest.raises(pb.PacBayesError, match="learnt from data that nobody has named"):
        certify(loaded, bound, draws=100)
    # A name is a name: what is said is remembered.
    named = copy.deepcopy(net)
    pb.freeze_prior(named, bound)
    with pytest.raises(pb.PacBayesError, match="trained on some of these data"):
        certify(named, bound, draws=100)
    pb.freeze_prior(net, other)
    learnt_by_heart(net, bound)  # the posterior may learn from anything
    assert certify(copy.deepcopy(net), bound, draws=100).check() == []
    assert certify(pickle.loads(pickle.dumps(net)), bound, draws=100).check() == []


def test_a_single_network_of_a_run_is_no_prior_for_its_data(tmp_path):
    data = noise(80, 4)
    np.savez(tmp_path / "coins.npz", x=data.x.numpy(), y=data.y.numpy())
    stages = {"pretraining": {"epochs": 1}, "prior_training": {"epochs": 0}, "posterior": {"epochs": 1}}
    config = Config().with_options({"data": str(tmp_path / "coins.npz"), "model": "mlp", **stages})
    run = train_run(config, tmp_path / "run")
    certify_run(run, predictor="single", test_draws=1)
    model = pb.load_single(run.path)
    for copied in (model, pickle.loads(pickle.dumps(model))):
        with pytest.raises(pb.PacBayesError, match=r"nobody has named.*load_single"):
            certify(stochastic(copied, 1e-5), data, draws=10)
    with pytest.raises(pb.PacBayesError, match="nobody has named"):
        pb.CertifiedClassifier(model=model, preprocessing=None).fit(data.x.numpy(), data.y.numpy())
    made, _ = pb.features(model, data)
    with pytest.raises(pb.PacBayesError, match="nobody has named"):
        certify(stochastic(nn.Linear(made.shape[0], 2), 0.01), made, draws=10)
    # Data that it is trained on after that do not name them.
    for learn in (pb.learn_prior, pb.scale_prior):
        net = stochastic(model, 1e-5)
        learn(net, noise(30, 4, seed=6))
        with pytest.raises(pb.PacBayesError, match="nobody has named"):
            certify(net, data, draws=10)
    # For other data it may be.
    net = stochastic(model, 1e-5)
    pb.freeze_prior(net, data)
    assert certify(net, noise(20, 4, seed=5), draws=10).check() == []


def test_a_stored_prior_may_be_begun_with_and_its_best_epoch_gone_back_to():
    data, other = noise(60, 4), noise(60, 4, seed=1)
    net = stochastic(pb.build("mlp", (4,), 2), 0.01)
    fit(net, other, epochs=1)
    best = net.state()
    fit(net, other, epochs=1)
    net.load_state(best)
    net.freeze_prior()
    again = stochastic(pb.build("mlp", (4,), 2), 0.01)
    for which in ("prior", "posterior"):
        again.load_state(net.state(which), which)
    pb.objective(again, (data.x, data.y), m=60)  # a look
    again.fix_catoni(1.0)
    fit(again, data, epochs=1)
    assert certify(again, data, draws=20, bound="catoni").check() == []


def test_equal_data_of_another_origin_are_remembered_too():
    """Their source may overlap with what they themselves do not."""
    raw = noise()
    first, second = (pb.features(nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 2)), raw)[0] for _ in range(2))
    net = stochastic(nn.Linear(5, 2), 0.01)
    for data in ((second.x, second.y), second):
        pb.learn_prior(net, data, pretraining={"epochs": 1}, training=None)
    with pytest.raises(InvalidInput, match="the prior was trained on some of these data"):
        certify(net, first, draws=10)


def test_a_prior_that_was_written_over_is_not_the_one_that_was_known():
    data, net = noise(), stochastic(nn.Linear(4, 2), 0.01)
    first = net.state("prior")
    pb.fit(net, data, epochs=1)
    with torch.no_grad():
        net.prior_mean.copy_(net.mean)
        net.prior_rho.copy_(net.rho)
    written = net.state("prior")
    for state in (first, written):
        net.load_state(state, "prior")
    with pytest.raises(pb.PacBayesError, match="prior was trained on some of these data"):
        certify(net, data, draws=10)


def test_weights_that_are_the_prior_again_have_seen_what_it_has():
    """Priors tried in turn, each with the posterior that begins there noted at once."""
    data, net, priors = noise(), stochastic(nn.Linear(4, 2), 0.01), []
    for seed in (1, 2):
        pb.learn_prior(net, noise(seed=seed), pretraining={"epochs": 1}, training=None)
        priors.append({which: net.state(which) for which in ("prior", "posterior")})
    for prior in priors * 2:
        for which, state in prior.items():
            net.load_state(state, which)
        net.state()
        pb.fit(net, data, epochs=1)
        assert certify(net, data, draws=10).check() == []


def test_a_scale_does_not_name_what_another_networks_weights_have_seen():
    data, net = noise(), stochastic(nn.Linear(4, 2), 0.01)
    pb.fit(net, data, epochs=1)
    other = stochastic(nn.Linear(4, 2), 0.01)
    other.load_state(net.state())
    with pytest.raises(pb.PacBayesError, match="nobody has named"):
        pb.scale_prior(other, noise(seed=1))
        certify(other, data, draws=10)
