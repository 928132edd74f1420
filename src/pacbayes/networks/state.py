"""A network's weights under the model's own names, as they are stored; put back, it is known what had shaped them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pacbayes.bounds.catoni import CATONI_GRID, check_catoni
from pacbayes.checks import check_kind
from pacbayes.errors import InvalidInput
from pacbayes.files import sha256
from pacbayes.networks.held_aside import digest
from pacbayes.networks.shaping import OF_A_STATE, Seen

if TYPE_CHECKING:
    from pacbayes.networks.stochastic import StochasticNetwork


def state_of(net: StochasticNetwork, which: str) -> dict[str, Tensor]:
    """Copies of means and rhos, of all that is fixed in the model, and, with a prior, of its own values of C."""
    tensors = {f"fixed.{name}": t.detach() for name, t in net.model.state_dict().items()}
    for kind, vector in vectors_of(net, which).items():
        tensors |= {f"{kind}.{name}": part for name, part in net.parts(vector).items()}
    if which == "prior" and net.catoni != CATONI_GRID:
        tensors["catoni"] = torch.tensor(net.catoni, dtype=torch.float64)
    return {name: t.cpu().contiguous().clone() for name, t in tensors.items()}


def vectors_of(net: StochasticNetwork, which: str) -> dict[str, Tensor]:
    if which == "posterior":
        return {"mean": net.mean, "rho": net.rho}
    if which == "prior":
        return {"mean": net.prior_mean, "rho": net.prior_rho}
    # Not the value: it may be a whole set of weights.
    raise InvalidInput("which must be 'prior' or 'posterior'")


def digest_of(tensors: dict[str, Tensor]) -> str:
    """Of the weights and all that is fixed beside them."""
    return sha256(" ".join(digest(tensors[name]) for name in sorted(tensors) if name != "catoni").encode())


@torch.no_grad()
def put_back(net: StochasticNetwork, tensors: dict[str, Tensor], which: str) -> None:
    """Load what :func:`state_of` gave, after a check of names, shapes, dtypes and values."""
    check_kind("the state", tensors, dict, "a dict of tensors, as net.state() gives it")
    expected, tensors = state_of(net, which), dict(tensors)
    expected.pop("catoni", None)
    altered = which == "prior" and net.fixed_part_changed() is not None  # then it is not known what it was
    values = _values_of_c(tensors) if which == "prior" and "catoni" in tensors else CATONI_GRID
    _check(tensors, expected)
    changed = altered or any(not torch.equal(tensors[name].cpu(), old) for name, old in expected.items())
    # Not strict: the names are those of state_dict(), some of which old kinds of modules do not take back.
    fixed = {n.removeprefix("fixed."): t for n, t in tensors.items() if n.startswith("fixed.")}
    net.model.load_state_dict(fixed, strict=False)
    for kind, vector in vectors_of(net, which).items():
        vector.copy_(torch.cat([tensors[f"{kind}.{name}"].flatten() for name in net.slots]))
    shaped = net.known.get(digest_of(tensors))
    if which == "posterior" and changed:
        for some in [OF_A_STATE] if shaped is None else shaped:
            net.trained_on.note(some)
    if which == "prior":
        net.note_fixed()
        net.take_catoni(values)
        if changed:
            # Unless this network gave it, it may be a posterior that its own training led to.
            suspects = net.trained_on.without(OF_A_STATE)
            net.prior_trained_on = Seen(suspects if shaped is None or altered else shaped)


def _values_of_c(tensors: dict[str, Tensor]) -> tuple[float, ...]:
    stored = tensors.pop("catoni")
    if stored.dtype != torch.float64 or stored.dim() != 1:
        raise InvalidInput(f"'catoni' is {stored.dtype} {tuple(stored.shape)}, not float64 and a vector")
    return check_catoni(stored.tolist())


def _check(tensors: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    if odd := sorted(expected.keys() ^ tensors.keys()):
        raise InvalidInput(f"the weights do not fit the model: {odd[0]!r} is in one of the two only")
    for name, old in expected.items():
        new = tensors[name]
        if new.shape != old.shape or new.dtype != old.dtype:
            raise InvalidInput(f"{name!r} is {new.dtype} {tuple(new.shape)}, not {old.dtype} {tuple(old.shape)}")
        # A mask may hold infinities, where it held them before.
        if new.is_floating_point() and not torch.equal(new.isfinite().cpu(), old.isfinite()):
            raise InvalidInput(f"{name!r} holds a value that is not finite")
