"""The paper's experiments: configurations as data files, one runner, results with their provenance."""

from pacbayes.experiments.catalogue import Experiment, Row, experiments, referred
from pacbayes.experiments.results import read_results
from pacbayes.experiments.runner import reproduce, reproduce_affine
from pacbayes.experiments.tables import write_tables

__all__ = [
    "Experiment",
    "Row",
    "experiments",
    "read_results",
    "referred",
    "reproduce",
    "reproduce_affine",
    "write_tables",
]
