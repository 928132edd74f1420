"""Training: Algorithm 1, its settings, its objective for other loops, priors learnt from data, checkpoints."""

from pacbayes.training.checkpoints import Checkpoint
from pacbayes.training.fit import Epoch, History, fit
from pacbayes.training.objective import objective
from pacbayes.training.ordinary import Ordinary, train_ordinary
from pacbayes.training.priors import freeze_prior, learn_prior
from pacbayes.training.scale_prior import PriorScale, scale_prior
from pacbayes.training.settings import Settings

__all__ = [
    "Checkpoint",
    "Epoch",
    "History",
    "Ordinary",
    "PriorScale",
    "Settings",
    "fit",
    "freeze_prior",
    "learn_prior",
    "objective",
    "scale_prior",
    "train_ordinary",
]
