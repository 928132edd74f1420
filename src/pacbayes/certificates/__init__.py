"""Certificates: the Monte-Carlo step, the record, and its verification."""

from pacbayes.certificates.certificate import Certificate
from pacbayes.certificates.certify import certify, holdout_bound
from pacbayes.certificates.monte_carlo import test_error

__all__ = ["Certificate", "certify", "holdout_bound", "test_error"]
