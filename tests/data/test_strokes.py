"""Drawn digits: as many of each, inside their box, all different, and recognisable by what they are."""

import numpy as np
import pytest

from pacbayes.data import load
from pacbayes.data.strokes import FORMS, read_strokes


@pytest.fixture(scope="module")
def drawn():
    return read_strokes((), (1200, 1, 28, 28), test=False)


def test_the_catalogue_has_them_as_they_are_everywhere():
    """The loader compares their hash."""
    data = load("strokes", "test")
    assert data.x.shape == (2000, 1, 28, 28) and data.classes == 10 and data.class_names == tuple("0123456789")
    assert np.array_equal(np.bincount(data.y), [200] * 10)


def test_as_many_of_each_all_different_and_of_ink(drawn):
    images, labels = drawn
    assert images.dtype == np.uint8 and np.array_equal(np.bincount(labels), [120] * 10)
    assert len({image.tobytes() for image in images}) == 1200
    ink = images.reshape(1200, -1) > 128
    assert ink.mean(1).min() > 0.01 and ink.mean(1).max() < 0.5


def test_a_digit_is_in_the_middle_and_as_large_as_its_box(drawn):
    images, _ = drawn
    weight = images[:, 0] / images[:, 0].sum((1, 2), keepdims=True)
    for axis in (1, 2):
        centre = (weight.sum(3 - axis) * np.arange(28)).sum(1)
        assert np.abs(centre - 13.5).max() < 1.5
    extent = [(images[:, 0] > 128).any(axis).sum(1) for axis in (1, 2)]
    assert np.abs(np.maximum(*extent) - 20).max() <= 2


def test_training_and_test_part_are_different_drawings(drawn):
    other, _ = read_strokes((), (1200, 1, 28, 28), test=True)
    assert not {image.tobytes() for image in drawn[0]} & {image.tobytes() for image in other}


def test_the_nearest_of_some_drawings_says_which_digit_another_is(drawn):
    images, labels = drawn
    vectors = images.reshape(1200, -1).astype(np.float64)
    distances = ((vectors[:400, None, ::3] - vectors[None, 400:, ::3]) ** 2).sum(2)
    assert (labels[400:][distances.argmin(1)] == labels[:400]).mean() > 0.9


def test_every_form_is_one_that_a_pen_can_draw():
    for forms in FORMS:
        for pen in (pen for form in forms for pen in form):
            assert len(pen) >= 2 and all(0 <= v <= 1 for point in pen for v in point)
