"""A step of the stage is a step of PyTorch's own optimiser on the gradient of the objective."""

import pytest
import torch

from pacbayes.data import as_data
from pacbayes.networks.normals import Tape
from pacbayes.training.loss import batch_loss, objective_of
from pacbayes.training.settings import Settings
from pacbayes.training.stage import Stage

OPTIMISERS = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=0.01, momentum=0.8),
    "adam": lambda weights: torch.optim.Adam(weights, lr=0.01, betas=(0.8, 0.999)),
}


@pytest.mark.parametrize("objective", ["invKL", "McAll", "quad", "ERM"])
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_steps_are_those_of_pytorch(optimiser, objective, blobs, small_net):
    data = as_data(blobs(40))
    settings = Settings(optimiser=optimiser, objective=objective, momentum=0.8, kappa=0.5)
    ours, theirs = small_net(), small_net()
    stage = Stage(ours, data, settings)
    stage.begin_epoch(0.01)
    reference = OPTIMISERS[optimiser]((theirs.mean, theirs.rho))
    for number in range(5):
        noise = torch.randn(5000, generator=torch.Generator().manual_seed(number))
        batch = torch.arange(8 * number, 8 * number + 8)
        stage.step(batch, Tape(noise))
        reference.zero_grad()
        loss, _ = batch_loss(theirs, data.x[batch], data.y[batch], settings, Tape(noise))
        objective_of(loss, theirs.kl(exact=False), settings, len(data)).backward()
        reference.step()
    torch.testing.assert_close(ours.mean, theirs.mean, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(ours.rho, theirs.rho, rtol=1e-4, atol=1e-6)
    assert not torch.equal(ours.mean, small_net().mean)
