"""The part of a verification that needs the data: split, fingerprints, scaling, and the count made again."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from pacbayes.certificates import Certificate
from pacbayes.certificates.audit import ERROR_RATE, contradicted, contradicted_classes, recount
from pacbayes.certificates.bound_data import doubts
from pacbayes.certificates.monte_carlo import Progress
from pacbayes.certificates.wording import rounded_up
from pacbayes.data import Data, split_indices
from pacbayes.data.catalogue import find
from pacbayes.data.pixels import Pixels
from pacbayes.errors import MissingData, PacBayesError
from pacbayes.networks import StochasticNetwork
from pacbayes.networks.standardisation import moments, scaling_of
from pacbayes.runs.check import FAILED, OPEN, PASSED, Check, attempt, equal
from pacbayes.runs.config import Config
from pacbayes.runs.data import data_record, same_data
from pacbayes.runs.folder import RunFolder
from pacbayes.seeds import fresh_seed

# A count of more visits than this is not repeated: the number may be an enemy's.
_MOST_VISITS = 10**9


def data_checks(
    run: RunFolder,
    certificate: Certificate,
    net: StochasticNetwork | None,
    place: str | None,
    recompute: bool,
    progress: Progress | None,
) -> Iterator[Check]:
    try:
        config, recorded = run.config(), run.data_record()
    except PacBayesError as error:
        yield Check("data", FAILED, str(error))
        return
    found = yield from _found(config, run.config_with_data(place), place)
    if found is None:
        return
    fingerprint = found.source.fingerprint_of(found.bound)
    yield from _of_prior(config, recorded, found, fingerprint)
    yield Check("bound data", *equal(certificate.bound_data_fingerprint, fingerprint, "the bound data"))
    yield Check("m", *equal(str(certificate.m), str(len(found.bound)), "the number of bound examples"))
    if net is None:
        yield Check("Monte Carlo", OPEN, "the count cannot be repeated: there is no network")
        return
    if list(found.source.shape) != recorded["shape"] or found.source.classes != net.classes:
        yield Check("Monte Carlo", FAILED, "the count cannot be repeated: the data are not those of the network")
        return
    if config.scales(found.source.shape) and found.prior_source is not None:
        yield attempt("scaling", _scaling, net, found.prior_source.take(found.prior))
    again = found.source.take(found.bound) if recompute else None
    yield attempt("Monte Carlo", lambda: _count(certificate, net, again, run.single(certificate), progress))
    if again is not None and os.path.lexists(run.path / "classes.json"):
        yield attempt("count of classes", _class_counts, run, net, again)


@dataclass(frozen=True)
class _Found:
    """The data of a run, where they are now, and the indices of its two parts."""

    source: Data | Pixels
    bound: np.ndarray
    prior_source: Data | Pixels | None
    """Where the prior's data are taken from; None if they are not at hand."""
    prior: np.ndarray


def _found(config: Config, at: Config, place: str | None) -> Generator[Check, None, _Found | None]:
    """The data where ``at`` has them, if they are at hand; no folder makes verification fetch anything."""
    folder = at.data_folder
    try:
        source = find(at.data, "train", folder=folder, download=False)
    except PacBayesError as error:
        if isinstance(error, MissingData) and place is None:
            yield Check("data", OPEN, f"not at hand, so neither are split, m and the count: {error} (see --data)")
        else:
            yield Check("data", FAILED, str(error))
        return None
    prior_source: Data | Pixels | None = source
    try:
        if config.prior_data:
            prior_source = find(at.prior_data, "train", folder=folder, download=False)
    except PacBayesError as error:
        prior_source = None
        yield Check("prior data", OPEN if isinstance(error, MissingData) else FAILED, f"not at hand: {error}")
    try:
        prior, bound = _parts(config, len(source), len(prior_source or ()))
    except PacBayesError as error:
        yield Check("data", FAILED, str(error))
        return None
    return _Found(source, bound, prior_source, prior)


def _of_prior(config: Config, recorded: dict[str, Any], found: _Found, fingerprint: str) -> Iterator[Check]:
    """The split, and whether the prior has seen what it should not have."""
    source, bound, prior_source, prior = found.source, found.bound, found.prior_source, found.prior
    if prior_source is None:
        return
    parts = {"bound": (len(bound), fingerprint)}
    if config.learns_prior:
        parts["prior"] = (len(prior), prior_source.fingerprint_of(prior))
    yield Check("split", *_split(config, prior, bound, same_data(recorded, data_record(source, parts))))
    if config.prior_data:
        yield Check("prior data", *_others(source.take(bound), prior_source.take(prior)))
    if isinstance(source, Data) and isinstance(prior_source, Data):
        examples = source.take(bound)
        seen = [prior_source.take(prior)] if len(prior) else []
        yield from (Check("copies", OPEN, words) for words in doubts(seen, examples))


