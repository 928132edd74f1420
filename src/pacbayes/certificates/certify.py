"""Issuing a certificate for a trained network: equation (final_bound), or its form for learnt priors."""

from __future__ import annotations

import platform
import secrets
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch

from pacbayes.bounds.confidence import clopper_pearson_upper
from pacbayes.bounds.pac_bayes import check_delta
from pacbayes.certificates.certificate import Certificate, derived_numbers
from pacbayes.certificates.monte_carlo import Progress, check_draws, independent_errors, shared_errors
from pacbayes.data import Data, as_data
from pacbayes.errors import InvalidInput, UnsupportedModel
from pacbayes.networks.stochastic import StochasticNetwork
from pacbayes.seeds import check_seed

# The float64 sum of the divergences is good to about 1e-13, relatively; this puts it above the true one.
_KL_ROUND_UP = 1 + 1e-11


def certify(
    net: StochasticNetwork,
    data: Any,
    *,
    delta: float = 0.025,
    mc_delta: float = 0.01,
    draws: int = 150_000,
    sampling: str = "independent",
    limit: str = "two-sided",
    seed: int | None = None,
    progress: Progress | None = None,
) -> Certificate:
    """A certificate for the randomised classifier: a bound on its true risk, at confidence 1 - delta - mc_delta.

    ``data`` are the bound data: all the training data where the prior is data-free, and where it was learnt, the
    part that it never saw. ``draws`` is the number of independent Monte-Carlo terms: visits of an example with a
    draw of its own, or with ``sampling="shared"`` networks that each pass over all the data. ``limit`` is the
    Monte-Carlo limit: ``"two-sided"`` as in the paper, ``"one-sided"`` or ``"clopper-pearson"``, which are tighter.
    The draws are fresh unless a ``seed`` is given. Neither a seed, nor delta and mc_delta, nor one of several
    certificates of the same network may be chosen by the result.
    """
    data = as_data(data, classes=net.classes)
    check_delta(delta)
    check_delta(mc_delta, "mc_delta")
    check_draws(draws)
    visits = draws * len(data) if sampling == "shared" else draws
    constants: dict[str, Any] = {"visits": visits, "draws": draws, "m": len(data), "delta": delta, "mc_delta": mc_delta,
                 "limit": limit, "sampling": sampling}  # fmt: skip
    derived_numbers(errors=0, kl=0.0, **constants)  # refuses what is wrong before any draw is made
    _refuse_what_voids_a_bound(net, data)
    seed = secrets.randbits(63) if seed is None else seed
    check_seed(seed)
    if sampling == "shared":
        errors = sum(shared_errors(net, data, draws, seed, progress))
    else:
        errors = independent_errors(net, data, draws, seed, progress)
    _refuse_a_changed_model(net)
    with torch.no_grad():
        divergence = float(net.kl()) * _KL_ROUND_UP
    return Certificate(
        **derived_numbers(errors=errors, kl=divergence, **constants),
        **constants,
        errors=errors,
        kl=divergence,
        objective=net.objective,
        bound="invKL",
        prior_fingerprint=net.fingerprint("prior"),
        posterior_fingerprint=net.fingerprint("posterior"),
        bound_data_fingerprint=data.fingerprint(),
        seed=seed,
        versions=versions(),
        time=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def holdout_bound(net: StochasticNetwork, data: Any, *, delta: float = 0.035, seed: int | None = None) -> float:
    """The ordinary hold-out bound of the prior on the bound data, which it never saw: Clopper-Pearson.

    Each example is classified once, with a draw of its own, by the network before posterior training.
    """
    data = as_data(data, classes=net.classes)
    _refuse_what_voids_a_bound(net, data)
    seed = secrets.randbits(63) if seed is None else seed
    check_seed(seed)
    errors = independent_errors(net.prior_network(), data, len(data), seed)
    return clopper_pearson_upper(errors, len(data), delta)


def versions() -> dict[str, str]:
    try:
        own = version("pacbayes")
    except PackageNotFoundError:
        own = "not installed"
    return {
        "pacbayes": own,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }


def _refuse_what_voids_a_bound(net: StochasticNetwork, data: Data) -> None:
    if data.repeats:
        raise InvalidInput("some of these data were taken twice: m would count examples that were never drawn")
    if any(data.overlaps(prior_data) for prior_data in net.prior_trained_on):
        raise InvalidInput(
            "the prior was trained on some of these data: certify on the other part of pacbayes.split(), the bound data"
        )
    _refuse_a_changed_model(net)
    net.check_examples(data.x)


def _refuse_a_changed_model(net: StochasticNetwork) -> None:
    if net.fixed_part_changed():
        raise UnsupportedModel(
            "a buffer or a frozen weight of the model has changed since the prior was frozen: what it learnt is "
            "outside the KL, and there is no valid certificate"
        )
