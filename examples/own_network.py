"""An ordinary network, trained in a loop of one's own on the prior data, becomes the prior."""

import torch
from torch import nn

import pacbayes as pb

prior_data, bound_data = pb.split(pb.load("digits"), fraction=0.5)

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(144, 10)
)
optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 40)
for _ in range(40):
    for batch in torch.randperm(len(prior_data)).split(64):
        images = prior_data.x[batch] + 0.1 * torch.randn(len(batch), 1, 8, 8)  # prior data may be augmented
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images), prior_data.y[batch]).backward()
        optimiser.step()
    schedule.step()

net = pb.stochastic(pb.fold_batchnorm(model, prior_data.x[:8]), prior_variance=1e-4)
pb.scale_prior(net, prior_data, tolerance=0.005)
pb.fit(net, bound_data, epochs=10, rate=0.002, batch_size=64)
print(net.audit())

# One network, drawn now: an ordinary state dict of the folded model.
certificate = pb.certify(net, bound_data, bound="best", predictor="single", seed=1)
pb.export_single(net, certificate, "single.safetensors")
print(certificate)
