"""A body that stays as it is, and a stochastic head: nothing is drawn but the last layer, so nothing is estimated.

    python examples/frozen_body.py                # a small network of one's own
    python examples/frozen_body.py torchvision    # its ResNet-18; pip install torchvision
    python examples/frozen_body.py timm           # a ResNet of timm's; pip install timm

The body is trained on the prior data here, for nothing is downloaded. With pre-trained weights, where the comments say,
this becomes fine-tuning, or may be left out. They must not come from the bound data.
"""

import sys

import torch
from torch import nn

import pacbayes as pb


class Enlarged(nn.Module):
    """Grey images of 8 x 8 as the networks for photographs want them: three channels, 16 x 16."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.interpolate(x.expand(-1, 3, -1, -1), size=16)


def network(kind: str) -> tuple[nn.Module, int]:
    """A model that ends in a Linear to ten classes, and how long to train it."""
    if kind == "torchvision":
        from torchvision.models import resnet18

        model = resnet18()  # pre-trained: resnet18(weights="DEFAULT")
        model.fc = nn.Linear(model.fc.in_features, 10)
        return nn.Sequential(Enlarged(), model), 4
    if kind == "timm":
        import timm

        model = timm.create_model("resnet10t", num_classes=10)  # pre-trained: pretrained=True
        return nn.Sequential(Enlarged(), model), 8
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), 40


prior_data, bound_data = pb.split(pb.load("digits"), fraction=0.5)
torch.manual_seed(0)
model, epochs = network(sys.argv[1] if len(sys.argv) > 1 else "own")
optimiser = torch.optim.Adam(model.parameters(), lr=0.003)
for _ in range(epochs):
    for batch in torch.randperm(len(prior_data)).split(64):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(prior_data.x[batch]), prior_data.y[batch]).backward()
        optimiser.step()

prior_features, head = pb.features(model, prior_data)  # the body runs once, in evaluation mode
bound_features, _ = pb.features(model, bound_data)
net = pb.stochastic(head, prior_variance=1e-4)
scale = pb.scale_prior(net, prior_features, tolerance=0.005)
print(f"error on the prior data: {scale.error_of_means:.2%} for the means, {scale.error:.2%} for draws")

pb.fit(net, bound_features, epochs=20, rate=0.01, batch_size=64)
print(pb.certify(net, bound_features, bound="best", sampling="exact"))
