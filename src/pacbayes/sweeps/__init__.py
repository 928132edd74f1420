"""Sweeps: many configurations trained by workers, the best certified, and every choice of a prior paid for."""

from pacbayes.sweeps.charge import Charge
from pacbayes.sweeps.ray_workers import RayWorkers
from pacbayes.sweeps.results import Result
from pacbayes.sweeps.runner import Progress, run_sweep
from pacbayes.sweeps.specification import Certification, Specification
from pacbayes.sweeps.study import Trial
from pacbayes.sweeps.workers import LocalWorkers, Workers

__all__ = [
    "Certification",
    "Charge",
    "LocalWorkers",
    "Progress",
    "RayWorkers",
    "Result",
    "Specification",
    "Trial",
    "Workers",
    "run_sweep",
]
