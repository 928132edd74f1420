"""Any module that ends in a Linear, made stochastic: its trainable weights become independent variables."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from pacbayes import processes
from pacbayes.bounds.catoni import CATONI_GRID, check_catoni
from pacbayes.data.trace import Trace
from pacbayes.devices import has_triton
from pacbayes.errors import InvalidInput, UnsupportedModel
from pacbayes.files import sha256
from pacbayes.networks import conversion, divergence
from pacbayes.networks.audit import Audit, audit
from pacbayes.networks.binding import Binding
from pacbayes.networks.distributions import (
    GAUSSIAN,
    Distribution,
    check_variance,
    distribution_named,
    rho_of,
    scale_of,
)
from pacbayes.networks.held_aside import digest, digests, held_aside
from pacbayes.networks.layers import Draw, Moments, OutputLinear, StochasticLayer
from pacbayes.networks.normals import Normals, normals_like
from pacbayes.networks.passes import Passes
from pacbayes.networks.shaping import OF_A_LOOP, OF_A_STATE, Looks, Seen, forget_data
from pacbayes.networks.state import digest_of, put_back, state_of, vectors_of


def stochastic(
    model: nn.Module,
    prior_variance: float = 0.001,
    *,
    distribution: str = "gaussian",
    layers: Iterable[str] | None = None,
    output: str | None = None,
) -> StochasticNetwork:
    """A stochastic network whose prior is centred at the model's weights, with this variance for each of them.

    The model is copied, and its output must be that of a Linear: the last one that it registers, or the one named
    ``output``. Its weights are the prior's means: they must not have seen the data that will enter the bound, so a
    pre-trained model needs bound data of its own. ``distribution`` is the law of the hidden weights, ``"gaussian"`` or
    ``"laplace"``; the last layer is Gaussian always. With ``layers``, names of layers or of what they lie under, only
    these are stochastic, and the rest stays as it is.

    >>> net = stochastic(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), prior_variance=0.01)
    >>> net.kl().item()
    0.0
    >>> net(torch.zeros(5, 4)).shape
    torch.Size([5, 3])
    """
    return StochasticNetwork(model, prior_variance, distribution, layers, output)


class StochasticNetwork(nn.Module):
    """Prior P and posterior Q over the weights of a model.

    All means lie in one flat vector and all rhos in another (``s = |rho|^1.5``), hidden layers first, the last layer
    at the end; so the divergence, the optimiser and the checkpoints see four tensors whatever the architecture.
    """

    prior_mean: Tensor
    prior_rho: Tensor

    @torch.inference_mode(False)  # its tensors are to train
    def __init__(
        self,
        model: nn.Module,
        prior_variance: float,
        distribution: str,
        layers: Iterable[str] | None,
        output: str | None,
    ):
        super().__init__()
        conversion.check_model(model)
        if any(isinstance(part, StochasticNetwork | StochasticLayer) for part in model.modules()):
            raise InvalidInput("this is a stochastic network already: copy.deepcopy(net) copies one")
        if any(hasattr(part, "_orig_mod") or isinstance(part, torch.jit.ScriptModule) for part in model.modules()):
            raise UnsupportedModel(
                "the model, or a part of it, is compiled: give the modules that it was made of; training compiles its "
                "own steps"
            )
        check_variance("prior_variance", prior_variance)
        self.distribution = distribution_named(distribution)
        model = conversion.with_dense_gradients(conversion.copied(model))
        # To notice bound data that had shaped the prior: what shaped the model, and then what fit() uses.
        self.trained_on = forget_data(model)
        output = conversion.output_name(model, output)
        if layers is not None:
            conversion.freeze_all_but(model, layers, output)
            model.eval()
        conversion.refuse_what_voids_a_certificate(model, output)
        parameters = conversion.trainable_parameters(model, output)
        # Further names of tied weights, each with its first one.
        self.aliases = conversion.other_names(model, parameters)
        if wrong := [name for name, p in parameters.items() if p.dtype not in (torch.float32, torch.float64)]:
            raise UnsupportedModel(f"{wrong[0]} is not float32 or float64: take model.float()")

        # name -> shape of each weight tensor, in the order of the flat vectors
        self.slots = {name: p.shape for name, p in parameters.items()}
        self.sizes = [shape.numel() for shape in self.slots.values()]
        self.mean = nn.Parameter(torch.cat([p.detach().flatten() for p in parameters.values()]).clone())
        self.rho = nn.Parameter(rho_of(torch.full_like(self.mean, prior_variance).sqrt()))
        self.register_buffer("prior_mean", torch.empty_like(self.mean.detach()))
        self.register_buffer("prior_rho", torch.empty_like(self.rho.detach()))
        self.hidden_size = len(self.mean) - sum(p.numel() for p in model.get_submodule(output).parameters())
        self._binding = Binding(model, parameters, output)
        self._passes = Passes(self._binding)
        self.model = self._binding.model.eval()
        self.objective = "none"
        # How many single networks were drawn for a certificate.
        self.single_draws = 0
        self.looks = Looks()
        # What had shaped the weights that state() gave, by their digests.
        self.known: dict[str, Seen] = {}
        # Names of tensors that each pass overwrites: see refusals.py.
        self.left_behind: set[str] = set()
        conversion.refuse_what_no_file_stores(self.model)
        self._freeze()

    @property
    def output_layer(self) -> OutputLinear:
        return self._binding.output_layer

    @property
    def output_slots(self) -> list[str]:
        """The names of the last layer's weight and, if it has one, bias."""
        names = list(self.slots)
        return [names[slot] for _, slot in self._binding.rules[-1].slots()]

    @property
    def drawn_by_rules(self) -> bool:
        """Whether every layer draws by a rule of its own; examples with a draw each must pass one by one if not."""
        return not self._binding.free

    @property
    def classes(self) -> int:
        return self.output_layer.out_features

    def _family(self, slot: int) -> Distribution:
        last = self._binding.rules[-1]
        return GAUSSIAN if slot in (last.weight, last.bias) else self.distribution

    def kl(self, exact: bool = True) -> Tensor:
        """KL(Q‖P), summed over every drawn weight: in float64, or, for training, in the weights' own precision."""
        return divergence.kl(self, self.mean, self.rho, exact)

    def profile_kl(self, exact: bool = True) -> Tensor:
        """The KL with the prior's scale chosen for each weight tensor, its union bound included: an objective too."""
        return divergence.profile_kl(self, self.mean, self.rho, exact)

    def freeze_prior(self) -> None:
        """Make the present posterior the prior.

        After :func:`pacbayes.objective`, :func:`pacbayes.freeze_prior` does it, which is told the data.
        """
        self.refuse_unnamed()
        self._freeze()

    def refuse_unnamed(self) -> None:
        """Refuse to go on to a prior where a loop of one's own has trained on data that nobody has named."""
        if self.trained_on.unnamed and not self.prior_trained_on.unnamed:
            raise InvalidInput(
                "this network has learnt from data that nobody has named: pacbayes.freeze_prior(net, prior_data) makes "
                "it a prior, and names them"
            )

    @torch.no_grad()
    def _freeze(self) -> None:
        self.catoni: tuple[float, ...] = CATONI_GRID
        self.seen_before_catoni: dict[str, Trace] = {}
        self.prior_mean.copy_(self.mean)
        self.prior_rho.copy_(self.rho)
        self.prior_trained_on = Seen(self.trained_on)
        self.objective = "none"
        self.note_fixed()

    def fix_catoni(self, *values: float) -> None:
        """Fix the values of C that Catoni's bound may take: a part of the prior, and of its fingerprint.

        One that suits (see :func:`pacbayes.bounds.catoni_parameter`) costs nothing, several their logarithm. Without
        this they are ``CATONI_GRID``. They must not depend on the bound data, so training since
        :meth:`freeze_prior` is refused, and later a certificate on data for which a certificate, a hold-out bound or
        :func:`pacbayes.test_error` was computed before, of this network or a copy. What a loop of one's own saw of
        them goes unnoticed.
        """
        values = check_catoni(values)
        moved = not (torch.equal(self.mean, self.prior_mean) and torch.equal(self.rho, self.prior_rho))
        named = self.trained_on.without(OF_A_LOOP, OF_A_STATE)  # a loop that has moved nothing may have looked only
        if moved or len(named) > len(self.prior_trained_on):
            raise InvalidInput("C must be fixed before the posterior is trained, right after freeze_prior()")
        self.take_catoni(values)

    def take_catoni(self, values: tuple[float, ...]) -> None:
        """:meth:`fix_catoni`, of values that may have been fixed before."""
        if values != self.catoni:
            self.catoni = values
            # They may have chosen it, and only certify() knows whether they are bound data.
            self.seen_before_catoni = dict(self.looks)

    def prior_network(self) -> StochasticNetwork:
        """A copy whose posterior is the prior: the network before posterior training."""
        other = copy.deepcopy(self)
        with torch.no_grad():
            other.mean.copy_(self.prior_mean)
            other.rho.copy_(self.prior_rho)
        return other

    def agree_on_prior(self) -> None:
        """The first process's prior in all of them: equal already, unless their machines round differently."""
        if processes.size() > 1:
            for vector in (self.prior_mean, self.prior_rho):
                processes.copy_from_first(vector)
            if not processes.first():  # the first one's is what it was, or a bound will refuse it
                self._fixed_at_freeze |= self._prior_digests()

    def on_cpu(self) -> StochasticNetwork:
        """The network, or a copy of it on the CPU.

        For numbers that others compute again: they do it there, and must not find larger ones.
        """
        return self if self.mean.device.type == "cpu" else copy.deepcopy(self).cpu()

    def audit(self) -> Audit:
        """Each parameter of the model, how it is drawn, and its part of the KL; print it for a table."""
        divergences = dict(zip(self.slots, divergence.kl_of_tensors(self).tolist(), strict=True))
        return audit(self.model, self.slots, divergences, self._binding)

    @torch.no_grad()
    def draw_weights(self, generator: torch.Generator) -> Tensor:
        """One draw of all the weights from Q, as a flat vector in the order of ``mean``."""
        normals, scale = self._normals(generator), scale_of(self.rho)
        hidden = self.distribution.noise((self.hidden_size,), normals)
        last = GAUSSIAN.noise((len(self.mean) - self.hidden_size,), normals)
        return self.mean + scale * torch.cat([hidden, last])

    def at(self, weights: Tensor) -> StochasticNetwork:
        """A copy whose means are these weights (a flat vector): its ``"mean"`` pass is that one network."""
        other = copy.deepcopy(self)
        with torch.no_grad():
            other.mean.copy_(weights)
        return other

    def module_state(self, weights: Tensor) -> dict[str, Tensor]:
        """The network of these weights as a state dict of the model that was made stochastic."""
        tensors = self.parts(weights) | {name: t.detach() for name, t in self.model.state_dict().items()}
        tensors |= {other: tensors[name] for other, name in self.aliases.items()}
        return {name: t.cpu().contiguous().clone() for name, t in tensors.items()}

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
        if self.mean.is_cuda and has_triton() and self.mean.dtype == torch.float32 and not torch.is_grad_enabled():
            from pacbayes.networks.gpu_draws import GpuNormals

            return GpuNormals(generator, self.mean)
        return normals_like(self.mean, generator)

    def drawn(self, x: Tensor, draw: Draw, *, noted: bool = True) -> Tensor:
        """:meth:`forward`, with the randomness from a source of one's own.

        ``noted``: whoever sends a gradient back through the output is training, on data that nobody has named yet.
        """
        return self._pass(x, draw, noted, conditional=False)[0]

    def conditional_moments(self, x: Tensor, draw: Draw, *, noted: bool = True) -> tuple[Tensor, Tensor]:
        """:meth:`conditional`, likewise."""
        mean, variance = self._pass(x, draw, noted, conditional=True)
        return mean, variance

    def _pass(self, x: Tensor, draw: Draw, noted: bool, *, conditional: bool) -> tuple[Tensor, ...]:
        shapes = list(self.slots.values())
        scale = scale_of(self.rho) if draw.scales is None else draw.scales
        means, scales = (torch.split(v, self.sizes) for v in (self.mean, scale))

        def moments(slot: int) -> Moments:
            return Moments(means[slot].view(shapes[slot]), scales[slot].view(shapes[slot]), self._family(slot))

        outputs = self._passes.run(x, draw, moments, conditional=conditional)
        if noted:
            for out in outputs:
                if out.requires_grad:
                    out.register_hook(lambda _: self.trained_on.note(OF_A_LOOP))
        return outputs

    def train(self, mode: bool = True) -> StochasticNetwork:
        """The model inside stays in evaluation mode: the loss must be a function of one example and the weights."""
        super().train(mode)
        self.model.eval()
        return self

    def parts(self, vector: Tensor) -> dict[str, Tensor]:
        """A flat vector (means, rhos, velocities) as the model's weight tensors, by name."""
        pieces = torch.split(vector.detach(), self.sizes)
        return {name: p.view(shape) for (name, shape), p in zip(self.slots.items(), pieces, strict=True)}

    def state(self, which: str = "posterior") -> dict[str, Tensor]:
        """Means and rhos of ``"posterior"`` or ``"prior"`` by the model's own names, with all that is fixed in it."""
        tensors = state_of(self, which)
        is_prior = which == "prior" or (
            torch.equal(self.mean, self.prior_mean) and torch.equal(self.rho, self.prior_rho)
        )
        # Of a prior that was written over nobody knows what had shaped it.
        if not (is_prior and self.fixed_part_changed()):
            self.known[digest_of(tensors)] = Seen(self.prior_trained_on if is_prior else self.trained_on)
        return tensors

    def load_state(self, tensors: dict[str, Tensor], which: str = "posterior") -> None:
        """Put back what :meth:`state` gave, after a check of names, shapes, dtypes and values.

        They do not say which data shaped them: that the bound data did not shape the prior is for you to see to. A
        posterior of another network's, should it become a prior, has learnt from data that nobody has named.
        """
        put_back(self, tensors, which)

    def load_state_dict(self, *_: object, **__: object) -> Any:
        """Refused: see :meth:`load_state`."""
        raise InvalidInput(
            "load_state_dict would leave out what a certificate needs: net.load_state(tensors, 'prior'), then "
            "'posterior', loads what net.state('prior') and net.state('posterior') gave. To go back to an earlier "
            "epoch: best = net.state(), and later net.load_state(best)"
        )

    def fingerprint(self, which: str = "posterior") -> str:
        """SHA-256 of the safetensors file that holds :meth:`state`."""
        return sha256(safetensors.torch.save(state_of(self, which)))

    def fixed_part_changed(self) -> str | None:
        """The name of a buffer, a frozen weight or another tensor that the model holds, or of the prior's means or
        rhos, if one is not what it was when the prior was frozen; not of those that each pass leaves behind, for
        nothing depends on them."""
        now = self._digests()
        names = {*now, *self._fixed_at_freeze} - self.left_behind
        return min((name for name in names if now.get(name) != self._fixed_at_freeze.get(name)), default=None)

    def note_fixed(self) -> None:
        """What is fixed from now on, and must be the same where a bound is computed."""
        self._fixed_at_freeze = self._digests()

    def _digests(self) -> dict[str, str]:
        # Buffers that are not saved count too: they may learn all the same.
        tensors = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        return digests([*tensors.items(), *held_aside(self.model)]) | self._prior_digests()

    def _prior_digests(self) -> dict[str, str]:
        # It lies in buffers, where others may write.
        return {f"the prior's {kind}": digest(vector) for kind, vector in vectors_of(self, "prior").items()}


def check_stochastic(net: object) -> None:
    if not isinstance(net, StochasticNetwork):
        raise InvalidInput(f"a stochastic network is needed, not a {type(net).__name__}: pacbayes.stochastic(model)")
    if net.classes < 2:
        raise UnsupportedModel(
            f"the output layer, {net.output_layer.name}, has 1 output: it needs one for each class, two for yes and no"
        )
