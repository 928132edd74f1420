"""A rare class: malignant tumours made six times rarer than benign ones, and certified on their own."""

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer

import pacbayes as pb

x, y = load_breast_cancer(return_X_y=True)
y = 1 - y  # 1: malignant
kept = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:60]])
prior_data, bound_data = pb.split((x[kept], y[kept]), fraction=0.4)
net = pb.stochastic(pb.standardise(pb.build("mlp", (30,), 2), prior_data), prior_variance=0.001)
pb.learn_prior(net, prior_data)
pb.fit(net, bound_data, epochs=10, rate=0.002, batch_size=64)
print(pb.certify(net, bound_data, bound="best", draws=50_000, seed=1).sentence())
print(pb.certify_classes(net, bound_data, draws=50_000, seed=1))


def cost(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """A missed tumour costs 1, a false alarm a tenth."""
    wrong = outputs.argmax(-1) != labels
    return wrong * torch.where(labels == 1, 1.0, 0.1)


print(pb.certify(net, bound_data, loss=cost, bound="best", draws=50_000, seed=1).sentence())
