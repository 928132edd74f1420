"""Training: Algorithm 1, its settings, priors learnt from data, checkpoints."""

from pacbayes.training.checkpoints import Checkpoint
from pacbayes.training.fit import Epoch, History, fit
from pacbayes.training.priors import learn_prior
from pacbayes.training.scale_prior import PriorScale, scale_prior
from pacbayes.training.settings import Settings

__all__ = ["Checkpoint", "Epoch", "History", "PriorScale", "Settings", "fit", "learn_prior", "scale_prior"]
