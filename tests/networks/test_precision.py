"""Settings of precision: in force where they are asked for, and put back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import pacbayes as pb
from pacbayes.errors import InvalidInput
from pacbayes.networks import stochastic
from pacbayes.networks.precision import full_precision


@pytest.mark.parametrize("before", ["highest", "high", "medium"])
def test_full_precision_is_that_and_leaves_things_as_they_were(before):
    kinds = [getattr(torch.backends.mkldnn, name, None) for name in ("matmul", "conv")]

    def each():
        return [getattr(kind, "fp32_precision", None) for kind in kinds]

    torch.set_float32_matmul_precision(before)
    try:
        set_before = each()
        with torch.autocast("cpu", torch.bfloat16), full_precision():
            assert torch.get_float32_matmul_precision() == "highest" and not torch.backends.cudnn.allow_tf32
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
        assert torch.get_float32_matmul_precision() == before and torch.backends.cudnn.allow_tf32
        assert each() == set_before
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "conv"), reason="this PyTorch has one setting for all of cuDNN")
def test_settings_that_pytorch_cannot_put_back_are_named():
    net, conv = stochastic(nn.Linear(3, 2)), torch.backends.cudnn.conv
    before = conv.fp32_precision
    conv.fp32_precision = "ieee"
    try:
        assert net(torch.randn(5, 3)).shape == (5, 2)  # a pass is not a count
        with pytest.raises(InvalidInput, match=r"cudnn\.conv\.fp32_precision"):
            pb.certify(net, (torch.randn(20, 3), torch.arange(20) % 2), draws=20)
    finally:
        conv.fp32_precision = before
