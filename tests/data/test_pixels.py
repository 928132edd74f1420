"""Fingerprints without a copy, and datasets that stay in their pixels: both as the data themselves have them."""

from __future__ import annotations

import numpy as np
import pytest

from pacbayes.data import Data, as_data, load
from pacbayes.data.catalogue import find
from pacbayes.data.pixels import Pixels


def test_the_fingerprint_of_a_part_is_that_of_the_part_taken():
    generator = np.random.default_rng(0)
    data = as_data((generator.normal(size=(1500, 2, 3)), generator.integers(0, 4, 1500)), classes=4)
    for rows in (np.arange(1500), np.arange(7), generator.permutation(1500), generator.permutation(1500)[:513]):
        assert data.fingerprint_of(rows) == data.take(rows).fingerprint()
    assert data.fingerprint_of(np.arange(1500)) == data.fingerprint()
    assert data.fingerprint_of(np.arange(1500)[::-1]) != data.fingerprint()


@pytest.mark.parametrize("name", ["digits", "digits-binary"])
def test_pixels_are_the_data(name):
    pixels, data = find(name), load(name)
    assert isinstance(pixels, Pixels) and isinstance(data, Data)
    assert (len(pixels), pixels.shape, pixels.classes) == (len(data), data.shape, data.classes)
    for rows in (np.arange(len(data)), np.random.default_rng(0).permutation(len(data))[:600]):
        taken = pixels.take(rows)
        assert taken.fingerprint() == pixels.fingerprint_of(rows) == data.take(rows).fingerprint()
        assert (taken.name, taken.class_names) == (data.name, data.class_names)
