"""A run that was made on a GPU is verified on a CPU, to the last of its numbers. Skipped where there is no GPU."""

from __future__ import annotations

import pytest
import torch

from pacbayes.runs import Config, certify_run, train_run, verify_run

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore"),  # the compiler's own
]

DEVICE = "cuda"
SHORT = {"epochs": 2, "batch_size": 100, "evaluate": "running"}


@pytest.mark.parametrize("predictor", ["randomised", "single"])
def test_a_run_on_a_gpu_verifies_on_the_cpu(predictor, tmp_path):
    stages = {"pretraining": SHORT, "prior_training": SHORT, "posterior": {**SHORT, "rate": 1e-4}}
    config = Config().with_options({"data": "digits", "model": "cnn-small", "device": DEVICE, **stages})
    run = train_run(config, tmp_path / "run")
    certify_run(run, predictor=predictor, bound="best" if predictor == "single" else "invKL", test_draws=2, seed=1)
    checks = verify_run(run, recompute=True)
    assert [f"{check.name}: {check.detail}" for check in checks if check.status == "failed"] == []
