"""Labelled examples: reading them, checking them, and splitting them into prior and bound data."""

from pacbayes.data.catalogue import available, load, load_inputs
from pacbayes.data.dataset import Data, as_data
from pacbayes.data.splits import split, split_indices

__all__ = ["Data", "as_data", "available", "load", "load_inputs", "split", "split_indices"]
