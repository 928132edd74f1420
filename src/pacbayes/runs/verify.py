"""Verification of a run folder: each check a line, passed, failed, or not checkable and why."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch

from pacbayes.bounds import CATONI_GRID, catoni_parameter
from pacbayes.certificates import Certificate
from pacbayes.certificates.audit import (
    class_faults,
    network_faults,
    smaller_divergences,
)
from pacbayes.certificates.monte_carlo import Progress
from pacbayes.certificates.records import same
from pacbayes.certificates.wording import rounded_up
from pacbayes.devices import device_named
from pacbayes.errors import InvalidInput, PacBayesError, RunError
from pacbayes.files import sha256
from pacbayes.networks import StochasticNetwork
from pacbayes.runs.check import FAILED, OPEN, PASSED, Check, attempt, equal
from pacbayes.runs.config import Config
from pacbayes.runs.evaluation import MADE_AGAIN
from pacbayes.runs.folder import FILES, RunFolder
from pacbayes.runs.journal import EVENTS, Journal, going_on, read_journal, singles_drawn
from pacbayes.runs.journal import NAME as JOURNAL
from pacbayes.runs.networks import new_network
from pacbayes.runs.signature import NAME as SIGNATURE
from pacbayes.runs.signature import check_signature, public_key
from pacbayes.runs.verify_data import data_checks

HashOf = Callable[[str], str]
"""The SHA-256 of a file of the run, by its name; RunError where it cannot be read."""


def verify_run(run: RunFolder, **options: Any) -> list[Check]:
    """All checks of :func:`verification`, whose options it takes."""
    return list(verification(run, **options))


def verification(
    run: RunFolder,
    *,
    recompute: bool = False,
    data: str | None = None,
    key: Path | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Iterator[Check]:
    """Recompute what can be recomputed from the folder, and from the data where they are at hand: a check at a time.

    ``recompute`` repeats the Monte-Carlo count with fresh draws: without it the count itself is taken as recorded.
    ``key`` is the public key of the issuer, who must have signed the run.
    ``data`` is where the data are now, if not where config.toml says: a .npz or .csv file, or a folder with them.
    ``progress`` is told the fraction of the count that is done.
    """
    if key is not None:
        public_key(key)  # a wrong one is said before the work
    # A journal is begun when training ends, and says what was issued, whatever has gone since.
    begun = run.weights_file("posterior"), run.certificate_file, run.path / JOURNAL
    if run.config_file.exists() and not any(map(os.path.lexists, begun)):
        yield Check("training", FAILED, f"not finished. {going_on(run)}")
        return
    yield from _checks(run, recompute, data, device, progress)
    yield from _signature(run, key)


def _checks(
    run: RunFolder, recompute: bool, data: str | None, device: str, progress: Progress | None
) -> Iterator[Check]:
    hash_of = cache(lambda name: sha256(run.read(name)))
    device_named(device)  # a wrong name is no fault of the certificate
    yield from _folder(run, hash_of)
    yield from _history(run, hash_of)
    try:
        certificate = run.certificate()
    except PacBayesError as error:
        yield Check("record", FAILED, str(error))
        return
    yield Check("record", PASSED, "certificate.json has the expected fields and types")
    faults = certificate.check()
    yield Check("arithmetic", FAILED if faults else PASSED, "; ".join(faults) or "every number follows from the counts")
    for which in ("prior", "posterior"):
        recorded = getattr(certificate, f"{which}_fingerprint")
        yield attempt(f"{which} fingerprint", _weights, hash_of, which, recorded)
    yield attempt("kept epoch", _kept_epoch, run, certificate)
    if certificate.predictor == "single":
        yield attempt("single fingerprint", _weights, hash_of, "single", certificate.single_fingerprint)
        yield attempt("single draws", _single_draws, run, certificate)
    yield from _priors(run, certificate)
    net = None
    try:
        net = run.network(device)
        yield attempt("KL", _divergence, run, certificate, net)
    except PacBayesError as error:
        yield Check("KL", FAILED, str(error))
    else:
        if not run.config().learns_prior:
            yield attempt("data-free prior", _data_free, run, certificate, net)
        yield Check("C", *_catoni(run.config(), certificate, net))
    if os.path.lexists(run.path / "classes.json"):
        yield attempt("classes", _classes, run, certificate, net)
    yield from data_checks(run, certificate, net, data, recompute and not faults, progress)


def _folder(run: RunFolder, hash_of: HashOf) -> Iterator[Check]:
    """The journal, and by it every file: the line of a file that has changed bears its name."""
    try:
        names = sorted(path.name for path in run.path.iterdir())
    except OSError as error:
        raise RunError(f"{run.path} is not a folder that can be read: {error.strerror or error}") from None
    if unknown := [name for name in names if name not in FILES]:
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        yield Check("other files", OPEN, f"{', '.join(unknown[:5])}{more}: not of the run, and not looked at")
    try:
        journal = read_journal(run)
    except PacBayesError as error:
        yield Check(JOURNAL, FAILED, str(error))
        return
    yield Check("journal", PASSED, f"{_lines(len(journal.lines))}, each with the hash of the one before")
    recorded = journal.files()
    present = [name for name in FILES if name != JOURNAL and (name in names or name in recorded)]
    checks = [attempt(name, _content, run, hash_of, name, recorded.get(name)) for name in present]
    yield from (check for check in checks if check.status != PASSED)
    if all(check.status != FAILED for check in checks):
        whole = [check.name for check in checks if check.status == PASSED]
        yield Check("files", PASSED, f"{', '.join(whole)}: each as it was written")
    yield _issued(journal)


def _lines(count: int) -> str:
    return f"{count} line{'s' * (count != 1)}"


def _content(run: RunFolder, hash_of: HashOf, name: str, recorded: str | None) -> tuple[str, str]:
    # No certificate needs it, and its line in the journal comes before it: there may have been no time for it.
    if name in EVENTS["evaluated"] and not os.path.lexists(run.path / name):
        return OPEN, f"it is missing, and {MADE_AGAIN}"
    found = hash_of(name)
    if recorded is None:
        return FAILED, "the run did not write it: it is not in the journal"
    if found != recorded:
        return FAILED, f"it has changed since it was written: {found[:16]}, in the journal {recorded[:16]}"
    return PASSED, "as it was written"


def _issued(journal: Journal) -> Check:
    bounds, of_classes = journal.risk_bounds(), sum(line.event == "classes certified" for line in journal.lines)
    if max(len(bounds), of_classes) < 2:
        return Check("issued", PASSED, f"{len(bounds) or 'no'} certificate for this run, by the journal")
    shown = ("the last 8: " if len(bounds) > 8 else "") + ", ".join(rounded_up(bound, 4) for bound in bounds[-8:])
    classes = f", and {of_classes} for its classes" if of_classes else ""
    counted = f"{len(bounds)} certificate{'s' if len(bounds) > 1 else ''} for this run ({shown}){classes}"
    return Check("issued", OPEN, f"{counted}: none holds if chosen by its result")


def _history(run: RunFolder, hash_of: HashOf) -> Iterator[Check]:
    """From the configuration and the data to the prior, from there to the posterior, and on to the journal."""
    try:
        history = run.history()
        expected = run.config().epochs()
    except PacBayesError as error:
        yield Check("history", FAILED, str(error))
        return
    if history.epochs != expected:
        yield Check("history", FAILED, f"its epochs are {history.epochs}, and those of config.toml {expected}")
    else:
        lines = _lines(sum(expected.values()))
        yield Check("history", PASSED, f"{lines}, each with the hash of the one before, from config.toml on")
    yield attempt("prior in history", _weights, hash_of, "prior", history.prior_fingerprint)
    try:
        end = read_journal(run).lines[0].previous
    except PacBayesError:
        return
    yield Check("end of history", *equal(end, history.end, "the last line of history.jsonl"))


def _kept_epoch(run: RunFolder, certificate: Certificate) -> tuple[str, str]:
    """The divergence that training ended with is that of the weights which are certified."""
    epochs = run.epochs().get("posterior", [])
    kept = epochs[-1].kept if epochs else None
    if kept is None:
        return FAILED, "the history does not say which epoch's weights were kept"
    # That of the weights which training begins with is 0; a profile KL has the price of the scales on top.
    profile = kept >= 0 and run.config().posterior.divergence == "profile"
    expected, found = epochs[kept].kl if kept >= 0 else 0.0, certificate.profile_kl if profile else certificate.kl
    words = f"epoch {kept + 1} of {len(epochs)}" if kept >= 0 else "the weights that training began with"
    if found is None or abs(found - expected) > 1e-3 + 1e-4 * abs(expected):
        return FAILED, f"{words} ended with a divergence of {expected:.6g}, and that of the certificate is {found}"
    return PASSED, f"{words}, with the divergence of the certificate, {found:.6g}"


def _signature(run: RunFolder, key: Path | None) -> Iterator[Check]:
    if not os.path.lexists(run.path / SIGNATURE):
        if key is not None:
            yield Check("signature", FAILED, "the run is not signed")
        return
    try:
        known, detail = check_signature(run, read_journal(run), key)
    except RunError as error:
        yield Check("signature", FAILED, str(error))
    except InvalidInput as error:
        if key is not None:
            raise
        yield Check("signature", OPEN, str(error))
    else:
        yield Check("signature", *((PASSED, detail) if known else (OPEN, f"{detail}; whose it is, say with --key")))


def _weights(hash_of: HashOf, which: str, recorded: str) -> tuple[str, str]:
    return equal(recorded, hash_of(f"{which}.safetensors"), f"{which}.safetensors")


def _divergence(run: RunFolder, certificate: Certificate, net: StochasticNetwork) -> tuple[str, str]:
    faults = network_faults(certificate, net, run.single(certificate))
    detail = f"recomputed from the two weight files: {certificate.kl:.9g}"
    return (FAILED, "; ".join(faults)) if faults else (PASSED, detail)


def _single_draws(run: RunFolder, certificate: Certificate) -> tuple[str, str]:
    drawn = singles_drawn(run)
    if drawn == certificate.draw:
        return PASSED, f"{drawn} drawn for this run, by the journal, and charged"
    return FAILED, f"{drawn} were drawn for this run, by the journal, and {certificate.draw} are charged"


def _priors(run: RunFolder, certificate: Certificate) -> Iterator[Check]:
    """The number of priors tried is in config.toml, and so fixed before training."""
    try:
        tried = run.config().priors
    except PacBayesError:
        return
    if tried != certificate.priors:
        yield Check("priors", FAILED, f"config.toml says one of {tried}, and {certificate.priors} are charged")
    elif tried > 1:
        yield Check("priors", PASSED, f"chosen among {tried}, by config.toml, and charged")


def _classes(run: RunFolder, certificate: Certificate, net: StochasticNetwork | None) -> tuple[str, str]:
    issued, classes = run.classes(), run.data_record()["classes"]
    if len(issued.m) != classes:
        return FAILED, f"it is for {len(issued.m)} classes, and the data have {classes}"
    names = ("prior_fingerprint", "posterior_fingerprint", "bound_data_fingerprint")
    faults = [
        f"its {name} is not that of certificate.json"
        for name in names
        if getattr(issued, name) != getattr(certificate, name)
    ]
    if issued.priors != certificate.priors:
        faults.append("it is not charged for the priors of certificate.json")
    if not same(issued.kl, certificate.kl) or issued.catoni != (certificate.catoni or issued.catoni):
        faults.append("its KL or C is not that of certificate.json")
    if sum(issued.m) != certificate.m:
        faults.append("its classes have not as many examples as certificate.json")
    faults += [] if net is None else class_faults(issued, net)
    # Last, and only of a record for this run: of many classes it takes a while.
    faults = faults or issued.check()
    return (
        (FAILED, "; ".join(faults))
        if faults
        else (PASSED, "every bound follows from the counts, for the randomised classifier")
    )


def _data_free(run: RunFolder, certificate: Certificate, net: StochasticNetwork) -> tuple[str, str]:
    """A data-free prior is the network at its initialisation, which the seed gives."""
    config = run.config()
    start = new_network(config.with_options({"device": "cpu"}), tuple(run.data_record()["shape"]), net.classes)
    # All of it: also what is fixed, a body of the network.
    found, made = (n.state("prior") for n in (net, start))
    names = made.keys() - {"catoni"}
    if names == found.keys() - {"catoni"} and all(
        torch.allclose(found[name].float(), made[name].float(), rtol=1e-4, atol=1e-5) for name in names
    ):
        # Another machine may round otherwise, but no divergence may hide in that.
        if faults := smaller_divergences(certificate, net, start, run.single(certificate)):
            return FAILED, "; ".join(faults)
        return PASSED, f"the prior is the initialisation from seed {config.seed}"
    # The version that the record states excuses nothing: whoever forges the one can write the other.
    recorded, here = certificate.versions.get("torch", "unknown"), str(torch.__version__)
    other = "" if recorded.split("+")[0] == here.split("+")[0] else f" by torch {here}; try {recorded}, which made it"
    return FAILED, f"the prior is not the initialisation from seed {config.seed}{other}"


def _catoni(config: Config, certificate: Certificate, net: StochasticNetwork) -> tuple[str, str]:
    """The values of Catoni's C: a part of the prior, fixed by the configuration."""
    if config.held_back:
        return OPEN, "chosen on prior data that were held back, before the posterior was trained: in prior.safetensors"
    expected: tuple[float, ...] = CATONI_GRID
    if config.expected_risk:
        risk, kl = config.expected_risk, config.expected_kl
        expected = (catoni_parameter(risk, kl, certificate.m, config.posterior.delta),)
    if same(dict(enumerate(net.catoni)), dict(enumerate(expected))):
        return PASSED, "of Catoni's bound: as config.toml has it"
    return FAILED, "of Catoni's bound: not what config.toml says, so it may have been chosen by the result"
