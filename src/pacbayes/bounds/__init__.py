"""Numbers only: the binary kl, PAC-Bayes bounds, confidence limits, misclassification probability."""

from pacbayes.bounds.binary_kl import kl, kl_inverse
from pacbayes.bounds.catoni import CATONI_GRID, catoni, catoni_parameter
from pacbayes.bounds.confidence import chernoff_upper, clopper_pearson_upper
from pacbayes.bounds.constant import xi
from pacbayes.bounds.majority import vote_rules
from pacbayes.bounds.misclassification import misclassification_probability
from pacbayes.bounds.pac_bayes import ERM, OBJECTIVES, McAll, best_lambda, invKL, lbd, penalty, quad
from pacbayes.bounds.riemann import misclassification_upper
from pacbayes.bounds.single import binomial_level, draw_share

__all__ = [
    "CATONI_GRID",
    "ERM",
    "McAll",
    "OBJECTIVES",
    "best_lambda",
    "binomial_level",
    "catoni",
    "catoni_parameter",
    "chernoff_upper",
    "clopper_pearson_upper",
    "draw_share",
    "invKL",
    "kl",
    "kl_inverse",
    "lbd",
    "misclassification_probability",
    "misclassification_upper",
    "penalty",
    "quad",
    "vote_rules",
    "xi",
]
