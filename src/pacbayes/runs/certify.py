"""Certifying a finished run: the certificate, and beside it what it can be compared with."""

from __future__ import annotations

import warnings
from typing import Any

from pacbayes import processes
from pacbayes.certificates import (
    Certificate,
    ClassCertificate,
    certify,
    certify_classes,
    holdout_bound,
    test_error,
)
from pacbayes.certificates.bound_data import doubts
from pacbayes.certificates.monte_carlo import Progress
from pacbayes.certificates.single import certified_file, single_weights
from pacbayes.data import Data
from pacbayes.files import check_writable, write_atomically
from pacbayes.networks import StochasticNetwork
from pacbayes.runs.data import usable_test_data
from pacbayes.runs.evaluation import Evaluation
from pacbayes.runs.folder import RunFolder
from pacbayes.runs.journal import EVENTS, check_certified, check_files, forget_derived_files, note, singles_drawn
from pacbayes.runs.predict import voted
from pacbayes.runs.train import trained_network


def certify_run(
    run: RunFolder,
    *,
    bound: str = "invKL",
    predictor: str = "randomised",
    draws: int | None = None,
    budget: float | None = None,
    delta: float = 0.025,
    mc_delta: float | None = None,
    sampling: str | None = None,
    limit: str | None = None,
    voters: int | None = None,
    test_draws: int = 1000,
    seed: int | None = None,
    device: str | None = None,
    data: str | None = None,
    progress: Progress | None = None,
) -> tuple[Certificate, Evaluation]:
    """Write ``certificate.json`` and ``evaluation.json`` into the run folder; a single network's weights too.

    Single networks drawn earlier are counted, by the journal; priors to choose among, by config.toml. ``data`` is where
    the data are now, if not where config.toml says: a .npz or .csv file, or a folder with the dataset.
    """
    with run.alone():
        check_files(run, EVENTS["trained"])
        if processes.first():
            check_writable(run.path)
        config = run.config()
        net, bound_data = trained_network(run, device, data)
        net.single_draws = singles_drawn(run)
        test = _test_data(run, net, bound_data, data)
        certificate = certify(
            net, bound_data, bound=bound, predictor=predictor, delta=delta, mc_delta=mc_delta, draws=draws,
            budget=budget, sampling=sampling, limit=limit, voters=voters, priors=config.priors, seed=seed,
            progress=progress,
        )  # fmt: skip
        if processes.first():
            # The journal first: what fails from here on has been counted, and nothing is lost before it is.
            if predictor == "single":
                weights = certified_file(net, certificate)
                note(run, "drawn", content=weights)
                write_atomically(run.weights_file("single"), weights)
            content = certificate.to_json()
            note(run, "certified", certificate.risk_bound, content)
            write_atomically(run.certificate_file, content)
            forget_derived_files(run, single=predictor == "single")

        return certificate, _evaluated(run, certificate, net, bound_data, test, test_draws)


def evaluate_run(
    run: RunFolder, *, test_draws: int = 1000, device: str | None = None, data: str | None = None
) -> Evaluation:
    """Write ``evaluation.json`` for a certified run that has none: :func:`certify_run` was cut off before it."""
    with run.alone():
        check_certified(run)
        certificate = run.certificate()
        net, bound_data = trained_network(run, device, data)
        return _evaluated(run, certificate, net, bound_data, _test_data(run, net, bound_data, data), test_draws)


def _evaluated(
    run: RunFolder, certificate: Certificate, net: StochasticNetwork, bound_data: Data, test: Data | None, draws: int
) -> Evaluation:
    config, holdout = run.config(), None
    if config.learns_prior:
        failure = certificate.delta + certificate.mc_delta
        # By the run's seed: the same for each of its certificates, so that none can be picked by it.
        holdout = holdout_bound(net, bound_data, delta=failure / certificate.priors, seed=config.seed)
    error, deviation, tested = _test_error(net, certificate, test, draws) if test else (None, None, 0)
    evaluation = Evaluation(
        error, deviation, tested, len(test) if test else 0, holdout,
        constant_error=1 - max(bound_data.class_counts()) / len(bound_data),
        doubts=doubts(net.prior_trained_on, bound_data),
    )  # fmt: skip
    if processes.first():
        content = evaluation.to_json()
        note(run, "evaluated", content=content)  # first, as in certify_run
        write_atomically(run.path / "evaluation.json", content)
    return evaluation


def _test_data(run: RunFolder, net: StochasticNetwork, bound_data: Data, data: str | None) -> Data | None:
    """The test data, if there are any that can be used and that the prior has not seen.

    They are no part of a certificate, and do not stop one.
    """
    test = usable_test_data(run.config_with_data(data), bound_data.shape)
    if test is not None and run.config().prior_data and test.overlaps(*net.prior_trained_on):
        warnings.warn("the prior has seen some of the test part, and there is no test error", stacklevel=2)
        return None
    return test


def _test_error(
    net: StochasticNetwork, certificate: Certificate, test: Data, draws: int
) -> tuple[float, float | None, int]:
    """The certified predictor's error, its deviation over draws, and their number."""
    if certificate.predictor == "randomised":
        return *test_error(net, test, draws, certificate.seed), draws
    if certificate.predictor == "single":
        one = net.at(single_weights(net, certificate.seed).to(net.mean))
        labels = voted(one, test.x, "mean", 1, certificate.seed)
    else:
        labels = voted(net, test.x, "independent", certificate.voters, certificate.seed)
    return float((labels != test.y.cpu()).double().mean()), None, 1


def certify_run_classes(
    run: RunFolder, *, device: str | None = None, data: str | None = None, **options: Any
) -> ClassCertificate:
    """Write ``classes.json`` into the run folder; options as for :func:`~pacbayes.certify_classes`."""
    with run.alone():
        check_files(run, EVENTS["trained"])
        if processes.first():
            check_writable(run.path)
        issued = certify_classes(*trained_network(run, device, data), priors=run.config().priors, **options)
        if processes.first():
            content = issued.to_json()
            note(run, "classes certified", content=content)  # first, as in certify_run
            write_atomically(run.path / "classes.json", content)
        return issued
