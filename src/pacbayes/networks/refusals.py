"""What voids a certificate and shows in a few passes of a model: each is refused, in words that name the cause."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
import torch.utils.checkpoint
from torch import Tensor

from pacbayes.data.dataset import spread_rows
from pacbayes.data.streamed import Inputs
from pacbayes.errors import InvalidInput, PacBayesError, UnsupportedModel, first_line
from pacbayes.networks.held_aside import digests, held_aside
from pacbayes.networks.layers import Draw
from pacbayes.networks.normals import normals_like
from pacbayes.networks.precision import full_precision
from pacbayes.networks.stochastic import StochasticNetwork

# Each is passed alone and with the others: a moving average over the batch, say, shows after its first examples only.
PROBES = 32
_PROBES_OF_A_DRAW = 8


@torch.no_grad()
def check_examples(net: StochasticNetwork, x: Inputs) -> None:
    """Refuse a shape that the model does not take, and a model for which no certificate is valid."""
    net.model.eval()
    try:
        few = x[spread_rows(len(x), PROBES)].to(net.mean.device)
        refuse_other_weights(net, few[:1])
        for count in range(1, min(3, len(few)) + 1):
            net(few[:count], "independent", torch.Generator(net.mean.device).manual_seed(0))
        refuse_what_mixes_examples(net, few, len(few), seeds=(0, 1))
        refuse_what_remembers(net, few)
        note_what_is_left_behind(net, few)
    except (RuntimeError, ValueError) as error:
        if isinstance(error, PacBayesError):
            raise
        shape, said = list(x.shape[1:]), first_line(error)
        if "FloatTensor" in said and "Long" in said:
            said += "; inputs are float32, so the model must turn tokens into whole numbers itself: x.long()"
        elif net.mean.dtype != torch.float32:
            said += "; examples are float32, so the weights should be, too: take model.float()"
        raise InvalidInput(f"the model does not take examples of shape {shape}: {said}") from None
    refuse_a_change(net)


def refuse_other_weights(net: StochasticNetwork, x: Tensor) -> None:
    """Whatever else trains, in a list or in a closure, would learn outside the KL: the graph of a pass shows it."""
    trains = net.mean.requires_grad
    net.mean.requires_grad_(True)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            out = net.drawn(x.clone(), Draw("mean", normals_like(net.mean, None)), noted=False)
            _look_back(net, out)
    finally:
        net.mean.requires_grad_(trains)
    waiting = [out.grad_fn]
    seen = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and leaf is not net.mean and leaf is not net.rho:
            raise UnsupportedModel(
                f"a tensor of shape {list(leaf.shape)} trains outside the KL, because it is no parameter of the "
                "model: keep layers in an nn.ModuleList, not in a list, and what does not learn in a buffer"
            )
        waiting += [before for before, _ in node.next_functions]


def _look_back(net: StochasticNetwork, out: Tensor) -> None:
    """Refuse a pass without a way back."""
    if out.grad_fn is None:
        raise UnsupportedModel("the model's pass keeps no gradients: nothing shows which weights have trained")
    try:
        torch.autograd.grad(out.sum(), net.mean, retain_graph=True, allow_unused=True)
    except (AttributeError, TypeError, torch.utils.checkpoint.CheckpointError) as error:
        # Weights are drawn for one pass alone.
        raise UnsupportedModel(
            "the model computes a part of its pass again for the gradient: leave out torch.utils.checkpoint "
            f"({first_line(error)})"
        ) from None
    except Exception:
        pass  # of a backward of one's own: a certificate needs no gradient


@torch.no_grad()
def refuse_what_mixes_examples(net: StochasticNetwork, x: Tensor, probes: int, seeds: Sequence[int]) -> None:
    """Compare a batch with what its first two examples give, and so many of them each by itself.

    At the means, and with a draw of the weights for each seed, and its mirror image: at the means a whole branch may be
    silent, and in a draw another one.
    """
    # Batches of other sizes are computed by other kernels: only in full precision do they agree.
    with full_precision():
        _refuse_what_mixes(net, net.mean.data, x, probes)
        for seed in seeds:
            weights = net.draw_weights(torch.Generator(net.mean.device).manual_seed(seed))
            for drawn in (weights, 2 * net.mean - weights):
                _refuse_what_mixes(net, drawn, x, min(probes, _PROBES_OF_A_DRAW))


def _refuse_what_mixes(net: StochasticNetwork, weights: Tensor, x: Tensor, probes: int) -> None:
    rows = spread_rows(len(x), probes)
    together, pair, again = (_of_weights(net, weights, some) for some in (x, x[:2], x[:2]))
    alone = torch.cat([_of_weights(net, weights, one) for one in x[rows].split(1)])
    same = near(again, pair)
    if same and near(alone, together[rows]) and near(pair, together[:2]):
        return
    if same and weights.dtype == torch.float32 and _alike_in_double(net, weights, x, rows):
        return  # it was rounding, of numbers that cancel
    if not bool(together.isfinite().all()):
        raise UnsupportedModel("the model's output is not finite: scale its inputs to size 1, or look for a 0/0 in it")
    if not same:
        raise UnsupportedModel(
            "the model's output for the same example and the same weights differs from pass to pass: it is random "
            "(F.dropout without training=self.training, noise that forward adds), or it keeps what earlier passes saw"
        )
    raise UnsupportedModel(
        "the model's output for an example depends on the other examples of the batch (a batch normalisation, "
        "or an operation over the first axis): there is no valid certificate for it"
    )


def _alike_in_double(net: StochasticNetwork, weights: Tensor, x: Tensor, rows: Tensor) -> bool:
    """The same comparison with 16 digits, where the model can be had with so many."""
    try:
        precise = copy.deepcopy(net).double()
        together, pair = (_of_weights(precise, weights.double(), some.double()) for some in (x, x[:2]))
        alone = torch.cat([_of_weights(precise, weights.double(), one.double()) for one in x[rows].split(1)])
    except (RuntimeError, TypeError, ValueError):
        return False
    return together.dtype == torch.float64 and near(alone, together[rows]) and near(pair, together[:2])


def refuse_what_remembers(net: StochasticNetwork, x: Tensor) -> None:
    """A pass must depend on its draw alone: not on passes before it, nor on whether gradients are wanted."""
    with full_precision():
        first = _shared(net, x, 0)
        with torch.inference_mode(False), torch.enable_grad():
            x = x.clone()
            _shared(net, x, 1)
            again = _shared(net, x, 0)
        last = _shared(net, x, 0)
    if not (near(again, first) and near(last, first)):
        raise UnsupportedModel(
            "the model's output depends on passes before it, or on whether gradients are wanted: it keeps what it "
            "has computed from its weights, and each pass has a draw of its own"
        )


def note_what_is_left_behind(net: StochasticNetwork, x: Tensor) -> None:
    """Which tensors, such as maps of attention, a pass overwrites with what depends on that pass alone."""
    first, other, again = (_held_after(net, *case) for case in ((x[:1], 0), (x[-2:], 1), (x[:1], 0)))
    names = {*first, *other, *again}
    net.left_behind = {n for n in names if first.get(n) == again.get(n) != other.get(n)}


def _held_after(net: StochasticNetwork, x: Tensor, seed: int) -> dict[str, str]:
    with full_precision():
        net(x, "shared", torch.Generator(net.mean.device).manual_seed(seed))
    return digests(held_aside(net.model))


def refuse_a_change(net: StochasticNetwork) -> None:
    """Refuse what is fixed and yet not what it was when the prior was frozen."""
    if (name := net.fixed_part_changed()) is not None:
        raise UnsupportedModel(
            f"{name}, a buffer, a frozen weight, another tensor or number that the model holds, has changed since the "
            "prior was frozen: what it learnt is outside the KL, and there is no valid certificate. If a first pass "
            "computes and keeps it, run the model once before pacbayes.stochastic(); a log or a time has no place in it"
        )


def near(part: Tensor, whole: Tensor) -> bool:
    """The same numbers, but for rounding: of what is usual in a column and in the example's own row, whichever is less,
    for one large column or example must not excuse the others."""
    part, whole = part.flatten(1), whole.flatten(1)
    sizes = whole.abs()
    row = sizes.amax(1, keepdim=True)
    column = sizes.where(sizes > 0, math.nan).nanmedian(0).values.nan_to_num(0)  # many may be silent
    # What is near 0 by chance is the rounding of numbers that are as large as those of most examples.
    allowed = 1e-3 * sizes + 3e-4 * torch.minimum(row, column) + min(1e-6 * float(row.median()), 1e-4)
    return bool(((part - whole).abs() <= allowed).all())


def _shared(net: StochasticNetwork, x: Tensor, seed: int) -> Tensor:
    """The outputs of one draw for the whole batch."""
    normals = normals_like(net.mean, torch.Generator(net.mean.device).manual_seed(seed))
    return net.drawn(x, Draw("shared", normals)).detach()


def _of_weights(net: StochasticNetwork, weights: Tensor, x: Tensor) -> Tensor:
    """The outputs with these weights, whichever layers the examples take, and in whatever order."""
    means, net.mean.data = net.mean.data, weights
    try:
        return net(x, "mean")
    finally:
        net.mean.data = means
