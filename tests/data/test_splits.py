import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pacbayes.data import as_data, split, split_indices
from pacbayes.data.splits import permutation
from pacbayes.errors import InvalidInput

FRACTIONS = st.floats(0, 1, exclude_min=True, exclude_max=True)


@settings(deadline=None)
@given(m=st.integers(9, 500), fraction=FRACTIONS, seed=st.integers(0, 2**63 - 1))
def test_parts_are_disjoint_cover_everything_and_repeat(m, fraction, seed):
    cut = round(fraction * m)
    if cut == 0 or m - cut < 8:
        with pytest.raises(InvalidInput, match="leaves"):
            split_indices(m, fraction, seed)
        return
    prior, bound = split_indices(m, fraction, seed)
    assert len(prior) == cut
    assert sorted([*prior, *bound]) == list(range(m))
    again = split_indices(m, fraction, seed)
    assert np.array_equal(prior, again[0]) and np.array_equal(bound, again[1])


@settings(deadline=None)
@given(fraction=FRACTIONS, seed=st.integers(0, 1000))
def test_no_example_is_in_both_parts(fraction, seed):
    x = np.arange(40, dtype=np.float32)[:, None]
    data = as_data((x, np.arange(40) % 2))
    cut = round(fraction * 40)
    if 0 < cut <= 32:
        prior, bound = split(data, fraction, seed)
        assert len(prior) == cut
        assert torch.equal(torch.cat([prior.x, bound.x]).sort(0).values, data.x)


def test_the_permutation_is_fixed_for_good():
    assert permutation(10, 0).tolist() == [0, 8, 9, 3, 7, 5, 1, 2, 6, 4]
    assert permutation(10, 1).tolist() != permutation(10, 0).tolist()


def test_the_permutation_is_uniform():
    # 6,000 draws of 3 items: each of 6 orders has mean 1,000 and deviation 29; fails once in 10^6 or less.
    counts = np.unique([permutation(3, seed) for seed in range(6000)], axis=0, return_counts=True)[1]
    assert len(counts) == 6 and abs(counts - 1000).max() < 160


def test_split_keeps_classes_and_takes_a_pair():
    prior, bound = split((np.zeros((20, 2)), [0] * 19 + [5]), 0.5, seed=3)
    assert len(prior) == len(bound) == 10 and prior.classes == bound.classes == 6


def test_seed_defaults_to_zero():
    data = as_data((np.arange(20)[:, None], [0, 1] * 10))
    assert split(data, 0.3)[0].fingerprint() == split(data, 0.3, 0)[0].fingerprint()
    assert split(data, 0.3)[0].fingerprint() != split(data, 0.3, 1)[0].fingerprint()


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.1, float("nan"), float("inf")])
def test_fraction_must_lie_inside(fraction):
    with pytest.raises(InvalidInput, match=r"fraction must lie in \(0, 1\)"):
        split_indices(100, fraction, 0)


@pytest.mark.parametrize(
    ("m", "fraction", "message"),
    [
        (100, 0.001, "no prior data"),
        (100, 0.93, "leaves 7 for the bound"),
        (8, 0.5, "leaves 4 for the bound"),
    ],
)
def test_small_parts_are_refused(m, fraction, message):
    with pytest.raises(InvalidInput, match=message):
        split_indices(m, fraction, 0)


@pytest.mark.parametrize("seed", [-1, 0.5, None, "0"])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(InvalidInput, match="seed"):
        split_indices(100, 0.5, seed)
