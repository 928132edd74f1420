"""Train a neural classifier and its guarantee together.

>>> import pacbayes as pb
>>> prior_data, bound_data = pb.split(pb.load("digits"), 0.5)
"""

from pacbayes import bounds
from pacbayes.certificates import (
    Certificate,
    ClassCertificate,
    certify,
    certify_classes,
    compare_bounds,
    export_single,
    holdout_bound,
    test_error,
)
from pacbayes.data import Data, load, split
from pacbayes.errors import PacBayesError
from pacbayes.networks import Audit, StochasticNetwork, build, features, fold_batchnorm, replace_batchnorm, stochastic
from pacbayes.training import Settings, fit, learn_prior, scale_prior

__all__ = [
    "Audit",
    "Certificate",
    "ClassCertificate",
    "Data",
    "PacBayesError",
    "Settings",
    "StochasticNetwork",
    "bounds",
    "build",
    "certify",
    "certify_classes",
    "compare_bounds",
    "export_single",
    "features",
    "fit",
    "fold_batchnorm",
    "holdout_bound",
    "learn_prior",
    "load",
    "replace_batchnorm",
    "scale_prior",
    "split",
    "stochastic",
    "test_error",
]
