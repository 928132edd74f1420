"""Issuing a certificate for a trained network: the final bound of section 3.5, or its form for learnt priors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import torch

from pacbayes.certificates.bound_data import refuse_what_voids_a_bound
from pacbayes.certificates.certificate import Certificate
from pacbayes.certificates.evidence import EXACT_UNIT, LIMITS, LOSS_UNIT, PREDICTORS, Evidence
from pacbayes.certificates.exact import exact_errors
from pacbayes.certificates.monte_carlo import (
    Loss,
    Progress,
    check_budget,
    draws_within,
    independent_errors,
    independent_losses,
    network_errors,
    shared_errors,
    vote_errors,
)
from pacbayes.certificates.single import single_file, single_weights
from pacbayes.checks import check_count, check_kind, check_one_of, check_type, plain
from pacbayes.data import Data, as_data
from pacbayes.errors import InvalidInput
from pacbayes.files import sha256
from pacbayes.networks.divergence import log_ratios
from pacbayes.networks.refusals import refuse_a_change
from pacbayes.networks.stochastic import StochasticNetwork, check_stochastic
from pacbayes.seeds import chosen_seed, derived_seed
from pacbayes.versions import versions

# The float64 sum of the divergences is good to about 1e-13, relatively; this puts it above the true one.
_KL_ROUND_UP = 1 + 1e-11
_TRIAL = 7
DRAWS, MC_DELTA, VOTERS = 150_000, 0.01, 11
"""What is taken where nothing is said: the paper's, and eleven voters."""


