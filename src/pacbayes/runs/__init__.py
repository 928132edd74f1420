"""Runs: a configuration carried out in a folder, then certified, verified and used from it."""

from pacbayes.runs.certify import certify_run, certify_run_classes, evaluate_run
from pacbayes.runs.check import Check
from pacbayes.runs.config import Config
from pacbayes.runs.evaluation import Evaluation
from pacbayes.runs.folder import RunFolder
from pacbayes.runs.predict import predict_run
from pacbayes.runs.signature import new_key, sign_run
from pacbayes.runs.train import train_run, trained_network
from pacbayes.runs.verify import verification, verify_run

__all__ = [
    "Check",
    "Config",
    "Evaluation",
    "RunFolder",
    "certify_run",
    "certify_run_classes",
    "evaluate_run",
    "new_key",
    "predict_run",
    "sign_run",
    "train_run",
    "trained_network",
    "verification",
    "verify_run",
]
