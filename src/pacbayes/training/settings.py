"""What one stage of training is told, and its learning-rate schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pacbayes.bounds.deltas import check_delta
from pacbayes.bounds.misclassification import ESTIMATORS
from pacbayes.bounds.pac_bayes import OBJECTIVES
from pacbayes.checks import check_count, check_in_range, check_names, check_one_of, check_types
from pacbayes.errors import InvalidInput
from pacbayes.networks.layers import SAMPLINGS
from pacbayes.seeds import check_seed

METHODS = ("G", "S", "CE")
OPTIMISERS = ("sgd", "adam")
# A configuration may come from anywhere, and its schedule is written out epoch by epoch.
MOST_EPOCHS, LARGEST_RATE = 50_000, 3e38


@dataclass(frozen=True)
class Settings:
    """One stage of training. The defaults suit small data; the paper's values are in ``experiments/``."""

    objective: str = "invKL"
    """What is minimised: invKL, McAll, quad, lbd, or ERM (the risk alone)."""
    method: str = "G"
    """G, Cond-Gauss: the 0-1 error itself, through the Gaussian output given the hidden draw. S, the standard method:
    sampled outputs and a bounded cross-entropy. CE, pre-training: cross-entropy of the network of means, no bound."""
    epochs: int = 100
    rate: float = 0.01
    schedule: str = "cosine"
    """"cosine" (from rate to 0), "constant", or steps such as "250@0.005, 50@0.0001", which replace epochs and rate."""
    optimiser: str = "sgd"
    """sgd, the paper's, or adam, which finds its way where the error is flat, as at a random start of a deep network;
    lambda is trained by SGD always."""
    momentum: float = 0.9
    kappa: float = 1.0
    """Weight of the penalty in training; a certificate never uses it."""
    weighted: str = "penalty"
    """What kappa weighs: the whole penalty (the paper's), or "KL" alone, as in Pérez-Ortiz et al. 2021."""
    divergence: str = "kl"
    """What the penalty is made of: kl, the paper's; or profile, with the prior's scale chosen for each weight tensor,
    and paid for: for certificates with bound="best" or one that ends in "+profile"."""
    delta: float = 0.025
    batch_size: int = 128
    sampling: str = "mixed"
    """How hidden weights are drawn: shared (the paper's), independent, or mixed."""
    dropout: float = 0.0
    """For priors. On the outputs of hidden Linear layers and convolutions, whole channels of these; not of layers that
    are drawn as a whole, as ``net.audit()`` shows them."""
    p_min: float = 1e-5
    """Method S: the probability at which the cross-entropy is cut off, and which scales it into [0, 1]."""
    estimator: str = "auto"
    """Method G: closed-form, quadrature, L1 or L2; "auto" takes the closed form for two classes."""
    samples: int = 100
    """Draws of L1 and L2."""
    nodes: int = 32
    """Points of the quadrature: 32 are good to about 1e-5 for ten classes, which is far below a batch's noise."""
    lam: str = "trained"
    """Objective lbd: lambda "trained" (twice the epochs, alternating, as in the paper) or "best" (closed form)."""
    precision: str = "float32"
    """Of the matrix products and convolutions in training: float32, or bf16 (a GPU's fast path)."""
    keep: str = "auto"
    """The epoch that is kept: "best" by the bound B1, "last", or "auto": the last where nothing is penalised."""
    averaged: int = 0
    """For priors that keep the last epoch: the mean of the weights after so many of the last epochs in its place
    (Izmailov et al. 2018), which goes with a rate that stays large; 0 for none."""
    evaluate: str = "pass"
    """How an epoch's risk is known: "pass", a pass over the data at its end; "running", its batches' mean, free."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_types(self)
        check_one_of("objective", self.objective, OBJECTIVES)
        check_delta(self.delta)
        check_one_of("method", self.method, METHODS)
        check_one_of("sampling", self.sampling, [name for name in SAMPLINGS if name != "mean"])
        check_one_of("estimator", self.estimator, ("auto", *ESTIMATORS))
        check_one_of("lam", self.lam, ("trained", "best"))
        check_one_of("optimiser", self.optimiser, OPTIMISERS)
        check_one_of("divergence", self.divergence, ("kl", "profile"))
        check_one_of("weighted", self.weighted, ("penalty", "KL"))
        check_one_of("precision", self.precision, ("float32", "bf16"))
        check_one_of("keep", self.keep, ("auto", "best", "last"))
        check_one_of("evaluate", self.evaluate, ("pass", "running"))
        check_in_range("rate", self.rate, 0, LARGEST_RATE)
        check_in_range("momentum", self.momentum, 0, 1, closed_low=True)
        check_in_range("dropout", self.dropout, 0, 1, closed_low=True)
        check_in_range("p_min", self.p_min, 0, 0.5)
        check_in_range("kappa", self.kappa, 0, math.inf, closed_low=True)
        for name in ("epochs", "batch_size", "samples", "nodes"):
            check_count(name, getattr(self, name))
        if self.epochs > MOST_EPOCHS:
            raise InvalidInput(f"epochs must be at most {MOST_EPOCHS}, and is {self.epochs}")
        check_seed(self.seed)
        epochs = len(learning_rates(self))
        if self.averaged and self.trains_lambda:
            raise InvalidInput("averaged does not go with a trained lambda, which has every other epoch: lam = 'best'")
        if self.averaged and not (self.keeps_last and 0 < self.averaged <= epochs):
            raise InvalidInput(
                f"averaged is a number of last epochs, from 0 to {epochs}, and goes with keep = 'last'; "
                f"it is {self.averaged}, and keep is {self.keep!r}"
            )

    @classmethod
    def of(cls, **options: object) -> Settings:
        """Settings from keyword options; an unknown one is named, with the choices."""
        check_names(options, cls)
        return cls(**options)  # type: ignore[arg-type]

    @property
    def keeps_last(self) -> bool:
        """Without a penalty the divergence grows, and the bound would pick the first epochs."""
        return self.keep == "last" or (self.keep == "auto" and not self.penalised)

    @property
    def name(self) -> str:
        """What a certificate says that the network was trained with."""
        return "CE" if self.method == "CE" else self.objective

    @property
    def penalised(self) -> bool:
        """Whether the divergence enters the objective: it does not in pre-training and ERM."""
        return self.method != "CE" and self.objective != "ERM"

    @property
    def trains_lambda(self) -> bool:
        return self.objective == "lbd" and self.lam == "trained" and self.method != "CE"


def learning_rates(settings: Settings) -> list[float]:
    """The rate of each epoch. For a trained lambda each epoch comes twice: one for lambda, one for the weights."""
    if settings.schedule == "cosine":
        n = settings.epochs
        rates = [settings.rate * (1 + math.cos(math.pi * e / n)) / 2 for e in range(n)]
    elif settings.schedule == "constant":
        rates = [settings.rate] * settings.epochs
    else:
        rates = [rate for epochs, rate in _steps(settings.schedule) for _ in range(epochs)]
    return [rate for rate in rates for _ in range(2)] if settings.trains_lambda else rates


def _steps(text: str) -> list[tuple[int, float]]:
    try:
        steps = [(int(epochs), float(rate)) for epochs, rate in (item.split("@") for item in text.split(","))]
    except ValueError:
        steps = []
    if not steps or any(epochs < 1 or not 0 < rate < LARGEST_RATE for epochs, rate in steps):
        raise InvalidInput(f'schedule {text!r} is not "cosine", "constant" or steps such as "250@0.005, 50@0.0001"')
    if sum(epochs for epochs, _ in steps) > MOST_EPOCHS:
        raise InvalidInput(f"schedule {text!r} has more than {MOST_EPOCHS} epochs")
    return steps