def certify(
    net: StochasticNetwork,
    data: Any,
    *,
    bound: str = "invKL",
    predictor: str = "randomised",
    delta: float = 0.025,
    mc_delta: float | None = None,
    draws: int | None = None,
    budget: float | None = None,
    sampling: str | None = None,
    limit: str | None = None,
    loss: Loss | None = None,
    voters: int | None = None,
    priors: int = 1,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Certificate:
    """A certificate: a bound on the true risk of a predictor, at confidence 1 - delta - mc_delta.

    ``data`` are the bound data: all the training data where the prior is data-free, and where it was learnt, the
    part that it never saw.

    ``bound``: ``"invKL"``, the paper's; ``"best"``, the least of a fixed few, which is charged for; or one of
    ``pacbayes.certificates.BOUNDS``, for a single network also ``"binomial"``. ``predictor``: ``"randomised"``, a fresh
    draw of the weights for each prediction; ``"single"``, one network drawn now (see :func:`export_single`; each
    further one is charged for); ``"majority"``, the vote of ``voters`` fresh draws for each prediction, 11 unless
    given. ``loss``: a fixed function of outputs [n, classes] and labels [n] with n values in [0, 1], in place of the
    0-1 error.

    ``draws`` is the number of independent Monte-Carlo terms, 150,000 unless given: visits of an example with a draw of
    its own, or with ``sampling="shared"`` networks that each pass over all the data; ``budget`` takes as many as there
    is time for, in seconds, and fixes the number before the first result is seen. Where the last layer alone is
    stochastic, ``sampling="exact"`` computes the risk without any. ``mc_delta`` (0.01) is spent on the draws; what
    makes none spends nothing. ``limit`` is the Monte-Carlo limit: ``"two-sided"`` as in the
    paper and its bound's default, ``"one-sided"`` or ``"clopper-pearson"``, which are tighter.

    ``priors`` is how many priors, splits, scales or seeds were to be tried, this one among them, before the bound data
    were looked at: delta is shared by all, so that any of them may be chosen by the data, and then certified. Each
    certificate has draws of its own: the best of K certificates also needs ``mc_delta`` divided by K.

    The draws are fresh unless a ``seed`` is given. Neither a seed, nor delta and mc_delta, nor one of several
    certificates of the same network may be chosen by the result.
    """
    check_stochastic(net)
    check_kind("progress", progress, Callable | None, "a function of the share that is done")
    data = as_data(data, classes=net.classes)
    seed = chosen_seed(seed)
    plan = _planned(
        net, len(data), bound=bound, predictor=predictor, delta=plain(delta), mc_delta=plain(mc_delta),
        draws=plain(draws), budget=plain(budget), sampling=sampling, limit=limit, loss=loss, voters=plain(voters),
        priors=plain(priors),
    )  # fmt: skip
    plan.derived()  # refuses what is wrong before any draw is made
    refuse_what_voids_a_bound(net, data)
    if budget is not None:
        trial = derived_seed(seed, _TRIAL)
        draws = draws_within(budget, lambda n: _counted(replace(plan, visits=n, draws=n), net, data, loss, trial))
        plan = replace(plan, visits=draws, draws=draws)

    drawn = ""
    if predictor == "single":
        net.single_draws += 1
        weights = single_weights(net, seed)
        drawn = sha256(single_file(net, weights))
        ratio, profile = log_ratios(net.on_cpu(), weights)
        errors = network_errors(net.at(weights), data)
        plan = replace(plan, errors=errors, log_ratio=ratio, profile_log_ratio=profile, draw=net.single_draws)
    else:
        plan = _counted(plan, net, data, loss, seed, progress)
    refuse_a_change(net)  # it may have changed while it was counted
    kl, profile_kl = divergences(net)
    plan = replace(plan, kl=kl, profile_kl=profile_kl)
    return Certificate(
        **vars(plan),
        **plan.derived(),
        loss="0-1" if loss is None else _name_of(loss),
        objective=net.objective,
        prior_fingerprint=net.fingerprint("prior"),
        posterior_fingerprint=net.fingerprint("posterior"),
        bound_data_fingerprint=data.fingerprint(),
        single_fingerprint=drawn,
        seed=seed,
        versions=versions(),
        time=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _planned(
    net: StochasticNetwork,
    m: int,
    *,
    bound: str,
    predictor: str,
    delta: float,
    mc_delta: float | None,
    draws: int | None,
    budget: float | None,
    sampling: str | None,
    limit: str | None,
    loss: Loss | None,
    voters: int | None,
    priors: int,
) -> Evidence:
    """The evidence to be gathered, with no counts yet: what was not said is filled in, what contradicts is refused."""
    for name, value in {"delta": delta, "mc_delta": mc_delta, "budget": budget}.items():
        if value is not None:
            check_type(name, value, float)
    check_one_of("predictor", predictor, PREDICTORS)
    if predictor == "majority" and sampling == "exact":
        raise InvalidInput("a majority vote is counted by draws: leave out sampling")
    of_draws = {"draws": draws, "budget": budget, "limit": limit, "mc_delta": mc_delta or None}
    if predictor == "single":
        _refuse("a single network is counted as it is, without draws", **of_draws, sampling=sampling)
        sampling, draws, limit, mc_delta = "once", 1, "none", 0.0
    elif sampling == "exact":
        _refuse("an exact risk is computed, without draws", **of_draws)
        draws, limit, mc_delta = 0, "none", 0.0
    else:
        sampling = "independent" if sampling is None else sampling
        check_one_of("sampling", sampling, ("independent", "shared", "exact"))
        check_one_of("limit", limit or "two-sided", [name for name in LIMITS if name != "none"])
        mc_delta = MC_DELTA if mc_delta is None else mc_delta
        if budget is not None:
            _refuse("the budget decides how many there are", draws=draws)
            check_budget(budget, sampling)
        draws = DRAWS if draws is None else draws
        check_count("draws", draws)
    if predictor != "majority":
        _refuse("they are for the majority predictor", voters=voters)
        voters = 1
    elif voters is None:
        voters = VOTERS
    if limit is None:
        whole = sampling == "independent" and loss is None
        limit = "two-sided" if bound == "invKL" else "clopper-pearson" if whole else "one-sided"
    if loss is not None and not callable(loss):
        raise InvalidInput(f"the loss must be a function of outputs and labels, and is {loss!r}")
    if loss is not None and (sampling != "independent" or predictor != "randomised"):
        raise InvalidInput("a loss of one's own is for the randomised predictor, with independent draws")
    of_one: dict[str, Any] = {}
    if predictor == "single":
        of_one = {"log_ratio": 0.0, "profile_log_ratio": 0.0, "draw": net.single_draws + 1}
    visits = draws if sampling == "independent" else draws * m if sampling == "shared" else m
    return Evidence(
        errors=0, visits=visits, draws=draws, kl=0.0, m=m, delta=delta, mc_delta=mc_delta, limit=limit,
        sampling=sampling, bound=bound, predictor=predictor, unit=_unit(sampling, loss), catoni=list(net.catoni),
        profile_kl=0.0, voters=voters, priors=priors, **of_one,
    )  # fmt: skip


def _refuse(why: str, **options: object) -> None:
    """Refuse options that were given and would be ignored."""
    if given := [name for name, value in options.items() if value is not None]:
        raise InvalidInput(f"{', '.join(given)} would be ignored: {why}")


def divergences(net: StochasticNetwork) -> tuple[float, float]:
    """The KL and the profile KL, rounded up."""
    net = net.on_cpu()
    with torch.no_grad():
        return float(net.kl()) * _KL_ROUND_UP, float(net.profile_kl()) * _KL_ROUND_UP


def _unit(sampling: str, loss: Loss | None) -> int:
    return EXACT_UNIT if sampling == "exact" else LOSS_UNIT if loss is not None else 1


def _name_of(loss: Loss) -> str:
    name = str(getattr(loss, "__name__", type(loss).__name__))
    return "loss of one's own" if name == "<lambda>" else name


def _counted(
    plan: Evidence, net: StochasticNetwork, data: Data, loss: Loss | None, seed: int, progress: Progress | None = None
) -> Evidence:
    """The plan with its counts."""
    if plan.predictor == "majority":
        first, pairs, vote = vote_errors(net, data, plan.voters, plan.draws, seed, progress)
        return replace(plan, errors=first, pair_errors=pairs, vote_errors=vote)
    if plan.sampling == "exact":
        return replace(plan, errors=exact_errors(net, data))
    if plan.sampling == "shared":
        return replace(plan, errors=sum(shared_errors(net, data, plan.draws, seed, progress)))
    if loss is not None:
        return replace(plan, errors=independent_losses(net, data, loss, plan.draws, seed, progress))
    return replace(plan, errors=independent_errors(net, data, plan.draws, seed, progress))
