"""Ordinary training by cross-entropy, as practitioners do it: the network that comes out gives a prior its means.

A prior may depend on its data in any way, so here anything goes that makes a good network: augmented images, weight
decay, smoothed labels, BatchNorm while it trains (folded away in the end), averaged weights.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import get_ema_multi_avg_fn, update_bn

from pacbayes.checks import check_count, check_in_range, check_kind, check_names, check_one_of, check_types
from pacbayes.data import Data, as_data
from pacbayes.data.streamed import on_device
from pacbayes.errors import InvalidInput, NonFinite, UnsupportedModel, first_line
from pacbayes.networks.batchnorm import with_batchnorm, without_batchnorm
from pacbayes.networks.conversion import check_model, copied, output_name, with_dense_gradients
from pacbayes.networks.passes import alike
from pacbayes.networks.precision import fastest_convolutions
from pacbayes.networks.shaping import data_behind, forget_data, remember_data
from pacbayes.networks.watch import no_fast_paths
from pacbayes.seeds import check_seed, derived_seed
from pacbayes.training.augmentation import augmented, check_size, mixed, parse_augmentation
from pacbayes.training.checkpoints import Checkpoint
from pacbayes.training.fit import Epoch, drain, noted_epochs
from pacbayes.training.settings import LARGEST_RATE

_LAYERS = 1  # keeps their seeds apart from that of the order
WARM_UP = 0.2
"""The share of the steps in which the rate rises to its peak; then it falls to 0 along a cosine."""


@dataclass(frozen=True)
class Ordinary:
    """What ordinary training is told: SGD with Nesterov's momentum, one cycle of the rate."""

    epochs: int = 30
    rate: float = 0.1
    """At its peak."""
    momentum: float = 0.9
    weight_decay: float = 5e-4
    """On weights; biases and BatchNorm are free."""
    output_rate: float = 1.0
    """The last layer's rate as a multiple of the others': it alone has no BatchNorm that makes up for a rate too high,
    and its gradient grows with the number of its inputs."""
    batch_size: int = 256
    smoothing: float = 0.1
    """The share of each label that is spread over all classes."""
    augmentation: str = ""
    """Changes of the images, with commas between: flip, shift N and cutout N (pixels), affine N (degrees, per cent)."""
    mixing: float = 0.0
    """The share of the images that have a rectangle, and as much of the label, from another one (CutMix)."""
    batchnorm: bool = True
    """A BatchNorm after every hidden Linear and Conv in training, folded into it in the end."""
    average: float = 0.0
    """The decay, each step, of a moving average of the weights, which is kept in their place; 0 for none."""
    precision: str = "float32"
    seed: int = 0

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("epochs", "batch_size"):
            check_count(name, getattr(self, name))
        for name in ("rate", "output_rate"):
            check_in_range(name, getattr(self, name), 0, LARGEST_RATE)
        for name in ("momentum", "smoothing", "average"):
            check_in_range(name, getattr(self, name), 0, 1, closed_low=True)
        if not 0 <= self.mixing <= 1:
            raise InvalidInput(f"mixing is a share of the images, in [0, 1], and is {self.mixing}")
        check_in_range("weight_decay", self.weight_decay, 0, math.inf, closed_low=True)
        check_one_of("precision", self.precision, ("float32", "bf16"))
        check_seed(self.seed)
        parse_augmentation(self.augmentation)

    @classmethod
    def of(cls, **options: Any) -> Ordinary:
        """From keyword options; an unknown one is named, with the choices."""
        check_names(options, cls)
        return cls(**options)


def train_ordinary(
    model: nn.Module,
    data: Any,
    *,
    settings: Ordinary | None = None,
    callback: Callable[[Epoch], None] | None = None,
    **options: Any,
) -> nn.Module:
    """A trained copy of the model, in evaluation mode: for prior data, and then :func:`pacbayes.stochastic`.

    The data are remembered, and :func:`pacbayes.certify` refuses data that overlap with them.
    Options are the fields of :class:`Ordinary`, or given together as ``settings``.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> trained = train_ordinary(model, (torch.randn(64, 4), torch.arange(64) % 2), epochs=1)
    >>> trained
    Sequential(
      (0): Linear(in_features=4, out_features=8, bias=True)
      (1): ReLU()
      (2): Linear(in_features=8, out_features=2, bias=True)
    )
    """
    if settings is not None and options:
        raise InvalidInput("give settings or options, not both")
    check_model(model)
    check_kind("settings", settings, Ordinary | None, "pacbayes.Ordinary(...)")
    check_kind("callback", callback, Callable | None, "a function of an epoch")
    data, settings = as_data(data), settings or Ordinary.of(**options)
    _check_output(model, data)
    if settings.batchnorm:
        _check_batchnorm(model, data)
    return drain(training_ordinary(model, data, settings, callback))


