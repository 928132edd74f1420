"""The table of speeds: what is in it, not how fast this machine is."""

import torch
from torch import nn

from pacbayes import Settings, stochastic
from pacbayes.data import Data
from pacbayes.experiments import speed
from pacbayes.networks.refusals import check_examples
from pacbayes.training.stage import Stage


def test_every_line_of_the_table_is_measured(monkeypatch):
    monkeypatch.setitem(speed.EXAMPLES, "cnn-small", 2048)
    monkeypatch.setitem(speed.SHAPES, "cnn-small", (1, 8, 8))
    said: list[str] = []
    lines = speed.measure_speed(
        "cpu", ["cnn-small"], batches=(512,), concurrent=(1, 2), draws=2000, share=0.5, say=said.append
    )
    assert [line.unit for line in lines] == ["TFLOP/s", "s", "TFLOP/s", "times that", "epochs/s", "epochs/s", "s"]
    assert all(line.value > 0 for line in lines)
    assert said == [str(line) for line in lines]


def test_operations_are_those_of_forward_and_backward():
    """A lone Linear: the two products of its moments, and of each the gradient of the weights."""
    data = Data(torch.randn(64, 5), torch.arange(64) % 3, 3)
    net = stochastic(nn.Linear(5, 3), 0.01)
    check_examples(net, data.x)  # as before any training; the first pass of all is preceded by a look at the model
    stage = Stage(net, data, Settings(batch_size=16))
    assert speed._flops(stage, 16) == 4 * 2 * 16 * 5 * 3
