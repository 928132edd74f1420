"""Lightning has the loop: pb.objective is the loss of a training step. Needs `pip install lightning`."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

import pacbayes as pb


class Stage(lightning.LightningModule):
    """One stage of training: the prior's, by cross-entropy, or the posterior's, by the bound."""

    def __init__(self, net: pb.StochasticNetwork, m: int, rate: float, **options: object):
        super().__init__()
        self.net, self.m, self.rate, self.options = net, m, rate, options

    def training_step(self, batch: tuple, number: int) -> torch.Tensor:
        return pb.objective(self.net, batch, m=self.m, **self.options)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.net.parameters(), lr=self.rate)


def train(net: pb.StochasticNetwork, data: pb.Data, epochs: int, rate: float, **options: object) -> None:
    batches = DataLoader(TensorDataset(data.x, data.y), batch_size=64, shuffle=True)
    trainer = lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    # It says that modules are in evaluation mode: those inside the network stay there, dropout and all.
    # m is the number of all the bound data, whatever the batches are.
    trainer.fit(Stage(net, len(data), rate, **options), batches)


lightning.seed_everything(0)
prior_data, bound_data = pb.split(pb.load("digits"), fraction=0.5)
net = pb.stochastic(pb.build("mlp", bound_data.shape, bound_data.classes), prior_variance=0.001)
train(net, prior_data, 30, 3e-3, method="CE")
pb.freeze_prior(net, prior_data)  # Lightning keeps no record: say which data shaped the prior
train(net, bound_data, 10, 1e-4, objective="invKL")
print(pb.certify(net, bound_data, bound="best", draws=50_000, seed=1))
