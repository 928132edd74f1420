"""Certifying a finished run: the certificate, and beside it what it can be compared with."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pacbayes import processes
from pacbayes.certificates import (
    Certificate,
    ClassCertificate,
    certify,
    certify_classes,
    export_single,
    holdout_bound,
    test_error,
)
from pacbayes.certificates.monte_carlo import Progress
from pacbayes.files import write_json
from pacbayes.runs.folder import RunFolder, test_data
from pacbayes.runs.journal import EVENTS, check_files, forget_derived_files, note, singles_drawn
from pacbayes.runs.train import trained_network


@dataclass(frozen=True)
class Evaluation:
    """Numbers to set beside a certificate; none of them enters it."""

    test_error: float | None
    test_error_sd: float | None
    test_draws: int
    test_examples: int
    holdout_bound: float | None
    """The prior's Clopper-Pearson bound on the bound data, at the certificate's confidence; learnt priors only."""


def certify_run(
    run: RunFolder,
    *,
    bound: str = "invKL",
    predictor: str = "randomised",
    draws: int = 150_000,
    budget: float | None = None,
    delta: float = 0.025,
    mc_delta: float = 0.01,
    sampling: str = "independent",
    limit: str | None = None,
    voters: int = 11,
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
        net, bound_data = trained_network(run, device, data)
        net.single_draws = singles_drawn(run)
        test = test_data(run.config().with_data_at(data), bound_data.shape)
        if test is not None and any(test.overlaps(seen) for seen in net.prior_trained_on if run.config().prior_data):
            test = None  # the prior has seen them
        certificate = certify(
            net, bound_data, bound=bound, predictor=predictor, delta=delta, mc_delta=mc_delta, draws=draws,
            budget=budget, sampling=sampling, limit=limit, voters=voters, priors=run.config().priors, seed=seed,
            progress=progress,
        )  # fmt: skip
        if processes.first():
            forget_derived_files(run)
            if predictor == "single":
                export_single(net, certificate, run.weights_file("single"))
                note(run, "drawn")
            certificate.save(run.certificate_file)
            note(run, "certified", certificate.risk_bound)

        holdout = None
        if run.config().learns_prior:
            failure = certificate.delta + certificate.mc_delta
            holdout = holdout_bound(net, bound_data, delta=failure / certificate.priors, seed=seed)
        error, deviation = test_error(net, test, test_draws, certificate.seed) if test else (None, None)
        evaluation = Evaluation(error, deviation, test_draws if test else 0, len(test) if test else 0, holdout)
        if processes.first():
            write_json(run.path / "evaluation.json", asdict(evaluation))
            note(run, "evaluated")
        return certificate, evaluation


def certify_run_classes(
    run: RunFolder, *, device: str | None = None, data: str | None = None, **options: Any
) -> ClassCertificate:
    """Write ``classes.json`` into the run folder; options as for :func:`~pacbayes.certificates.certify_classes`."""
    with run.alone():
        check_files(run, EVENTS["trained"])
        issued = certify_classes(*trained_network(run, device, data), priors=run.config().priors, **options)
        if processes.first():
            issued.save(run.path / "classes.json")
            note(run, "classes certified")
        return issued
