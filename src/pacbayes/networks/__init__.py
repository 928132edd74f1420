"""Any ``nn.Module`` made stochastic, the laws of its weights, and the paper's architectures."""

from pacbayes.networks.architectures import ARCHITECTURES, build
from pacbayes.networks.audit import Audit
from pacbayes.networks.batchnorm import fold_batchnorm, replace_batchnorm
from pacbayes.networks.features import features
from pacbayes.networks.standardisation import standardise
from pacbayes.networks.stochastic import StochasticNetwork, stochastic

__all__ = [
    "ARCHITECTURES",
    "Audit",
    "StochasticNetwork",
    "build",
    "features",
    "fold_batchnorm",
    "replace_batchnorm",
    "standardise",
    "stochastic",
]
