"""Labelled examples: reading them, checking them, and splitting them into prior and bound data."""

from pacbayes.data.arrays import as_data
from pacbayes.data.catalogue import available, load, load_inputs
from pacbayes.data.conversion import store
from pacbayes.data.dataset import Data
from pacbayes.data.splits import split, split_indices
from pacbayes.data.streamed import Streamed

__all__ = ["Data", "Streamed", "as_data", "available", "load", "load_inputs", "split", "split_indices", "store"]
