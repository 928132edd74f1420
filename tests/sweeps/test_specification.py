"""The file of a sweep: what it may say, what it makes, and the words for what is wrong with it."""

from __future__ import annotations

import pytest

from pacbayes.errors import InvalidInput
from pacbayes.sweeps import Specification
from pacbayes.sweeps.axes import Range

SEARCH = 'kind = "search"\ntrials = 5\n'


def parse(text: str) -> Specification:
    return Specification.parse(text.encode())


def test_a_grid_has_every_combination_once():
    sweep = parse('[axes]\nposterior.rate = [0.1, 0.2]\nseed = [0, 1, 2]\n"posterior.kappa" = [1]')
    made = [tuple(sorted(parameters.items())) for parameters in sweep.grid()]
    assert len(made) == len(set(made)) == 6
    # Neighbours have other priors, so that these are made at the same time.
    assert [dict(parameters)["seed"] for parameters in made] == [0, 1, 2, 0, 1, 2]


def test_a_trial_is_the_base_with_its_values_and_its_share_of_delta():
    sweep = parse(
        '[axes]\nprior_variance = [0.1, 0.2]\nprior = ["learnt", "data-free"]\nposterior.rate = [0.5]\n'
        "[base]\nseed = 3\nposterior.epochs = 7\n[certify]\ndelta = 0.04"
    )
    config = sweep.config({"prior_variance": 0.2, "prior": "data-free", "posterior.rate": 0.5})
    assert (config.seed, config.prior_variance, config.prior) == (3, 0.2, "data-free")
    assert (config.posterior.epochs, config.posterior.rate) == (7, 0.5)
    assert config.priors == 4 and config.posterior.delta == 0.01


def test_ranges_are_whole_where_the_option_is():
    axes = parse(
        f"{SEARCH}[axes]\nposterior.epochs = {{ low = 2, high = 9 }}\nposterior.momentum = {{ low = 0, high = 0.9 }}\n"
        "posterior.rate = { low = 1e-4, high = 1, log = true }"
    ).axes
    assert axes["posterior.epochs"] == Range(2, 9, whole=True)
    assert axes["posterior.momentum"] == Range(0, 0.9)
    assert axes["posterior.rate"] == Range(1e-4, 1, log=True)


def test_searches_prune_and_grids_do_not_unless_they_are_told():
    assert parse(f"{SEARCH}[axes]\nseed = [0, 1]").prune and not parse("[axes]\nseed = [0, 1]").prune
    assert parse("prune = true\n[axes]\nseed = [0, 1]").prune


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "table \\[axes\\]"),
        ("[axes]", "table \\[axes\\]"),
        ("axes = 3", "table \\[axes\\]"),
        ("[axes", "not a TOML file"),
        ("colour = 1\n[axes]\nseed = [0]", "unknown entry 'colour'"),
        ('kind = "walk"\n[axes]\nseed = [0]', "unknown kind 'walk'"),
        ("[axes]\nseed = 3", "must be a list of values"),
        ("[axes]\nseed = []", "must list"),
        ("[axes]\nseed = [[1]]", "must list"),
        ("[axes]\nseed = [1, 2, 1]", "a value twice"),
        ("[axes]\nseed = [1, 1.0]", "a value twice"),
        ('[axes]\nposterior.rate = [1]\n"posterior.rate" = [2]', "given twice"),
        ("[axes]\ncolour = [1]", "unknown option 'colour'"),
        ("[axes]\nposterior.colour = [1]", "unknown option 'colour'"),
        ("[axes]\nmodel = ['mlp', 'mpl']", "the axis 'model': unknown model 'mpl'.*did you mean 'mlp'"),
        ("[axes]\nposterior.rate = [0.1, -1]", "the axis 'posterior.rate'"),
        ("[axes]\nposterior.seed = [1]", "has no seed of its own"),
        ("[axes]\nposterior.rate = { low = 0.1, high = 1 }", 'ranges are for kind = "search"'),
        (f"{SEARCH}[axes]\nposterior.rate = {{ low = 0.1 }}", "or a range"),
        (f"{SEARCH}[axes]\nposterior.rate = {{ low = 0.1, high = 1, step = 2 }}", "or a range"),
        (f"{SEARCH}[axes]\nposterior.rate = {{ low = 1, high = 0.1 }}", "upwards"),
        (f"{SEARCH}[axes]\nposterior.kappa = {{ low = 0, high = 1, log = true }}", "from above 0"),
        (f"{SEARCH}[axes]\nposterior.rate = {{ low = 0.1, high = inf }}", "two numbers"),
        (f"{SEARCH}[axes]\nposterior.epochs = {{ low = 1, high = 2.5 }}", "of type int"),
        (f"{SEARCH}[axes]\nposterior.objective = {{ low = 1, high = 2 }}", "of type str"),
        ('kind = "search"\n[axes]\nseed = [0]', "needs trials"),
        ("trials = 3\n[axes]\nseed = [0]", "leave trials out"),
        ('prune = "yes"\n[axes]\nseed = [0]', "prune must be of type bool"),
        ("[axes]\nseed = [0]\n[base]\ncolour = 1", "unknown option 'colour'"),
        ("base = 3\n[axes]\nseed = [0]", "\\[base\\]"),
        ("[axes]\nseed = [0]\n[base]\npriors = 2", "priors is set by the sweep"),
        ("[axes]\nseed = [0]\n[base]\nposterior.delta = 0.1", "give delta in \\[certify\\]"),
        ("[axes]\nseed = [0]\n[certify]\nvoters = 3", "unknown option of .certify. 'voters': choose one of bound"),
        ("[axes]\nseed = [0]\n[certify]\ndelta = 2.0", "delta must lie"),
        ("[axes]\nseed = [0]\n[certify]\nmc_delta = 0.0", "mc_delta must lie"),
        ("[axes]\nseed = [0]\n[certify]\nmc_delta = 'x'", "mc_delta must be of type float"),
        ("[axes]\nseed = [0]\n[certify]\ndraws = 0", "draws and test_draws must be at least 1"),
        ("[axes]\nseed = [0]\n[certify]\npredictor = 'single'\ndraws = 9", "draws would be ignored"),
        ("[axes]\nseed = [0]\n[certify]\npredictor = 'single'\nmc_delta = 0.1", "mc_delta would be ignored"),
        ('[axes]\nseed = [0]\n[certify]\nbound = "x"', "predictor 'x'"),
        (f"[axes]\nseed = {list(range(200))}\nposterior.samples = {list(range(1, 200))}", "is too large"),
    ],
)
def test_what_makes_no_sweep(text, words):
    with pytest.raises(InvalidInput, match=words):
        parse(text)
