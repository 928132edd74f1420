"""What the GPU engine rests on and a CPU can show: each piece of a step compiles whole, and stays the same."""

import pytest
import torch

from pacbayes import Settings, build, load, stochastic
from pacbayes.errors import UnsupportedModel
from pacbayes.networks.normals import Tape
from pacbayes.networks.refusals import check_examples
from pacbayes.training.capture import COMPILATIONS
from pacbayes.training.cuda_graphs import _replaced
from pacbayes.training.stage import Stage

CASES = [
    {},
    {"method": "S", "objective": "lbd"},
    {"method": "CE", "dropout": 0.1},
    {"optimiser": "adam"},
    {"divergence": "profile"},
    {"objective": "quad", "estimator": "L1", "samples": 3, "sampling": "shared"},
]


def test_a_tape_is_read_slice_after_slice():
    tape = Tape(torch.arange(10.0))
    assert tape((2, 2)).tolist() == [[0, 1], [2, 3]]
    assert tape((3,)).tolist() == [4, 5, 6]
    with pytest.raises(UnsupportedModel, match="depends on the example"):
        tape((4,))


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # the compiler's own
@pytest.mark.parametrize("options", CASES)
def test_the_pieces_of_a_step_compile_whole_and_give_the_same_step(options):
    data = load("digits")
    net = stochastic(build("cnn-small", data.shape, data.classes), 0.001)
    check_examples(net, data.x)
    stage = Stage(net, data, Settings(**options))
    batch, noise = torch.arange(16), torch.randn(60_000, generator=torch.Generator().manual_seed(0))
    before = stage.state()

    stage.begin_epoch(0.01)
    stage.step(batch, Tape(noise))
    plain, plain_sums = stage.state(), (stage.objective_sum.item(), stage.error_sum.item())

    stage.load(before)
    stage.begin_epoch(0.01)
    torch._dynamo.reset()
    pieces = {
        name: torch.compile(getattr(stage, name), fullgraph=True, dynamic=False, backend="aot_eager")
        for name in ("measure", "combine", "update")
    }
    with _replaced(stage, pieces):
        stage.step(batch, Tape(noise))
    assert stage.steps.item() == 1 and stage.finite_steps.tolist() == [1] * 2
    for name, value in stage.state().items():
        torch.testing.assert_close(value, plain[name])
    assert (stage.objective_sum.item(), stage.error_sum.item()) == pytest.approx(plain_sums)
    assert not torch.equal(plain["mean"], before["mean"])


def test_hundreds_of_trainings_may_be_compiled_in_one_process():
    """PyTorch stops after 256 compilations of one function, and those of trainings that are gone count."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, kappa: kappa * x, backend="eager", fullgraph=True, dynamic=False)
    with torch._dynamo.config.patch(COMPILATIONS):
        for kappa in range(260):
            assert compiled(torch.ones(1), 1 + kappa / 7)
    torch._dynamo.reset()
