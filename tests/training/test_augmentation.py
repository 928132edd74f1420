"""Augmentation: each change does what it says to each image, in a way of its own, and from the generator alone."""

from __future__ import annotations

import pytest
import torch

from pacbayes.errors import InvalidInput
from pacbayes.training.augmentation import augmented, mixed, parse_augmentation


def changed(text: str, x: torch.Tensor, seed: int = 0) -> torch.Tensor:
    return augmented(x, parse_augmentation(text), torch.Generator().manual_seed(seed))


@pytest.fixture
def images() -> torch.Tensor:
    return torch.rand(400, 3, 10, 12, generator=torch.Generator().manual_seed(1)) + 1


@pytest.mark.parametrize("text", ["flip", "shift 3", "cutout 4", "affine 15", "flip, shift 2, cutout 3, affine 5"])
def test_the_same_shape_from_the_seed_and_other_images_from_another(text, images):
    first = changed(text, images)
    assert first.shape == images.shape and first.dtype == images.dtype
    assert torch.equal(first, changed(text, images))
    assert not torch.equal(first, changed(text, images, seed=1))


def test_nothing_is_changed_for_an_empty_text(images):
    assert torch.equal(changed("", images), images)


def test_half_of_the_images_are_mirrored_and_the_rest_left(images):
    out = changed("flip", images)
    flipped = (out == images.flip(-1)).flatten(1).all(1)
    assert torch.equal(out[~flipped], images[~flipped])
    # 400 fair coins: outside of this range once in 10^8.
    assert 140 < int(flipped.sum()) < 260


def test_an_image_is_moved_as_a_whole_and_by_no_more_than_was_said(images):
    out = changed("shift 2", images)
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2), mode="reflect")
    found = set()
    for image, whole in zip(out, padded, strict=True):
        places = [(i, j) for i in range(5) for j in range(5) if torch.equal(image, whole[:, i : i + 10, j : j + 12])]
        assert places
        found.add(places[0])
    assert len(found) == 25


def test_a_square_is_cut_out_of_all_channels_and_every_pixel_is_hidden_as_often(images):
    hidden = changed("cutout 4", images) == 0
    assert torch.equal(hidden.all(1), hidden.any(1))
    sizes = hidden[:, 0].sum((1, 2))
    assert int(sizes.max()) == 16 and int(sizes.min()) >= 1
    many = torch.ones(20_000, 1, 10, 12)
    shares = (changed("cutout 4", many) == 0).float().mean((0, 1))
    # 4/13 * 4/15 everywhere; six deviations of a share of 20,000.
    assert torch.allclose(shares, torch.tensor(16 / (13 * 15)), atol=6 * (0.082 * 0.918 / 20_000) ** 0.5)


def test_an_affine_change_of_nothing_changes_nothing(images):
    assert torch.allclose(changed("affine 0", images), images, atol=1e-5)
    assert not torch.allclose(changed("affine 10", images), images, atol=0.1)


def test_images_keep_their_precision(images, doubles):
    assert changed("flip, shift 2, cutout 3, affine 5", images).dtype == torch.float32


@pytest.mark.parametrize(
    "text", ["turn 3", "shift", "shift x", "flip 2", "shift -1", "shift nan", ",", "flip,", "cutout 1e9"]
)
def test_what_is_no_list_of_changes_is_refused(text):
    with pytest.raises(InvalidInput, match="augmentation"):
        parse_augmentation(text)


def test_mixed_images_are_their_own_outside_a_rectangle():
    n = 400
    x = torch.arange(1.0, n + 1)[:, None, None, None].expand(n, 2, 12, 9)
    out, own = mixed(x, 0.5, torch.Generator().manual_seed(0))
    before = x.roll(1, 0)
    assert bool(((out == x) | (out == before)).all()) and torch.equal(out[:, 0], out[:, 1])
    torch.testing.assert_close((out == x).float().mean((1, 2, 3)), own)
    foreign = (out == before)[:, 0]
    rows, columns = foreign.any(2), foreign.any(1)
    # A rectangle is all that lies in both its rows and its columns, and those are next to each other.
    assert torch.equal(foreign, rows[:, :, None] & columns[:, None, :])
    assert int((rows[:, 1:] != rows[:, :-1]).sum(1).max()) <= 2
    assert 0.35 < float((own < 1).float().mean()) < 0.6
    assert float(own.min()) < 0.3
    assert torch.equal(mixed(x, 0.0, torch.Generator().manual_seed(0))[0], x)
