"""Certificates: the Monte-Carlo step, the record, and its verification."""

from pacbayes.certificates.certificate import Certificate
from pacbayes.certificates.certify import certify
from pacbayes.certificates.classes import ClassCertificate, certify_classes
from pacbayes.certificates.comparison import compare_bounds, comparison_table
from pacbayes.certificates.evidence import BOUNDS, formulas_of
from pacbayes.certificates.holdout import holdout_bound
from pacbayes.certificates.monte_carlo import test_error
from pacbayes.certificates.single import export_single

__all__ = [
    "BOUNDS",
    "Certificate",
    "ClassCertificate",
    "certify",
    "certify_classes",
    "compare_bounds",
    "comparison_table",
    "export_single",
    "formulas_of",
    "holdout_bound",
    "test_error",
]
