"""A convolutional network in a run folder, from the training to the page: what the command line does, in Python."""

from pathlib import Path
from tempfile import mkdtemp

from pacbayes.report import model_card, write_report
from pacbayes.runs import Config, certify_run, train_run, verify_run

config = Config().with_options(
    {
        "data": "digits",
        "model": "cnn-small",
        "pretraining": {"epochs": 10},
        "prior_training": {"epochs": 5},
        "posterior": {"epochs": 3},
    }
)
run = train_run(
    config, Path(mkdtemp()) / "run", watch=lambda stage, total, epoch: print(stage, epoch.epoch, epoch.risk)
)
certificate, evaluation = certify_run(run, bound="best", draws=30_000, test_draws=50, seed=1)
print(certificate)
print(f"test error {evaluation.test_error:.2%}, hold-out bound of the prior {evaluation.holdout_bound:.2%}")
for check in verify_run(run):
    print(f"{check.status:<14} {check.name}")
print(write_report(run))
print(model_card(run))
