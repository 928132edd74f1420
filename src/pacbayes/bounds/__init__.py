"""Numbers only: the binary kl, PAC-Bayes bounds, confidence limits, misclassification probability."""

from pacbayes.bounds.binary_kl import kl, kl_inverse
from pacbayes.bounds.confidence import chernoff_upper, clopper_pearson_upper
from pacbayes.bounds.misclassification import misclassification_probability
from pacbayes.bounds.pac_bayes import ERM, OBJECTIVES, McAll, best_lambda, invKL, lbd, penalty, quad

__all__ = [
    "ERM",
    "McAll",
    "OBJECTIVES",
    "best_lambda",
    "chernoff_upper",
    "clopper_pearson_upper",
    "invKL",
    "kl",
    "kl_inverse",
    "lbd",
    "misclassification_probability",
    "penalty",
    "quad",
]