def _parts(config: Config, examples: int, of_prior: int) -> tuple[np.ndarray, np.ndarray]:
    """The indices of the two parts: from the seed, or all of the prior's own data and all of the training data."""
    if config.learns_prior and not config.prior_data:
        return split_indices(examples, config.prior_fraction, config.seed)
    return np.arange(of_prior if config.prior_data else 0), np.arange(examples)


def _split(config: Config, prior: np.ndarray, bound: np.ndarray, as_recorded: bool) -> tuple[str, str]:
    both = bound if config.prior_data else np.concatenate([prior, bound])
    if not np.array_equal(np.sort(both), np.arange(len(both))):
        return FAILED, "the two parts overlap, or leave examples out"
    if not as_recorded:
        return FAILED, f"the parts that seed {config.seed} gives are not those of data.json, or the data are others"
    if not config.learns_prior:
        return PASSED, f"none: the prior is data-free, and all {len(bound)} examples enter the bound"
    if config.prior_data:
        others = f"the prior is learnt on {len(prior)} other examples, {config.prior_data}"
        return PASSED, f"none: {others}, and all {len(bound)} examples enter the bound"
    sizes = f"{len(prior)} examples for the prior, {len(bound)} for the bound"
    return PASSED, f"{sizes}: disjoint, from seed {config.seed}, and those of data.json"


def _others(bound: Data, prior: Data) -> tuple[str, str]:
    if bound.overlaps(prior):
        return FAILED, "some of the prior data are among the training data: the prior has seen the bound data"
    return PASSED, "none of the prior data is among the training data, by their values"


def _scaling(net: StochasticNetwork, prior_data: Data) -> tuple[str, str]:
    """The scaling that the network begins with, against the data that alone may shape it."""
    layer = scaling_of(net.model)
    mean, deviation = moments(prior_data)
    # Another machine's sums may differ in the last digits.
    allowed = 1e-5 * (mean.abs() + deviation)
    apart = torch.maximum((layer.mean.cpu() - mean).abs(), (layer.deviation.cpu() - deviation).abs())
    if bool((apart <= allowed).all()):
        return PASSED, f"mean and deviation of each feature are those of the {len(prior_data)} prior examples"
    return FAILED, "the features are not scaled by mean and deviation of the prior data"


def _count(
    certificate: Certificate,
    net: StochasticNetwork,
    data: Data | None,
    single: dict[str, torch.Tensor] | None,
    progress: Progress | None,
) -> tuple[str, str]:
    if data is None:
        return OPEN, "the count was not repeated; --recompute does, where the arithmetic is right"
    if certificate.loss != "0-1":
        return FAILED, f"a run is certified for its 0-1 error, and this record is for the loss {certificate.loss!r}"
    if (refuted := contradicted(certificate, net, data, fresh_seed())) is not None:
        return FAILED, refuted
    if certificate.visits * certificate.voters > _MOST_VISITS:
        return OPEN, f"a count of more than {_MOST_VISITS} visits is not repeated"
    counts = recount(certificate, net, data, fresh_seed(), single, progress)
    wrong = [name for name, (recorded, found, allowed) in counts.items() if abs(found - recorded) > allowed]
    unit = certificate.unit
    shown = ", ".join(
        f"{_in_ones(found, unit)} {name.replace('_', ' ')} ({_in_ones(recorded, unit)})"
        for name, (recorded, found, _) in counts.items()
    )
    anew: dict[str, Any] = {name: found for name, (_, found, _) in counts.items()}
    bound = replace(certificate.evidence(), **anew).derived()["risk_bound"]
    bounds = f"for a bound of {rounded_up(bound, 4)} ({rounded_up(certificate.risk_bound, 4)})"
    detail = f"counted again (recorded): {shown}, in {certificate.visits} visits, {bounds}"
    if certificate.sampling in ("independent", "shared"):
        detail += f"; two honest counts differ by more than is allowed with probability {ERROR_RATE:g} at most"
    return FAILED if wrong else PASSED, detail


def _in_ones(count: int, unit: int) -> str:
    """A count in parts of one, as a number of errors."""
    return str(count) if unit == 1 else f"{count / unit:.6f}"


def _class_counts(run: RunFolder, net: StochasticNetwork, data: Data) -> tuple[str, str]:
    issued = run.classes()
    refuted = contradicted_classes(issued, net, data, fresh_seed())
    return (FAILED, refuted) if refuted else (PASSED, "sizes are those of the data, and fresh visits exceed no count")