@torch.no_grad()
def _check_output(model: nn.Module, data: Data) -> None:
    output_name(model)  # refused where there is none
    if any(isinstance(part, torch.jit.ScriptModule) for part in model.modules()):
        raise UnsupportedModel("a part of the model is compiled by torch.jit: give the modules that it was made of")
    trial = copied(model)
    try:
        output = _outputs(trial, data.x[:1])
    except RuntimeError as error:
        words = first_line(error)
        raise InvalidInput(f"the model does not take examples of shape {list(data.shape)}: {words}") from None
    if not isinstance(output, Tensor) or output.dim() != 2 or output.shape[1] < data.classes:
        found = list(output.shape) if isinstance(output, Tensor) else f"a {type(output).__name__}"
        raise InvalidInput(f"the data have {data.classes} classes, and the model's output for one example is {found}")


@torch.no_grad()
def _check_batchnorm(model: nn.Module, data: Data) -> None:
    """A new BatchNorm changes nothing in evaluation mode, unless the model looks at what its layers are."""
    x = data.x[:2]
    plain, again = (_outputs(copy.deepcopy(model), x) for _ in range(2))
    try:
        fault = "it becomes another function"
        same = alike(_outputs(with_batchnorm(copy.deepcopy(model), eps=1e-20), x), plain)
    except (AttributeError, TypeError, RuntimeError, ValueError, IndexError) as error:
        same, fault = False, first_line(error)
    if not same and alike(again, plain):  # or it is random itself
        raise UnsupportedModel(
            f"a BatchNorm cannot be put after each of the model's layers for the training ({fault}): its forward uses "
            "their weights, or looks at what they are. Take batchnorm=False, and a smaller rate"
        )


def _outputs(model: nn.Module, x: Tensor) -> Any:
    with no_fast_paths():  # which read weights themselves
        return model.eval()(x.to(next(model.parameters()).device))


def check_ordinary(shape: tuple[int, ...], settings: Ordinary) -> None:
    """Refuse changes that examples of this shape do not allow."""
    if (settings.augmentation or settings.mixing) and len(shape) != 3:
        raise InvalidInput(f"augmentation and mixing are for images, and an example has shape {list(shape)}")
    check_size(shape, settings.augmentation)


