"""Cond-Gauss training: Algorithm 1 over mini-batches, with the best epoch kept."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Generator
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from pacbayes.bounds.binary_kl import kl_inverse
from pacbayes.bounds.pac_bayes import penalty
from pacbayes.checks import check_kind
from pacbayes.data import Data, as_data
from pacbayes.data.dataset import spread_rows
from pacbayes.errors import InvalidInput, NonFinite
from pacbayes.networks.distributions import scale_of
from pacbayes.networks.layers import StochasticLayer
from pacbayes.networks.refusals import check_examples
from pacbayes.networks.stochastic import StochasticNetwork, check_stochastic
from pacbayes.networks.watch import first_argument
from pacbayes.training.checkpoints import Checkpoint
from pacbayes.training.engine import Engine, engine_for
from pacbayes.training.settings import Settings, learning_rates
from pacbayes.training.stage import WATCHED, Stage

Result = TypeVar("Result")


@dataclass(frozen=True)
class Epoch:
    """One line of the history."""

    epoch: int
    rate: float
    objective: float
    risk: float
    """The estimated empirical 0-1 risk: at the end of the epoch, or over its batches (``evaluate="running"``)."""
    kl: float
    """KL(Q‖P), or the profile KL where that is the settings' divergence."""
    penalty: float
    bound: float
    """B1 at this risk and penalty, kappa = 1: an estimate, not a certificate."""
    lam: float | None = None
    kept: int | None = None
    """The epoch whose weights training would end with, were this the last; -1 for those that it began with.
    Of averaged weights, the last one's."""
    kept_bound: float | None = None
    """The bound of those weights; of averaged ones, the last one's."""

    def __str__(self) -> str:
        kept = ", kept so far" if self.kept == self.epoch else ""
        return f"epoch {self.epoch + 1}: risk {self.risk:.4f}, KL {self.kl:.4g}, bound {self.bound:.4f}{kept}"

    def record(self) -> dict[str, Any]:
        """For a line of JSON: without what there is not, such as lambda."""
        return {k: v for k, v in asdict(self).items() if v is not None}


def is_epoch(epoch: Epoch, number: int) -> bool:
    """Whether it is this one, its kept one came before it, and its other values are finite numbers."""
    values = [value for name, value in epoch.record().items() if name != "kept"]
    # Integers beyond all floats can be compared, and NaN is within nothing.
    numbers = all(type(value) in (int, float) and -1e300 <= value <= 1e300 for value in values)
    kept = epoch.kept is None or (type(epoch.kept) is int and -1 <= epoch.kept <= number)
    required = all(getattr(epoch, item.name) is not None for item in fields(epoch) if item.default is MISSING)
    return epoch.epoch == number and type(epoch.epoch) is int and numbers and kept and required


def noted_epochs(note: dict[str, Any]) -> list[Epoch]:
    """Those of a checkpoint's note, which may be anybody's."""
    epochs = [Epoch(**line) for line in note["epochs"]]
    if not all(is_epoch(epoch, number) for number, epoch in enumerate(epochs)):
        raise ValueError
    return epochs


@dataclass(frozen=True)
class History:
    """All epochs of a stage, and which one's weights were kept."""

    epochs: tuple[Epoch, ...]
    kept: int
    """-1 where none was better than the weights that training began with, which are back then."""


def fit(
    net: StochasticNetwork,
    data: Any,
    *,
    settings: Settings | None = None,
    callback: Callable[[Epoch], None] | None = None,
    checkpoint: Checkpoint | None = None,
    **options: object,
) -> History:
    """Train the network's posterior on the data by minimising a PAC-Bayes objective.

    ``data`` is a :class:`~pacbayes.Data` or a pair (x, y) of arrays or tensors. Options are the fields of
    :class:`~pacbayes.Settings`, or given together as ``settings``. ``callback`` sees each epoch as it ends.
    In the end the network has the weights of the epoch with the smallest bound, ``history.kept``, which is -1 where
    none was better than the start; with ``keep="last"``, or an objective without a penalty, those of the last epoch, or
    the mean of the last ones (``averaged``).
    With a ``checkpoint`` that holds a state, training continues from there and ends in the same weights; the callback
    sees the epochs before it, too.

    >>> from pacbayes.networks import build, stochastic
    >>> x, y = torch.randn(64, 4), torch.arange(64) % 2
    >>> history = fit(stochastic(build("mlp", (4,), 2)), (x, y), objective="invKL", epochs=2)
    >>> len(history.epochs)
    2
    """
    if settings is not None and options:
        raise InvalidInput("give settings or options, not both")
    check_kind("settings", settings, Settings | None, "pacbayes.Settings(...)")
    check_kind("callback", callback, Callable | None, "a function of an epoch")
    check_kind("checkpoint", checkpoint, Checkpoint | None, "a pacbayes.training.Checkpoint(path)")
    return drain(fitting(net, data, settings or Settings.of(**options), callback, checkpoint))


