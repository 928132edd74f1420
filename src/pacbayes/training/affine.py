"""Proposition 3 at work: the bound B1 is almost affine where the risk's estimate from one hidden draw lies.

So the gradient of the bound at the estimate is almost unbiased, though the bound is not linear in the risk
(figures 1, SM1 and SM2).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pacbayes.bounds.binary_kl import kl_inverse
from pacbayes.bounds.pac_bayes import penalty
from pacbayes.data import Data
from pacbayes.devices import has_triton
from pacbayes.errors import NonFinite
from pacbayes.networks import StochasticNetwork
from pacbayes.networks.normals import Counted, Tape
from pacbayes.networks.refusals import check_examples
from pacbayes.seeds import derived_seed
from pacbayes.training.settings import Settings
from pacbayes.training.stage import Stage

BINS = 50
_CHUNK = 10_000


def affine_check(net: StochasticNetwork, data: Data, realisations: int, seed: int, delta: float) -> dict[str, Any]:
    """The distribution of the estimated risk, the bound and its slope at the mean and two deviations to each side."""
    risks = risk_realisations(net, data, realisations, seed).numpy(force=True)
    mean, sd = float(risks.mean()), float(risks.std(ddof=1))
    if not math.isfinite(sd):
        raise NonFinite("an estimate of the risk was not finite")
    with torch.no_grad():
        divergence = float(net.kl())
    pen = penalty(divergence, len(data), delta)
    low, middle, high = (slope(max(q, 1e-12), pen) for q in (mean - 2 * sd, mean, mean + 2 * sd))
    counts, edges = np.histogram(risks, BINS)
    return {
        "m": len(data), "kl": divergence, "penalty": pen, "realisations": realisations, "mean": mean, "sd": sd,
        "bound": kl_inverse(mean, pen), "slope": middle, "slope_below": low, "slope_above": high,
        "slope_variation": max(abs(low / middle - 1), abs(high / middle - 1)),
        "histogram": {"low": float(edges[0]), "high": float(edges[-1]), "counts": counts.tolist()},
    }  # fmt: skip


def slope(risk: float, pen: float) -> float:
    """The derivative of ``kl_inverse(risk, pen)`` in the risk."""
    q = torch.tensor(risk, dtype=torch.float64, requires_grad=True)
    (by_risk,) = torch.autograd.grad(kl_inverse(q, torch.tensor(pen, dtype=torch.float64)), q)
    return float(by_risk)


@torch.no_grad()
def risk_realisations(net: StochasticNetwork, data: Data, count: int, seed: int) -> Tensor:
    """Estimates of the empirical risk, each from one draw of the hidden weights for all the data (section 3.2)."""
    check_examples(net, data.x)
    stage = Stage(net, data, Settings(sampling="shared"))
    device, cuda = net.mean.device, net.mean.is_cuda
    generator = torch.Generator(device).manual_seed(derived_seed(seed, 3, 1))
    count_of = Counted(net.mean)
    stage.risk(torch.arange(1, device=device), count_of)
    noise = net.mean.new_empty(count_of.used)
    compiles = cuda and has_triton() and stage.resident
    measure = torch.compile(stage.risk, fullgraph=True, dynamic=False) if compiles else stage.risk
    batches = torch.arange(len(data), device=device).split(_CHUNK)
    risks = torch.zeros(count, dtype=torch.float64, device=device)
    with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
        for number in range(count):
            noise.normal_(generator=generator)
            for batch in batches:
                risks[number] += measure(batch, Tape(noise)).double() * (len(batch) / len(data))
    return risks