def training_ordinary(
    model: nn.Module,
    data: Data,
    settings: Ordinary,
    callback: Callable[[Epoch], None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> Generator[None, None, nn.Module]:
    """:func:`train_ordinary`, pausing before each epoch; with a checkpoint it goes on where that stands."""
    training = _Training(model, data, settings)
    epochs: list[Epoch] = []

    def restore(tensors: dict[str, Tensor], note: dict[str, Any]) -> None:
        epochs.extend(noted_epochs(note))
        training.load(tensors)

    identity = {} if checkpoint is None else {"data": data.fingerprint(), **asdict(settings)}
    if checkpoint is not None:
        checkpoint.resume(identity, restore)
    for epoch in epochs:
        if callback is not None:
            callback(epoch)
    for number in range(len(epochs), settings.epochs):
        yield
        epochs.append(training.epoch(number))
        if checkpoint is not None and (checkpoint.due() or number + 1 == settings.epochs):
            note = {"of": identity, "epochs": [asdict(e) for e in epochs]}
            checkpoint.save(training.state(), note)
        if callback is not None:
            callback(epochs[-1])
    result = training.result()
    forget_data(result)
    remember_data(result, [*data_behind(model), data])
    return result


class _Training:
    """A model in training: its weights, the optimiser's velocities, the average."""

    def __init__(self, model: nn.Module, data: Data, settings: Ordinary):
        model = with_dense_gradients(copied(model))
        self.settings = settings
        self.model = (with_batchnorm(model) if settings.batchnorm else model).train()
        self.device = next(model.parameters()).device
        self.x, self.y = on_device(data.x, self.device), data.y.to(self.device)
        check_ordinary(data.shape, settings)
        self.channels_last = len(data.shape) == 3 and _takes_channels_last(self.model, self.x[:2])
        if self.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.normalises = any(isinstance(module, _BatchNorm) for module in self.model.modules())
        if self.normalises and settings.batch_size == 1:
            raise InvalidInput("BatchNorm needs batches of 2 at least: take a larger batch_size, or batchnorm=False")
        self.changes = parse_augmentation(settings.augmentation)
        self.generator = torch.Generator(self.device)
        self.parameters = list(self.model.parameters())
        self.optimiser = self._optimiser()
        self.average = copy.deepcopy(self.model) if settings.average else None
        self.averaged = [] if self.average is None else [_numbers(self.average), _numbers(self.model)]
        self.sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        self.captured: _CapturedStep | None = None

    def _optimiser(self) -> torch.optim.SGD:
        settings, cuda = self.settings, self.device.type == "cuda"
        output: set[int] = set()
        if settings.output_rate != 1:
            output = {id(p) for p in self.model.get_submodule(output_name(self.model)).parameters()}
        groups = []
        for last, weights in product((False, True), repeat=2):
            groups.append({
                "params": [p for p in self.parameters if (id(p) in output, p.dim() > 1) == (last, weights)],
                "weight_decay": settings.weight_decay if weights else 0.0,
                # On a GPU a tensor, which a captured step reads anew each time.
                "lr": torch.zeros((), device=self.device) if cuda else 0.0,
                "rate_factor": settings.output_rate if last else 1.0,
            })  # fmt: skip
        momentum = settings.momentum
        return torch.optim.SGD(groups, momentum=momentum, nesterov=momentum > 0, fused=True if cuda else None)

    def epoch(self, number: int) -> Epoch:
        settings, m = self.settings, len(self.y)
        if self.captured is None and self._capturable():
            with self._seeded(number):  # trials draw too, and the caller's random numbers stay as they are
                self.captured = _CapturedStep(self)
        self.generator.manual_seed(derived_seed(settings.seed, number))
        batches = self._order().split(settings.batch_size)
        self.sums.zero_()
        rate = 0.0
        with self._seeded(number), fastest_convolutions():
            for place, batch in enumerate(batches):
                # BatchNorm has no variance of a single example.
                if len(batch) == 1 and self.normalises:
                    continue
                rate = settings.rate * _cycle((number + (place + 0.5) / len(batches)) / settings.epochs)
                self._set_rate(rate)
                if self.captured is not None and len(batch) == settings.batch_size:
                    self.captured(batch)
                else:
                    self.step(batch, self.model)
        objective, risk = (self.sums / m).tolist()
        if not math.isfinite(objective):
            raise NonFinite(f"epoch {number}: the cross-entropy was not finite. Try a smaller rate")
        # There is no prior yet to diverge from, and no bound.
        return Epoch(epoch=number, rate=rate, objective=objective, risk=risk, kl=0.0, penalty=0.0, bound=1.0)

    @contextmanager
    def _seeded(self, number: int) -> Iterator[None]:
        """PyTorch's own random numbers, which layers such as Dropout take, by the seed; then as they were."""
        cuda = self.device.type == "cuda"
        seed = derived_seed(self.settings.seed, number, _LAYERS)
        with torch.random.fork_rng([self.device] if cuda else []):
            torch.default_generator.manual_seed(seed)
            if cuda:
                with torch.cuda.device(self.device):
                    torch.cuda.manual_seed(seed)
            yield

    def _capturable(self) -> bool:
        """Whether a step is the same kernels each time: certain for layers of PyTorch's and our own on a GPU."""
        known = all(type(m).__module__.startswith(("torch.nn.", "pacbayes.")) for m in self.model.modules())
        on_gpu = self.device.type == "cuda" and isinstance(self.x, Tensor)
        return on_gpu and known and len(self.y) >= self.settings.batch_size

    def _set_rate(self, rate: float) -> None:
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * group["rate_factor"])
            else:
                group["lr"] = rate * group["rate_factor"]

    def step(self, batch: Tensor, model: Callable[[Tensor], Tensor]) -> None:
        """One step of the model, or of a compiled form of it; adds to the sums of cross-entropy and errors."""
        x, y = self._augmented(batch), self.y[batch]
        own = None
        if self.settings.mixing:
            x, own = mixed(x, self.settings.mixing, self.generator)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.precision == "bf16"):
            outputs = _training_outputs(model, x).float()
        loss = F.cross_entropy(outputs, y, label_smoothing=self.settings.smoothing, reduction="none")
        if own is not None:
            other = F.cross_entropy(outputs, y.roll(1), label_smoothing=self.settings.smoothing, reduction="none")
            loss = own * loss + (1 - own) * other
        loss = loss.mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        if self.average is not None:
            # Not AveragedModel, which waits for the device in every step.
            get_ema_multi_avg_fn(self.settings.average)(*self.averaged, 0)
        self.sums += torch.stack([loss.detach(), (outputs.argmax(1) != y).to(loss).mean()]).double() * len(batch)

    def state(self) -> dict[str, Tensor]:
        """All that outlives an epoch."""
        tensors = {f"model.{name}": t for name, t in self.model.state_dict().items()}
        if self.average is not None:
            tensors |= {f"average.{name}": t for name, t in self.average.state_dict().items()}
        for number, parameter in enumerate(self.parameters):
            tensors[f"velocity.{number}"] = self.optimiser.state[parameter].get(
                "momentum_buffer", torch.zeros_like(parameter)
            )
        return {name: t.detach().clone() for name, t in tensors.items()}

    def load(self, tensors: dict[str, Tensor]) -> None:
        self.model.load_state_dict(_under("model.", tensors))
        if self.average is not None:
            self.average.load_state_dict(_under("average.", tensors))
        if self.settings.momentum:
            for number, parameter in enumerate(self.parameters):
                state, velocity = self.optimiser.state[parameter], tensors[f"velocity.{number}"].to(parameter)
                # In place where there is one: a captured step holds on to it.
                state["momentum_buffer"] = state.get("momentum_buffer", torch.empty_like(parameter)).copy_(velocity)

    def result(self) -> nn.Module:
        model = self.model
        if self.average is not None:
            model = self.average
            # Averaged weights are smaller than those on the way, whose statistics would not fit them.
            autocast = torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.precision == "bf16")
            with self._seeded(self.settings.epochs), autocast:
                update_bn(self._batches(), model)
        model = without_batchnorm(model) if self.settings.batchnorm else model
        return model.eval().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]

    def _order(self) -> Tensor:
        return torch.randperm(len(self.y), generator=self.generator, device=self.device)

    def _batches(self) -> Generator[Tensor, None, None]:
        """All examples, augmented as in training; not mixed, since in the end they are not."""
        settings = self.settings
        self.generator.manual_seed(derived_seed(settings.seed, settings.epochs))
        for batch in self._order().split(settings.batch_size):
            if len(batch) > 1:
                yield self._augmented(batch)

    def _augmented(self, batch: Tensor) -> Tensor:
        x = augmented(self.x[batch], self.changes, self.generator)
        if self.channels_last or not self.changes:
            return x
        # Not contiguous(), which leaves an image of one channel as it lies.
        return x.clone(memory_format=torch.contiguous_format)


