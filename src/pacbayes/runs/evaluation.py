"""What is measured beside a certificate, and the record of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from pacbayes.certificates.records import record_of
from pacbayes.errors import RunError

MADE_AGAIN = "'pacbayes certify RUN --evaluate' makes it again"


@dataclass(frozen=True)
class Evaluation:
    """Numbers to set beside a certificate; none of them enters it."""

    test_error: float | None
    """Of the certified predictor."""
    test_error_sd: float | None
    """Over the draws, of which a single network has none, and a vote for each example one."""
    test_draws: int
    test_examples: int
    holdout_bound: float | None
    """The prior's Clopper-Pearson bound on the bound data, at the certificate's confidence; learnt priors only."""
    constant_error: float | None = None
    """On the bound data, of always answering with their most frequent class."""
    doubts: list[str] = field(default_factory=list)
    """What speaks against the bound data being independent draws."""

    def near_constant(self, risk_bound: float) -> bool:
        """Whether one answer for all examples does nearly as well as the certificate promises, or better."""
        return self.constant_error is not None and self.constant_error < 1.25 * risk_bound

    def remarks(self, risk_bound: float) -> list[str]:
        """What a reader of the bound should know too, in sentences."""
        found = [f"{words[0].upper()}{words[1:]}." for words in self.doubts if words]
        if self.near_constant(risk_bound):
            answer = f"{100 * (self.constant_error or 0):.2f} % of the bound data"
            found.append(f"Always answering with the most frequent class would err on {answer}.")
        return found

    def to_json(self) -> bytes:
        return (json.dumps(asdict(self), indent=2) + "\n").encode()

    @classmethod
    def from_json(cls, content: bytes, source: str) -> Evaluation:
        """The evaluation in a file, which may be anybody's."""
        refusal = f"{source} is damaged ({MADE_AGAIN})"
        found = record_of(cls, content, refusal)
        rates = (found.test_error, found.test_error_sd, found.holdout_bound, found.constant_error)
        counts = (found.test_draws, found.test_examples)
        if not all(rate is None or 0 <= rate <= 1 for rate in rates) or not all(0 <= n < 2**53 for n in counts):
            raise RunError(f"{refusal}: a number is out of its range")
        return found