def drain(training: Generator[None, None, Result]) -> Result:
    """Run to its end what pauses between epochs; with gradients, wherever it is called."""
    with torch.inference_mode(False), torch.enable_grad():
        while True:
            try:
                next(training)
            except StopIteration as end:
                result: Result = end.value
                return result


def fitting(
    net: StochasticNetwork,
    data: Any,
    settings: Settings,
    callback: Callable[[Epoch], None] | None = None,
    checkpoint: Checkpoint | None = None,
    of: dict[str, str] | None = None,
) -> Generator[None, None, History]:
    """:func:`fit`, pausing whenever an epoch has been started: so that several trainings can share a GPU.

    ``of`` says what a checkpoint is of, if not of these data and this network's prior.
    """
    check_stochastic(net)
    data = as_data(data, classes=net.classes)
    check_fit(net, data, settings)
    _point_out_large_inputs(net, data)
    net.objective = settings.name
    net.trained_on.note(data)
    net.looks.note(data)  # its history shows bounds
    net.agree_on_prior()
    stage = Stage(net, data, settings)
    epochs: list[Epoch] = []
    rates = learning_rates(settings)
    kept = _Kept(last=settings.keeps_last, averaged_from=len(rates) - settings.averaged)

    def restore(tensors: dict[str, Tensor], note: dict[str, Any]) -> None:
        epochs.extend(noted_epochs(note))
        stage.load(tensors)
        weights = {name: tensors.get(f"kept_{name}", tensors[name]).to(stage.device) for name in _WEIGHTS}
        last = epochs[-1]
        if last.kept is None or last.kept_bound is None:
            raise KeyError
        kept.take(last.kept, last.kept_bound, weights)
        kept.start_risk = None if note["start_risk"] is None else float(note["start_risk"])

    identity: dict[str, Any] = {}
    if checkpoint is not None:
        identity = {**(of or trained_from(net, data)), **asdict(settings)}
        checkpoint.resume(identity, restore)
    for epoch in epochs:
        if callback is not None:
            callback(epoch)

    if len(epochs) < len(rates):
        engine = engine_for(stage)  # compiling takes a while
    good = stage.state()
    if not epochs and not settings.keeps_last and settings.evaluate == "pass" and settings.kappa == 1:
        # The weights as they are: they cost nothing, and where the rate is too large they are the best.
        kept.start_risk, bound = _at_start(stage, engine)
        kept.take(-1, bound, good)
    for number in range(len(epochs), len(rates)):
        engine.epoch(number, rates[number])
        yield
        engine.collect()
        try:
            epoch = _record(stage, engine, number, rates[number])
        except NonFinite as fault:
            stage.load(good)
            raise NonFinite(
                f"epoch {number}: {fault}; the weights are back where they were before it. "
                "Try a smaller rate, a larger prior variance, or inputs of size about 1"
            ) from None
        good = stage.state()
        kept.offer(number, epoch.bound, good)
        epochs.append(replace(epoch, kept=kept.epoch, kept_bound=kept.bound))
        if checkpoint is not None and (checkpoint.due() or number + 1 == len(rates)):
            tensors = good | {f"kept_{name}": t for name, t in kept.weights.items() if t is not good[name]}
            note = {"of": identity, "epochs": [asdict(e) for e in epochs], "start_risk": kept.start_risk}
            checkpoint.save(tensors, note)
        if callback is not None:
            callback(epochs[-1])
    with torch.no_grad():
        net.mean.copy_(kept.weights["mean"])
        net.rho.copy_(kept.weights["rho"])
    if kept.epoch < 0:
        _warn_of_a_bad_rate(stage, epochs, kept)
    return History(tuple(epochs), kept.epoch)


_WEIGHTS = ("mean", "rho")
_LOOKED_AT, _LARGE = 100, 30


@dataclass
class _Kept:
    """The weights that training ends with: of the least bound, the start's included, or the last, or an average."""

    last: bool
    averaged_from: int
    """The first epoch whose weights the average has; all that come later are in it too."""
    epoch: int = -1
    bound: float = math.inf
    weights: dict[str, Tensor] = field(default_factory=dict)
    start_risk: float | None = None

    def offer(self, epoch: int, bound: float, state: dict[str, Tensor]) -> None:
        if epoch > self.averaged_from:
            share = 1 / (epoch - self.averaged_from + 1)
            state = {name: self.weights[name].lerp(state[name], share) for name in _WEIGHTS}
        if self.last or not self.weights or bound < self.bound:
            self.take(epoch, bound, state)

    def take(self, epoch: int, bound: float, state: dict[str, Tensor]) -> None:
        self.epoch, self.bound, self.weights = epoch, bound, {name: state[name] for name in _WEIGHTS}


