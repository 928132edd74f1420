"""Any module that ends in a Linear, made stochastic: its Linear and Conv weights become independent variables."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from pacbayes.errors import InvalidInput, UnsupportedModel
from pacbayes.networks.distributions import DISTRIBUTIONS, Distribution, Normals, distribution_named, rho_of, scale_of
from pacbayes.networks.layers import (
    Draw,
    Moments,
    OutputLinear,
    StochasticConv,
    StochasticLayer,
    StochasticLinear,
)

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
GAUSSIAN = DISTRIBUTIONS["gaussian"]


@dataclass(frozen=True)
class Binding:
    """A stochastic layer and the positions of its weight and bias among the slots."""

    layer: StochasticLayer
    weight: int
    bias: int | None


def stochastic(model: nn.Module, prior_variance: float = 0.01, *, distribution: str = "gaussian") -> StochasticNetwork:
    """A stochastic network whose prior is centred at the model's weights, with this variance for each of them.

    The model is copied, and must end in a Linear. Its weights are the prior's means: they must not have seen the data
    that will enter the bound, so a pre-trained model needs bound data of its own. ``distribution`` is the law of the
    hidden weights, ``"gaussian"`` or ``"laplace"``; the last layer is Gaussian always.

    >>> net = stochastic(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), prior_variance=0.01)
    >>> net.kl().item()
    0.0
    >>> net(torch.zeros(5, 4)).shape
    torch.Size([5, 3])
    """
    return StochasticNetwork(model, prior_variance, distribution)


class StochasticNetwork(nn.Module):
    """Prior P and posterior Q over the weights of a model.

    All means lie in one flat vector and all rhos in another (s = |rho|^1.5), hidden layers first, the last layer at
    the end; so the divergence, the optimiser and the checkpoints see four tensors whatever the architecture.
    """

    prior_mean: Tensor
    prior_rho: Tensor

    def __init__(self, model: nn.Module, prior_variance: float, distribution: str = "gaussian"):
        super().__init__()
        if not 0 < prior_variance < float("inf"):
            raise InvalidInput(f"the prior variance must be positive and finite, and is {prior_variance}")
        self.distribution = distribution_named(distribution)
        try:
            model = copy.deepcopy(model)
        except RuntimeError as error:
            raise UnsupportedModel(f"the model cannot be copied: {str(error).splitlines()[0]}") from None
        layers = _layers_to_draw(model)
        _refuse_what_voids_a_certificate(model, layers)

        # name -> shape of each weight tensor, in the order of the flat vectors
        self.slots: dict[str, torch.Size] = {}
        self._bindings: list[Binding] = []
        means: list[Tensor] = []
        for name, layer in layers.items():
            self.hidden_size = sum(len(m) for m in means)
            positions: dict[str, int] = {}
            for kind, parameter in layer.named_parameters(recurse=False):
                positions[kind] = len(self.slots)
                self.slots[f"{name}.{kind}" if name else kind] = parameter.shape
                means.append(parameter.detach().flatten())
            drawn = _drawn(layer, is_output=name == list(layers)[-1])
            drawn.name = name or drawn.name
            self._bindings.append(Binding(drawn, positions["weight"], positions.get("bias")))
            model = _replace(model, name, drawn)
        self._sizes = [shape.numel() for shape in self.slots.values()]

        self.mean = nn.Parameter(torch.cat(means).clone())
        self.rho = nn.Parameter(rho_of(torch.full_like(self.mean, prior_variance).sqrt()))
        self.register_buffer("prior_mean", torch.empty_like(self.mean.detach()))
        self.register_buffer("prior_rho", torch.empty_like(self.rho.detach()))
        self.model = model.eval()
        self._seen_to_fit = False
        # For the record, and to notice bound data that had shaped the prior: what fit() has used so far.
        self.objective = "none"
        self.trained_on: list[Any] = []
        self.freeze_prior()

    @property
    def output_layer(self) -> OutputLinear:
        layer = self._bindings[-1].layer
        assert isinstance(layer, OutputLinear)
        return layer

    @property
    def classes(self) -> int:
        return self.output_layer.out_features

    # The law

    def kl(self, exact: bool = True) -> Tensor:
        """KL(Q‖P), summed over every drawn weight: in float64, or, for training, in the weights' own precision."""
        dtype = torch.float64 if exact else self.mean.dtype
        # The scales are those that sampling uses, rounded as they are there.
        law = (self.mean, scale_of(self.rho), self.prior_mean, scale_of(self.prior_rho))
        vectors = [v.to(dtype) for v in law]
        if self.distribution is GAUSSIAN:
            return _divergence(GAUSSIAN, vectors)
        hidden = _divergence(self.distribution, [v[: self.hidden_size] for v in vectors])
        return hidden + _divergence(GAUSSIAN, [v[self.hidden_size :] for v in vectors])

    @torch.no_grad()
    def freeze_prior(self) -> None:
        """Make the present posterior the prior."""
        self.prior_mean.copy_(self.mean)
        self.prior_rho.copy_(self.rho)
        self.prior_trained_on = list(self.trained_on)
        self.objective = "none"
        self._fixed_at_freeze = self._fixed_fingerprint()

    def prior_network(self) -> StochasticNetwork:
        """A copy whose posterior is the prior: the network before posterior training."""
        other = copy.deepcopy(self)
        with torch.no_grad():
            other.mean.copy_(self.prior_mean)
            other.rho.copy_(self.prior_rho)
        return other

    # A pass

    def forward(
        self,
        x: Tensor,
        sampling: str = "shared",
        generator: torch.Generator | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        """A sampled output, [batch, classes]; ``sampling`` as in :class:`~pacbayes.networks.layers.Draw`."""
        return self.drawn(x, Draw(sampling, self._normals(generator), dropout))

    def conditional(
        self,
        x: Tensor,
        sampling: str = "shared",
        generator: torch.Generator | None = None,
        dropout: float = 0.0,
    ) -> tuple[Tensor, Tensor]:
        """Mean M and variance V of the output given a draw of the hidden weights, each [batch, classes]."""
        return self.conditional_moments(x, Draw(sampling, self._normals(generator), dropout))

    def _normals(self, generator: torch.Generator | None) -> Normals:
        return partial(torch.randn, generator=generator, dtype=self.mean.dtype, device=self.mean.device)

    def drawn(self, x: Tensor, draw: Draw) -> Tensor:
        """:meth:`forward`, with the randomness from a source of one's own."""
        return self._pass(x, draw, conditional=False)

    def conditional_moments(self, x: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        """:meth:`conditional`, with the randomness from a source of one's own."""
        mean = self._pass(x, draw, conditional=True)
        variance = self.output_layer.variance
        del self.output_layer.variance
        return mean, variance

    def _pass(self, x: Tensor, draw: Draw, *, conditional: bool) -> Tensor:
        draw = replace(draw, examples=len(x))
        shapes = list(self.slots.values())
        means, scales = (torch.split(v, self._sizes) for v in (self.mean, scale_of(self.rho)))
        for binding in self._bindings:
            family = GAUSSIAN if binding.layer is self.output_layer else self.distribution
            weight, bias = (
                None if i is None else Moments(means[i].view(shapes[i]), scales[i].view(shapes[i]), family)
                for i in (binding.weight, binding.bias)
            )
            assert weight is not None
            binding.layer.bind(draw, weight, bias)
        self.output_layer.conditional = conditional
        try:
            return self.model(x) if self._seen_to_fit else self._first_pass(x)
        finally:
            for binding in self._bindings:
                binding.layer.unbind()

    def _first_pass(self, x: Tensor) -> Tensor:
        """Run the model once under watch: nothing may follow the last Linear."""
        outputs: list[tuple[nn.Module, Tensor, int]] = []

        def note(module: nn.Module, args: object, output: Tensor) -> None:
            outputs.append((module, output, output._version))

        watch = [binding.layer.register_forward_hook(note) for binding in self._bindings]
        try:
            out: Tensor = self.model(x)
        finally:
            for handle in watch:
                handle.remove()
        layer, last, version = outputs[-1] if outputs else (None, None, 0)
        if layer is not self.output_layer or out is not last or out._version != version:
            raise UnsupportedModel(
                "the model's output must be that of its last Linear, with nothing after it: remove the softmax, or "
                "whatever else follows (the prediction, the index of the largest output, stays the same)"
            )
        self._seen_to_fit = True
        return out

    @torch.no_grad()
    def check_examples(self, x: Tensor) -> None:
        """Refuse a model whose output for one example depends on the others, or whose layers mix them up."""
        self.model.eval()
        few = x[torch.linspace(0, len(x) - 1, min(3, len(x))).long()].to(self.mean.device)
        together = self(few, "mean")
        for count in range(1, len(few) + 1):
            self(few[:count], "independent", torch.Generator(self.mean.device).manual_seed(0))
            if not torch.allclose(self(few[:count], "mean"), together[:count], rtol=1e-3, atol=1e-4):
                raise UnsupportedModel(
                    "the model's output for an example depends on the other examples of the batch (a batch "
                    "normalisation, or an operation over the first axis): there is no valid certificate for it"
                )

    def train(self, mode: bool = True) -> StochasticNetwork:
        """The model inside stays in evaluation mode: the loss must be a function of one example and the weights."""
        super().train(mode)
        self.model.eval()
        return self

    def parts(self, vector: Tensor) -> dict[str, Tensor]:
        """A flat vector (means, rhos, velocities) as the model's weight tensors, by name."""
        pieces = torch.split(vector.detach(), self._sizes)
        return {name: p.view(shape) for (name, shape), p in zip(self.slots.items(), pieces, strict=True)}

    # Files and fingerprints

    def state(self, which: str = "posterior") -> dict[str, Tensor]:
        """Means and rhos of ``"posterior"`` or ``"prior"`` by the model's own names, with all that is fixed in it."""
        tensors = self._fixed()
        for kind, vector in self._vectors(which).items():
            tensors |= {f"{kind}.{name}": part for name, part in self.parts(vector).items()}
        return {name: t.cpu().contiguous().clone() for name, t in tensors.items()}

    @torch.no_grad()
    def load_state(self, tensors: dict[str, Tensor], which: str = "posterior") -> None:
        """Put back what :meth:`state` gave, after a check of names, shapes, dtypes and values.

        They do not say which data shaped them: that the bound data did not shape the prior is for you to see to.
        """
        expected = self.state(which)
        if odd := sorted(expected.keys() ^ tensors.keys()):
            raise InvalidInput(f"the weights do not fit the model: {odd[0]!r} is in one of the two only")
        for name, old in expected.items():
            new = tensors[name]
            if new.shape != old.shape or new.dtype != old.dtype:
                raise InvalidInput(f"{name!r} is {new.dtype} {tuple(new.shape)}, not {old.dtype} {tuple(old.shape)}")
            if new.is_floating_point() and not bool(new.isfinite().all()):
                raise InvalidInput(f"{name!r} holds a value that is not finite")
        for kind, vector in self._vectors(which).items():
            vector.copy_(torch.cat([tensors[f"{kind}.{name}"].flatten() for name in self.slots]))
        self.model.load_state_dict({n.removeprefix("fixed."): t for n, t in tensors.items() if n.startswith("fixed.")})
        if which == "prior":
            self._fixed_at_freeze = self._fixed_fingerprint()

    def _vectors(self, which: str) -> dict[str, Tensor]:
        if which == "posterior":
            return {"mean": self.mean, "rho": self.rho}
        if which == "prior":
            return {"mean": self.prior_mean, "rho": self.prior_rho}
        raise InvalidInput(f"there is a 'prior' and a 'posterior', no {which!r}")

    def fingerprint(self, which: str = "posterior") -> str:
        """SHA-256 of the safetensors file that holds :meth:`state`."""
        return _sha256(self.state(which))

    def fixed_part_changed(self) -> bool:
        """Whether a buffer or a frozen weight of the model is not what it was when the prior was frozen."""
        return self._fixed_fingerprint() != self._fixed_at_freeze

    def _fixed(self) -> dict[str, Tensor]:
        return {f"fixed.{name}": t.detach() for name, t in self.model.state_dict().items()}

    def _fixed_fingerprint(self) -> str:
        # Buffers that are not saved count too: they may learn all the same.
        tensors = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        return _sha256({name: t.detach() for name, t in tensors.items()})


def _divergence(family: Distribution, law: list[Tensor]) -> Tensor:
    """Summed; in float64 piece by piece, which is four times faster: what is on the way stays in the cache."""
    if law[0].dtype != torch.float64:
        return family.kl(*law).sum()
    pieces = zip(*(vector.split(2**16) for vector in law), strict=True)
    return torch.stack([family.kl(*piece).sum() for piece in pieces]).sum()


def _sha256(tensors: dict[str, Tensor]) -> str:
    plain = {name: t.cpu().contiguous().clone() for name, t in tensors.items()}
    return hashlib.sha256(safetensors.torch.save(plain)).hexdigest()


def _layers_to_draw(model: nn.Module) -> dict[str, nn.Module]:
    """Every Linear and Conv that trains, by name, the last Linear at the end."""
    layers = {
        name: module
        for name, module in model.named_modules()
        if type(module) in (nn.Linear, *_CONVOLUTIONS) and module.weight.requires_grad
    }
    linears = [name for name, module in layers.items() if type(module) is nn.Linear]
    if not linears:
        raise UnsupportedModel("the model must end in a trainable nn.Linear, and it has none")
    layers[linears[-1]] = layers.pop(linears[-1])
    return layers


def _refuse_what_voids_a_certificate(model: nn.Module, layers: dict[str, nn.Module]) -> None:
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm | _InstanceNorm) and module.training and module.track_running_stats:
            raise UnsupportedModel(
                f"{name or 'the model'} ({type(module).__name__}) is in training mode: its statistics absorb data "
                "outside the KL, and a BatchNorm's output depends on the other examples of the batch. Call "
                "model.eval() and freeze its parameters, or replace it by GroupNorm(affine=False)"
            )
        if isinstance(module, _BatchNorm) and not module.track_running_stats:
            raise UnsupportedModel(
                f"{name or 'the model'} ({type(module).__name__}) has no running statistics, so its output always "
                "depends on the other examples of the batch: replace it by GroupNorm(affine=False)"
            )
    drawn = [p for layer in layers.values() for p in layer.parameters(recurse=False)]
    ids = {id(p) for p in drawn}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and id(parameter) not in ids:
            owner = type(model.get_submodule(name.rpartition(".")[0])).__name__
            raise UnsupportedModel(
                f"{name} ({owner}) is trainable but would stay outside the KL: only Linear and Conv1d/2d/3d are made "
                "stochastic. Freeze it with requires_grad_(False), or remove it"
            )
    uses = [id(p) for _, p in model.named_parameters(remove_duplicate=False)]
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) in ids and uses.count(id(parameter)) > 1:
            raise UnsupportedModel(f"{name} is shared between layers, which is not supported: give each its own")


def _drawn(layer: nn.Module, *, is_output: bool) -> StochasticLayer:
    if isinstance(layer, nn.Linear):
        return OutputLinear(layer) if is_output else StochasticLinear(layer)
    assert isinstance(layer, _CONVOLUTIONS)
    return StochasticConv(layer)


def _replace(model: nn.Module, name: str, new: nn.Module) -> nn.Module:
    if not name:
        return new
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, new)
    return model
