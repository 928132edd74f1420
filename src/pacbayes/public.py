"""The names that ``import pacbayes as pb`` gives its users."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
from pacbayes.data import Data, load, split, store
from pacbayes.errors import PacBayesError
from pacbayes.networks import (
    Audit,
    StochasticNetwork,
    build,
    features,
    fold_batchnorm,
    replace_batchnorm,
    standardise,
    stochastic,
)
from pacbayes.training import Ordinary, Settings, fit, freeze_prior, learn_prior, objective, scale_prior, train_ordinary

if TYPE_CHECKING:
    from pacbayes.estimator import CertifiedClassifier
    from pacbayes.runs.predict import load_single

__all__ = [
    "Audit",
    "Certificate",
    "CertifiedClassifier",
    "ClassCertificate",
    "Data",
    "Ordinary",
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
    "freeze_prior",
    "holdout_bound",
    "learn_prior",
    "load",
    "load_single",
    "objective",
    "replace_batchnorm",
    "scale_prior",
    "split",
    "standardise",
    "stochastic",
    "store",
    "test_error",
    "train_ordinary",
]


# Only where they are asked for: scikit-learn is slow to import, and few need runs.
_LAZY = {"CertifiedClassifier": "pacbayes.estimator", "load_single": "pacbayes.runs.predict"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
