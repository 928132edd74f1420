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
        "kl_inverse(empirical_risk_bound, penalty), rounded up.",
        "confidence": "The promise holds with at least this probability, over the draw of the data and of the "
        "Monte-Carlo samples: 1 − delta − mc_delta.",
        "delta": "The share of failure allowed to the PAC-Bayes theorem: the bound data may be unlucky.",
        "mc_delta": "The share of failure allowed to the Monte-Carlo estimate: the draws may be unlucky.",
        "bound": "The formula of risk_bound. invKL is the inverse of the binary kl divergence.",
    },
    "The error on the bound data": {
        "empirical_risk": "The error rate seen: errors / visits.",
        "empirical_risk_bound": "What the classifier's error rate on the bound data is at most, given that it was "
        "estimated with random draws.",
        "errors": "How many of the visits ended in a wrong label.",
        "visits": "How often an example was shown to a randomly drawn network.",
        "draws": "How many independent draws of the weights stand behind the estimate.",
        "sampling": "independent: each visit has a draw of its own. shared: each draw passes over all the bound data, "
        "and counts once.",
        "limit": "How empirical_risk_bound follows from the counts: two-sided and one-sided are Chernoff limits, "
        "clopper-pearson is the exact binomial one.",
        "seed": "The seed of the draws.",
    },
    "The price of generalising": {
        "m": "The number of examples of the bound data: those that the prior has not seen.",
        "kl": "KL(Q‖P) in nats: how far training moved the classifier from the prior, which was fixed before the "
        "bound data were looked at. Zero if it did not move.",
        "penalty": "(kl + log(2√m/delta)) / m: what the bound pays for each example.",
    },
    "What it is about": {
        "objective": "What the posterior was trained to minimise. The bound holds whatever it was.",
        "prior_fingerprint": "SHA-256 of prior.safetensors.",
        "posterior_fingerprint": "SHA-256 of posterior.safetensors: the classifier that is certified.",
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
    if isinstance(value, dict):
        return ", ".join(f"{package} {version}" for package, version in value.items())
    return f"{value:,}" if name in _COUNTS else str(value)