class _CapturedStep:
    """A step with a full batch as one CUDA graph."""

    def __init__(self, training: _Training):
        from pacbayes.training.capture import captured  # it loads the compiler

        self.batch = torch.arange(training.settings.batch_size, device=training.device)
        model = torch.compile(training.model, dynamic=False)
        step = partial(training.step, self.batch, model)
        before = training.state()
        self.graph = captured(step, training.generator, torch.cuda.Stream(training.device), step)
        training.load(before)

    def __call__(self, batch: Tensor) -> None:
        self.batch.copy_(batch)
        self.graph.replay()


def _takes_channels_last(model: nn.Module, x: Tensor) -> bool:
    """Whether the model takes the layout that is fastest for images: a Conv3d does not, nor an x.view()."""
    try:
        with torch.no_grad():
            trial = copy.deepcopy(model).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            for images in (x, x.to(memory_format=torch.channels_last)):  # as they come, and as augmentation leaves them
                _outputs(trial, images)
    except RuntimeError:
        return False
    return True


def _training_outputs(model: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    try:
        return model(x)
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise UnsupportedModel(
            "the model gives some of its layers one example at a time, of which a BatchNorm has no variance: take "
            "batchnorm=False, and a smaller rate"
        ) from error


def _cycle(done: float) -> float:
    """The rate, of its peak, when this share of the training is done."""
    if done < WARM_UP:
        return done / WARM_UP
    return (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP))) / 2


def _numbers(model: nn.Module) -> list[Tensor]:
    """All that can be averaged: parameters, and the statistics of BatchNorm."""
    return [t.detach() for t in model.state_dict().values() if t.is_floating_point()]


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
