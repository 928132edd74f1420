"""The epochs of a training for TensorBoard, which is no dependency: it is asked for where it is used."""

from __future__ import annotations

from pathlib import Path

from pacbayes.errors import InvalidInput
from pacbayes.training import Epoch


class TensorBoardLog:
    """Writes each epoch's numbers under the name of its stage."""

    def __init__(self, folder: Path):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InvalidInput("--tensorboard needs another package: pip install tensorboard") from None
        self.writer = SummaryWriter(str(folder))

    def __call__(self, stage: str, total: int, epoch: Epoch) -> None:
        for name, value in epoch.record().items():
            if name != "epoch":
                self.writer.add_scalar(f"{stage}/{name}", value, epoch.epoch)

    def close(self) -> None:
        self.writer.close()
