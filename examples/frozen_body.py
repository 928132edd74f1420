"""A body that stays as it is, and a stochastic head: nothing is drawn but the last layer, so nothing is estimated.

The body here is a small network trained on the prior data. It may as well be torchvision's or timm's, or embeddings of
texts: anything that was not trained on the bound data.
"""

import torch
from torch import nn

import pacbayes as pb

prior_data, bound_data = pb.split(pb.load("digits"), fraction=0.5)

torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimiser = torch.optim.Adam(model.parameters(), lr=0.003)
for _ in range(40):
    for batch in torch.randperm(len(prior_data)).split(64):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(prior_data.x[batch]), prior_data.y[batch]).backward()
        optimiser.step()

prior_features, head = pb.features(model, prior_data)  # the body runs once
bound_features, _ = pb.features(model, bound_data)
net = pb.stochastic(head, prior_variance=1e-4)
scale = pb.scale_prior(net, prior_features, tolerance=0.005)
print(f"error on the prior data: {scale.error_of_means:.2%} for the means, {scale.error:.2%} for draws")

pb.fit(net, bound_features, epochs=20, rate=0.01, batch_size=64)
print(pb.certify(net, bound_features, bound="best", sampling="exact"))
