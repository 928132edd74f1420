"""Bound data must be drawn once each and unseen by the prior; copies are pointed out."""

import numpy as np
import pytest
import torch
from small_data import noise
from torch import nn
from torch.utils.data import ConcatDataset, Subset, TensorDataset

import pacbayes as pb
from pacbayes import certify, split, stochastic
from pacbayes.certificates.bound_data import copies_among, copies_of
from pacbayes.data import as_data
from pacbayes.errors import InvalidInput


def test_examples_taken_twice_do_not_count_twice():
    data = noise().take(np.repeat(np.arange(60), 3))
    with pytest.raises(InvalidInput, match="taken twice"):
        certify(stochastic(nn.Linear(4, 2), 0.01), data, draws=10)


def test_a_subset_with_the_same_example_twice_is_refused():
    data = TensorDataset(torch.randn(60, 4), torch.arange(60) % 2)
    rows = [*range(60), 3, 7]
    whole = as_data(Subset(data, rows))
    assert (
        len(whole) == 62 and torch.equal(whole.x, data.tensors[0][rows]) and torch.equal(whole.y, data.tensors[1][rows])
    )
    with pytest.raises(InvalidInput, match="taken twice"):
        certify(stochastic(nn.Linear(4, 2), 0.01), Subset(data, rows), draws=10)
    assert certify(stochastic(nn.Linear(4, 2), 0.01), Subset(data, rows[::2]), draws=10).m == 31


class Named(Subset):
    """A class of one's own."""


ONES = TensorDataset(torch.randn(60, 4), torch.arange(60) % 2)
TWICE = {
    "a part of a part": Subset(Subset(ONES, [*range(60), 3, 7]), range(62)),
    "places from the end": Subset(ONES, [*range(60), -1]),
    "two parts in a row": ConcatDataset([ONES, Subset(ONES, [3, 7])]),
    "a part of two in a row": Subset(ConcatDataset([Subset(ONES, range(30)), ONES]), range(20, 60)),
    "a class of one's own": Named(ONES, [*range(60), 3]),
}


@pytest.mark.parametrize("way", TWICE)
def test_examples_taken_twice_on_whatever_way(way, tmp_path):
    with pytest.raises(InvalidInput, match="taken twice"):
        certify(stochastic(nn.Linear(4, 2), 0.01), TWICE[way], draws=10)
    with pytest.raises(InvalidInput, match="taken twice"):
        pb.store(TWICE[way], tmp_path / "stored")
    assert not (tmp_path / "stored").exists()


@pytest.mark.parametrize("kind", [np.int16, np.int32, np.uint64, torch.tensor])
def test_examples_are_those_that_were_asked_for(kind):
    """Whatever numbers name them; repeats are marked, and nothing takes another's place."""
    parts = [TensorDataset(1000 * part + torch.arange(200.0)[:, None], torch.arange(200) % 2) for part in range(2)]
    order = np.random.default_rng(0).permutation(400)
    data = as_data(Subset(ConcatDataset(parts), kind(order)))
    wanted = torch.cat([part.tensors[0] for part in parts])[order]
    assert torch.equal(data.x, wanted) and not data.repeats


class Views(Subset):
    """Two views of each example."""

    def __len__(self):
        return 2 * len(self.indices)

    def __getitem__(self, place):
        x, y = self.dataset[self.indices[place // 2]]
        return x + place % 2, y

    def __getitems__(self, places):
        return [self[place] for place in places]


def test_a_subset_of_ones_own_class_is_read_as_it_says():
    views = as_data(Views(ONES, range(30)))
    assert len(views) == 60 and torch.equal(views.x[1::2], views.x[::2] + 1) and not views.repeats


def test_parts_that_do_not_meet_may_be_put_together(tmp_path):
    data = ConcatDataset([Subset(ONES, range(20)), Subset(Subset(ONES, range(20, 60)), range(40))])
    assert certify(stochastic(nn.Linear(4, 2), 0.01), data, draws=10).m == 60
    assert torch.equal(pb.store(data, tmp_path / "stored").y, ONES.tensors[1])
    with pytest.raises(InvalidInput, match="taken twice"):
        pb.store(noise().take([0, 1, 1]), tmp_path / "other")


def test_overlap_is_exact_for_parts_of_the_same_data():
    data = noise(100)
    prior_data, bound_data = split(data, 0.5)
    assert not bound_data.overlaps(prior_data)
    assert bound_data.overlaps(data.take(bound_data.source[1][:1])), "one example is enough"


COPIED = {
    "words, mostly none": lambda g: g.random((600, 300)) < 0.03,
    "pixels": lambda g: g.integers(0, 256, (600, 64)),
    "words or none": lambda g: g.integers(0, 2, (600, 200)),
    "measured": lambda g: g.normal(size=(600, 5)),
}


FEW = {
    "two columns": lambda g: np.stack([g.integers(0, 2, 600), g.integers(0, 3, 600)], 1),
    "two columns, scaled": lambda g: np.stack([g.integers(0, 2, 600) / 7, g.integers(0, 3, 600) / 3], 1),
    "ten answers": lambda g: g.integers(0, 2, (600, 10)),
}


@pytest.mark.parametrize("kind", COPIED)
def test_copies_made_before_the_split_are_pointed_out(kind):
    g = np.random.default_rng(0)
    x, y = COPIED[kind](g), g.integers(0, 2, 600)
    again = g.permutation(600)[:200]
    prior, bound = pb.split((np.concatenate([x, x[again]]), np.concatenate([y, y[again]])), 0.5)
    assert copies_of([prior], bound)


@pytest.mark.parametrize("kind", FEW)
def test_what_recurs_by_itself_is_not_pointed_out(kind):
    g = np.random.default_rng(0)
    prior, bound = pb.split((FEW[kind](g), g.integers(0, 2, 600)), 0.5)
    assert bound.copied_from(prior).sum() > 0.1 * len(bound) and copies_of([prior], bound) is None
    assert copies_among(bound) is None


def test_copies_of_a_rare_class_are_pointed_out():
    """They are few of all the examples, and may be most of the errors."""
    g = np.random.default_rng(0)
    x, y = g.normal(size=(2000, 5)), (np.arange(2000) % 50 == 0).astype(int)
    rows = np.concatenate([np.arange(2000), *[np.flatnonzero(y)] * 2])
    prior, bound = pb.split((x[rows], y[rows]), 0.5)
    assert bound.copied_from(prior).sum() < 0.05 * len(bound) and copies_of([prior], bound)
    assert bound.copied.sum() < 0.05 * len(bound) and copies_among(bound)
    # A few by chance are not.
    x[-5:], y[-5:] = x[:5], y[:5]
    for part in pb.split((x, y), 0.5):
        assert copies_among(part) is None
    prior, bound = pb.split((x, y), 0.5)
    assert copies_of([prior], bound) is None
