"""What of a model is drawn, and how: layers with a rule of their own, all other parameters, and what is refused."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy

from pacbayes.checks import check_kind
from pacbayes.errors import InvalidInput, UnsupportedModel, first_line
from pacbayes.networks.layers import OutputLinear, StochasticConv, StochasticLayer, StochasticLinear
from pacbayes.networks.norms import StochasticNorm

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMS = (nn.GroupNorm, nn.LayerNorm)
_WITH_A_RULE = (nn.Linear, *_CONVOLUTIONS, *_NORMS)


def check_model(model: object) -> None:
    check_kind("the model", model, nn.Module, "an nn.Module, such as pacbayes.build() makes")


def copied(model: nn.Module) -> nn.Module:
    """A copy of the model, or a refusal that says why there is none."""
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if is_lazy(tensor):
            raise UnsupportedModel(f"{name} has no shape yet: run the model once on a few inputs first")
    try:
        return copy.deepcopy(model)
    except (RuntimeError, TypeError, ValueError) as error:
        raise UnsupportedModel(
            f"the model cannot be copied: {first_line(error)}. Keep locks, files and sparse weights out of it"
        ) from None


def with_dense_gradients(model: nn.Module) -> nn.Module:
    """Sparse gradients of embeddings made dense, in place: the optimisers here go over all weights together."""
    for module in model.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            module.sparse = False
    return model


def inputs_like(model: nn.Module, x: Tensor) -> Tensor:
    """An empty tensor of the device and dtype that the model takes; its first parameter may be whole numbers."""
    parameters = list(model.parameters())
    kinds = [p.dtype for p in parameters if p.is_floating_point()]
    kinds = [kind for kind in kinds if kind in (torch.float32, torch.float64)] or kinds or [x.dtype]
    return x.new_empty(0, dtype=kinds[0], device=parameters[0].device if parameters else x.device)


def freeze_all_but(model: nn.Module, layers: Iterable[str], output: str) -> None:
    """Leave trainable only what is named, or lies under a name; the output layer must be there."""
    check_kind("layers", layers, Iterable, "the names of layers")
    chosen: set[str] = set()
    trainable = [name for name, p in model.named_parameters() if p.requires_grad]
    for layer in [layers] if isinstance(layers, str) else layers:
        found = {name for name in trainable if name == layer or name.startswith(f"{layer}.")}
        if not found:
            names = sorted({name.rpartition(".")[0] for name in trainable})
            raise InvalidInput(
                f"there is nothing to train under {layer!r}: the trainable layers are {', '.join(names)}"
            )
        chosen |= found
    if not {name for name in trainable if name.rpartition(".")[0] == output} <= chosen:
        raise UnsupportedModel(
            f"the output layer, {output}, must be stochastic: name it among the layers, or say output= if it is another"
        )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in chosen)


def output_name(model: nn.Module, name: str | None = None) -> str:
    """The Linear whose output is the model's: the one with this name, or the last one that trains."""
    linears = [n for n, m in model.named_modules() if type(m) is nn.Linear and m.weight.requires_grad]
    if not linears:
        raise UnsupportedModel("the model must end in a trainable nn.Linear, and it has none")
    if name is not None and name not in linears:
        raise InvalidInput(
            f"output {name!r} is not a trainable nn.Linear of the model: choose one of {', '.join(linears)}"
        )
    return linears[-1] if name is None else name


def trainable_parameters(model: nn.Module, output: str) -> dict[str, nn.Parameter]:
    """Every parameter to be drawn, once, by the first of its names: the output layer's at the end."""
    names = {name: p for name, p in model.named_parameters() if p.requires_grad}
    last = [name for name in names if name.rpartition(".")[0] == output]
    return {name: names[name] for name in [*(n for n in names if n not in last), *last]}


def other_names(model: nn.Module, parameters: dict[str, nn.Parameter]) -> dict[str, str]:
    """For each further name that one of these parameters has in the model, the one it has here."""
    first = {id(p): name for name, p in parameters.items()}
    named = model.named_parameters(remove_duplicate=False)
    return {name: first[id(p)] for name, p in named if id(p) in first and name != first[id(p)]}


