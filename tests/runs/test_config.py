"""The configuration: TOML and back without loss, and nothing unknown or of another type taken."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacbayes.errors import InvalidInput
from pacbayes.runs import Config
from pacbayes.seeds import derived_seed


def read(tmp_path, text: str) -> Config:
    (tmp_path / "c.toml").write_text(text, encoding="utf-8")
    return Config.read(tmp_path / "c.toml")


def test_the_defaults_survive_a_round_trip(tmp_path):
    assert read(tmp_path, Config().to_toml()) == Config()
    assert read(tmp_path, "") == Config()


# What a path may hold, but for lone surrogates, which no UTF-8 file can.
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


@settings(max_examples=80, deadline=None)
@given(
    data=NAMES,
    prior_variance=st.floats(1e-300, 1e12),
    prior_fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**63 - 1),
    kappa=st.floats(0, 1e300),
    rate=st.floats(1e-300, 1e29),
    p_min=st.floats(1e-300, 0.49),
    dropped=st.booleans(),
)
def test_any_values_survive_a_round_trip(
    tmp_path_factory, data, prior_variance, prior_fraction, seed, kappa, rate, p_min, dropped
):
    config = Config().with_options(
        {
            "data": data, "prior_variance": prior_variance, "prior_fraction": prior_fraction, "seed": seed,
            "posterior": {"kappa": kappa, "rate": rate, "p_min": p_min},
            "prior_training": {"epochs": 0 if dropped else 7},
        }
    )  # fmt: skip
    path = tmp_path_factory.getbasetemp() / "round-trip.toml"
    path.write_bytes(config.to_toml().encode())
    assert Config.read(path) == config


def test_a_stage_without_epochs_is_left_out(tmp_path):
    config = read(tmp_path, "[pretraining]\nepochs = 0\n[prior_training]\nepochs = 0\n")
    assert config.pretraining is None and config.prior_training is None
    assert list(config.stages()) == ["posterior"]
    assert read(tmp_path, config.to_toml()) == config
    assert config.with_options({"pretraining": {"epochs": 4}}).pretraining.method == "CE"


def test_options_are_merged_into_the_stages(tmp_path):
    config = read(tmp_path, '[posterior]\nobjective = "quad"\nepochs = 7\n').with_options({"posterior": {"epochs": 9}})
    assert (config.posterior.objective, config.posterior.epochs) == ("quad", 9)
    assert config.posterior.rate == Config().posterior.rate


def test_stages_by_prior():
    assert list(Config().stages()) == ["pretraining", "prior", "posterior"]
    assert list(Config(prior="data-free").stages()) == ["posterior"]


def test_each_stage_has_a_seed_of_its_own_whatever_else_is_trained():
    seeds = {name: stage.seed for name, stage in Config(seed=5).stages().items()}
    assert seeds == {name: derived_seed(5, i) for i, name in enumerate(("pretraining", "prior", "posterior"))}
    assert len(set(seeds.values())) == 3
    without = Config(seed=5).with_options({"pretraining": {"epochs": 0}})
    assert without.stages()["posterior"].seed == seeds["posterior"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("epochs = 3", "unknown option 'epochs'"),
        ("[posteriour]\nepochs = 3", "posteriour"),
        ("[posterior]\nepoch = 3", "'epoch'"),
        ("[posterior]\nepochs = 3.5", "epochs must be .* 3.5"),
        ('[posterior]\nepochs = "3"', "epochs must be"),
        ("[posterior]\nepochs = true", "epochs must be"),
        ("[posterior]\nepochs = 0", "epochs must be a whole number of at least 1"),
        ("[posterior]\nkappa = nan", "kappa"),
        ("[posterior]\nobjective = 3", "objective must be"),
        ('[posterior]\nobjective = "kl"', "objective 'kl'"),
        ('[posterior]\nmethod = "CE"', "CE is for pretraining"),
        ('[prior_training]\nmethod = "CE"', "CE is for pretraining"),
        ('[posterior]\nkeep = "last"\naveraged = 2', "averaged weights are for priors"),
        ('[pretraining]\nmethod = "G"', "method CE"),
        ("posterior = 3", "posterior"),
        ('pretraining = "no"', "pretraining"),
        ("data = 3", "data must be"),
        ("data = []", "data must be"),
        ("[data]\nname = 3", "data"),
        ("[seed]\nx = 1", "seed"),
        ("seed = 1.5", "seed must be"),
        ("seed = -1", "seed"),
        ("seed = true", "seed"),
        ('prior = "none"', "prior 'none'"),
        ("expected_kl = 5.0", "expected_kl goes with"),
        ('[posterior]\nsampling = "mean"', "sampling 'mean'"),
        ("prior_fraction = 1.0", "prior_fraction"),
        ("prior_fraction = 0", "prior_fraction"),
        ("prior_fraction = nan", "prior_fraction"),
        ("prior_variance = 0.0", "prior_variance"),
        ("prior_variance = inf", "prior_variance"),
        ("seed = ", "TOML"),
        ("seed = 1\nseed = 2", "TOML"),
        ("a = " + "[" * 5000, "TOML"),
    ],
)
def test_what_is_refused_and_named(text, words, tmp_path):
    with pytest.raises(InvalidInput, match=words):
        read(tmp_path, text)


def test_a_stage_takes_no_seed_of_its_own(tmp_path):
    """It follows from the run's: one that is given would be ignored."""
    with pytest.raises(InvalidInput, match="seed"):
        read(tmp_path, "[posterior]\nseed = 5\n")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InvalidInput, match="none.toml"):
        Config.read(tmp_path / "none.toml")
    (tmp_path / "c.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="c.toml"):
        Config.read(tmp_path / "c.toml")


def test_integers_are_taken_for_floats(tmp_path):
    config = read(tmp_path, "prior_variance = 1\n[posterior]\nkappa = 2\n")
    assert (config.prior_variance, config.posterior.kappa) == (1.0, 2.0)


def test_the_usual_model_for_the_data():
    assert Config().model_name((1, 8, 8)) == "cnn-small"
    assert Config(data="digits-binary").model_name((1, 8, 8)) == "cnn-small"
    assert Config(data="mnist").model_name((1, 28, 28)) == "mnist-4"
    assert Config(data="my.npz").model_name((4,)) == "mlp"
    assert Config(data="my.npz", model="mlp-2").model_name((4,)) == "mlp-2"
