"""Each entry of a certificate in plain English, grouped in the order of the page."""

from __future__ import annotations

from dataclasses import dataclass

from pacbayes.certificates import Certificate


@dataclass(frozen=True)
class Entry:
    """One row of the table."""

    name: str
    value: str
    meaning: str


_COUNTS = ("m", "draws", "errors", "visits")

_MEANINGS = {
    "The promise": {
        "risk_bound": "The certified risk: the true error rate is at most this. "
        "For the paper's bound kl_inverse(empirical_risk_bound, penalty), rounded up.",
        "confidence": "The promise holds with at least this probability, over the draw of the data and of the "
        "Monte-Carlo samples: 1 − delta − mc_delta.",
        "delta": "The share of failure allowed to the PAC-Bayes theorem: the bound data may be unlucky.",
        "mc_delta": "The share of failure allowed to the Monte-Carlo estimate: the draws may be unlucky.",
        "predictor": "What is promised to err so rarely. randomised: a fresh draw of the weights for each prediction. "
        "single: one network, drawn once. majority: the vote of several fresh draws for each prediction.",
        "loss": "What the risk is the mean of: the 0-1 error, or a loss in [0, 1] of this name.",
        "bound": "The formula of risk_bound. invKL is the paper's, the inverse of the binary kl divergence; best is "
        "the least of a fixed few, each at its share of delta.",
        "part": "The formula that gave risk_bound.",
        "parts": "What each formula gave that was evaluated, at its share of delta.",
    },
    "The error on the bound data": {
        "empirical_risk": "The error rate seen: errors / (visits · unit); of a vote, by the count that part names.",
        "empirical_risk_bound": "What the classifier's error rate on the bound data is at most, given that it was "
        "estimated with random draws.",
        "errors": "How many of the visits ended in a wrong label, in parts of 1 / unit.",
        "visits": "How often an example was shown to a randomly drawn network.",
        "unit": "Errors are counted in this part of one; above 1 where losses are not whole numbers.",
        "voters": "How many networks vote on each prediction of the majority vote.",
        "pair_errors": "Visits where two of the voters, picked at random with replacement, were both wrong.",
        "vote_errors": "Visits where the vote was wrong.",
        "draws": "How many independent draws of the weights stand behind the estimate.",
        "sampling": "independent: each visit has a draw of its own. shared: each draw passes over all the bound data, "
        "and counts once. once: the single network passes over the bound data. exact: computed, without draws.",
        "limit": "How empirical_risk_bound follows from the counts: two-sided and one-sided are Chernoff limits, "
        "clopper-pearson is the exact binomial one, none says that there was no Monte Carlo.",
        "seed": "The seed of the draws.",
    },
    "The price of generalising": {
        "m": "The number of examples of the bound data: those that the prior has not seen.",
        "kl": "KL(Q‖P) in nats: how far training moved the classifier from the prior, which was fixed before the "
        "bound data were looked at. Zero if it did not move.",
        "profile_kl": "The KL with the prior's scale chosen for each weight tensor after training, and the price of "
        "that choice.",
        "log_ratio": "For a single network, in place of the KL: log dQ/dP at its weights.",
        "profile_log_ratio": "The same, with the prior's scale chosen for each weight tensor.",
        "draw": "How many single networks were drawn so far; each is charged for.",
        "priors": "How many priors, splits, scales or seeds were to be tried, this one among them. All share delta "
        "equally, so that any of them may be chosen, and then certified.",
        "catoni": "The values of C for Catoni's bound, fixed with the prior.",
        "penalty": "(kl + log(2√m/delta)) / m, or its like for another bound: what it pays for each example.",
    },
    "What it is about": {
        "objective": "What the posterior was trained to minimise. The bound holds whatever it was.",
        "prior_fingerprint": "SHA-256 of prior.safetensors.",
        "posterior_fingerprint": "SHA-256 of posterior.safetensors: the law that weights are drawn from.",
        "single_fingerprint": "SHA-256 of single.safetensors: the single network that is certified, if one is.",
        "bound_data_fingerprint": "SHA-256 of the bound data.",
        "versions": "The software that issued the certificate.",
        "time": "When it was issued.",
    },
}


def explained(certificate: Certificate) -> dict[str, list[Entry]]:
    """Every entry of the certificate, under the heading of its group; floats in full."""
    return {
        group: [Entry(name, _shown(name, getattr(certificate, name)), meaning) for name, meaning in meanings.items()]
        for group, meanings in _MEANINGS.items()
    }


def _shown(name: str, value: object) -> str:
    if value in (None, "", [], {}):
        return "none"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return f"{value:,}" if name in _COUNTS else str(value)