def layers_with_a_rule(model: nn.Module, output: str) -> dict[str, nn.Module]:
    """Layers that may be drawn by their own rule, as far as can be told before the model has run."""
    uses = uses_of_parameters(model)
    return {
        name: module
        for name, module in model.named_modules()
        if name == output or (type(module) in _WITH_A_RULE and _is_plain(module, uses))
    }


def _is_plain(module: nn.Module, uses: Counter[int]) -> bool:
    """Whether all of a layer is its own weight and bias, both drawn, and nothing was hung onto it."""
    own = dict(module.named_parameters(recurse=False))
    return (
        "weight" in own
        and own.keys() <= {"weight", "bias"}
        and all(p.requires_grad and uses[id(p)] == 1 for p in own.values())
        and not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))
    )


def uses_of_parameters(model: nn.Module) -> Counter[int]:
    """In how many places each parameter stands."""
    return Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))


def drawn_by_a_rule(layer: nn.Module, *, is_output: bool) -> StochasticLayer:
    if isinstance(layer, nn.Linear):
        return OutputLinear(layer) if is_output else StochasticLinear(layer)
    if isinstance(layer, _CONVOLUTIONS):
        return StochasticConv(layer)
    assert isinstance(layer, _NORMS)
    return StochasticNorm(layer)


def replaced(model: nn.Module, name: str, new: nn.Module) -> nn.Module:
    if not name:
        return new
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, new)
    return model


def refuse_what_voids_a_certificate(model: nn.Module, output: str) -> None:
    for name, module in model.named_modules():
        _refuse_batch_statistics(name or "the model", module)
    drawn = trainable_parameters(model, output)
    first = next(iter(drawn.values()))
    for name, parameter in drawn.items():
        if parameter.dtype != first.dtype or not parameter.is_floating_point():
            raise UnsupportedModel(
                f"{name} is {parameter.dtype} and others are {first.dtype}: give all of the model one floating dtype"
            )
    layer = model.get_submodule(output)
    own, uses = dict(layer.named_parameters(recurse=False)), uses_of_parameters(model)
    for kind, parameter in own.items():
        if uses[id(parameter)] > 1:
            raise UnsupportedModel(
                f"the output layer's {kind} ({output}) is shared with another place of the model, and the output given "
                "the hidden weights would not be Gaussian: give the last Linear weights of its own"
            )
    if not _is_plain(layer, uses):
        raise UnsupportedModel(
            f"the output layer ({output}) must be a plain nn.Linear, its weight and bias both trainable, without hooks"
        )


def refuse_what_no_file_stores(model: nn.Module) -> None:
    """Weight files hold all of a model's state: better now than after a certificate's whole count."""
    for name, held in model.state_dict().items():
        try:
            safetensors.torch.save({name: held.detach().new_empty(0).cpu().contiguous()})
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError):
            kind = f"{held.dtype}, {held.layout}" if isinstance(held, Tensor) else f"a {type(held).__name__}"
            raise UnsupportedModel(
                f"{name} holds what no weight file can store: {kind}. Keep it as a plain float or whole-number tensor"
            ) from None


def _refuse_batch_statistics(name: str, module: nn.Module) -> None:
    if not isinstance(module, _BatchNorm | _InstanceNorm):
        return
    learns = module.training and module.track_running_stats
    if isinstance(module, _InstanceNorm):
        if learns:
            raise UnsupportedModel(
                f"{name} ({type(module).__name__}) is in training mode: its statistics absorb data outside the KL. "
                "Call model.eval() first"
            )
        return
    if not module.track_running_stats:
        fault = "has no running statistics, so its output always depends on the other examples of the batch"
        raise UnsupportedModel(
            f"{name} ({type(module).__name__}) {fault}: replace it, pacbayes.replace_batchnorm(model)"
        )
    trains = any(p.requires_grad for p in module.parameters(recurse=False))
    if learns or trains:
        fault = (
            "is in training mode: its statistics absorb data outside the KL, and its output depends on the other "
            "examples of the batch"
            if learns
            else "is trainable, and its statistics belong to the weights before it as they were"
        )
        raise UnsupportedModel(
            f"{name} ({type(module).__name__}) {fault}. Two ways out: pacbayes.fold_batchnorm(model, x) puts a trained "
            "one into the layer before it; pacbayes.replace_batchnorm(model), before training, puts GroupNorm in its "
            "place. (One that stays as it is must be frozen, and the model in evaluation mode)"
        )
