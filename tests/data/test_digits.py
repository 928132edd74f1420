import numpy as np
import pytest
from sklearn.datasets import load_digits

from pacbayes.data import load
from pacbayes.data.splits import permutation


@pytest.mark.parametrize(("part", "count"), [("train", 1437), ("test", 360)])
def test_shape_scale_and_names(part, count):
    data = load("digits", part)
    assert data.x.shape == (count, 1, 8, 8) and data.classes == 10 and data.name == "digits"
    assert data.class_names == tuple("0123456789")
    assert data.x.min() == 0 and data.x.max() == 4


def test_the_parts_are_the_documented_cut_of_the_original():
    pixels, labels = load_digits(return_X_y=True)
    order = permutation(1797, 0)
    train, test = load("digits"), load("digits", "test")
    assert np.array_equal(np.concatenate([train.y, test.y]), labels[order])
    joined = np.concatenate([train.x, test.x]).reshape(1797, 64)
    assert np.array_equal(joined * 4, pixels[order])


def test_binary_digits():
    data, original = load("digits-binary"), load("digits")
    assert data.classes == 2 and data.class_names == ("0 to 4", "5 to 9") and data.name == "digits-binary"
    assert np.array_equal(data.y, original.y >= 5) and np.array_equal(data.x, original.x)