def _warn_of_a_bad_rate(stage: Stage, epochs: list[Epoch], start: _Kept) -> None:
    """Where no epoch was better than the start there may be nothing to gain. Where one learnt, or all were far worse,
    the rate is too large."""
    net, settings = stage.net, stage.settings
    risk = math.nan if start.start_risk is None else start.start_risk
    # No bound is far above one near 1; a penalty is, and above 1 it says nothing whatever the risk.
    far = min(e.bound for e in epochs) > 1.2 * start.bound or min(e.penalty for e in epochs) > 1 + _penalty_now(stage)
    if not far and min(e.risk for e in epochs) >= 0.8 * risk:
        return
    # Beyond about this rate the KL's gradient, (m - m̃)/s̃² for each mean, overshoots.
    safe = stage.m * float(scale_of(net.prior_rho).min()) ** 2
    such = f", {safe:.0e} or less" if safe < settings.rate else ""
    warnings.warn(
        f"no epoch has a bound below the {start.bound:.4f} that training began with, so the weights are back where "
        f'they were: try a smaller rate{such}; the setting keep = "last" keeps the last epoch all the same',
        stacklevel=5,  # whoever called fit
    )


def _at_start(stage: Stage, engine: Engine) -> tuple[float | None, float]:
    """Risk and bound of the weights as they are; no risk where it is not finite."""
    risk = engine.risk()
    if not math.isfinite(risk):
        return None, math.inf
    return risk, kl_inverse(min(max(risk, 0.0), 1.0), _penalty_now(stage))


def _penalty_now(stage: Stage) -> float:
    with torch.no_grad():
        divergence = float(stage.divergence_at(stage.net.mean, stage.net.rho, exact=True))
    return penalty(divergence, stage.m, stage.settings.delta)


def _record(stage: Stage, engine: Engine, number: int, rate: float) -> Epoch:
    """The epoch's line; what was not finite first, and where, is said if anything was not."""
    m, net, settings = stage.m, stage.net, stage.settings
    with torch.no_grad():
        finite = torch.stack([net.mean.isfinite().all(), net.rho.isfinite().all()])
        divergence = stage.divergence_at(net.mean, net.rho, exact=True)
        sums = (stage.objective_sum, stage.error_sum, divergence, stage.lam, stage.steps, *stage.finite_steps, *finite)
        # Read all at once: each reading waits for the device.
        read = torch.stack([value.double() for value in sums]).tolist()
    objective, error, kl, lam, steps = read[:5]
    _check_finite(stage, steps, read[5 : 5 + len(WATCHED)], all(read[5 + len(WATCHED) :]))
    risk = error / m if settings.evaluate == "running" else engine.risk()
    for what, value in (("the risk", risk), ("the KL", kl)):
        if not math.isfinite(value):
            raise NonFinite(f"{what} was not finite at its end")
    pen = penalty(kl, m, settings.delta)
    return Epoch(
        epoch=number,
        rate=rate,
        objective=objective / m,
        risk=risk,
        kl=kl,
        penalty=pen,
        bound=kl_inverse(min(max(risk, 0.0), 1.0), pen),
        lam=lam if settings.trains_lambda else None,
    )


def _check_finite(stage: Stage, steps: float, counts: list[float], weights_are: bool) -> None:
    bad = [(count, what) for count, what in zip(counts, WATCHED, strict=True) if count < steps]
    if bad:
        step, what = min(bad, key=lambda item: item[0])
        raise NonFinite(f"{what} was not finite at step {step:.0f}")
    if weights_are:
        return
    for what, vector in (("mean", stage.net.mean), ("rho", stage.net.rho)):
        for name, part in stage.net.parts(vector).items():
            if not bool(part.isfinite().all()):
                raise NonFinite(f"the {what} of {name} was not finite after the last step")


def trained_from(net: StochasticNetwork, data: Data) -> dict[str, str]:
    """What a checkpoint is of: continued with other data or another prior, a training would not be what it says."""
    return {"data": data.fingerprint(), "prior": net.fingerprint("prior")}


def check_fit(net: StochasticNetwork, data: Data, settings: Settings) -> None:
    """Refuse too few examples, or a shape the model does not take, in one clear line and before any work."""
    penalty(0.0, len(data), settings.delta)
    if settings.estimator == "closed-form" and net.classes != 2:
        raise InvalidInput(f"the closed form holds for two classes, not {net.classes}: take estimator 'auto'")
    check_examples(net, data.x)


@torch.no_grad()
def _point_out_large_inputs(net: StochasticNetwork, data: Data) -> None:
    """Those of the first layer, after whatever the model makes of its examples: pixels from 0 to 255, say."""
    sizes: list[float] = []

    def note(layer: nn.Module, args: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
        sizes.append(float(first_argument(args, named).abs().max()))

    layers = [module for module in net.model.modules() if isinstance(module, StochasticLayer)]
    handles = [layer.register_forward_pre_hook(note, with_kwargs=True) for layer in layers]
    try:
        net(data.x[spread_rows(len(data), _LOOKED_AT)].to(net.mean.device), "mean")
    finally:
        for handle in handles:
            handle.remove()
    if sizes and sizes[0] > _LARGE:
        warnings.warn(
            f"inputs are as large as {sizes[0]:.4g}, and networks learn best from inputs of size about 1: divide them "
            "by constants that you know without looking at the bound data",
            stacklevel=3,
        )
