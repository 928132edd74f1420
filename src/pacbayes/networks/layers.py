"""Layers whose weights are drawn: Linear and Conv, with an exact and fast rule for each way of sampling."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pacbayes.checks import check_in_range, check_one_of
from pacbayes.errors import InvalidInput, UnsupportedModel
from pacbayes.networks.distributions import Distribution, Gaussian
from pacbayes.networks.normals import Normals, of_examples

SAMPLINGS = ("shared", "independent", "mixed", "mean")

# A last layer of so few weights costs a GPU more in starting kernels than in running them.
_FEW = 8192

# Keeps the root's slope finite where an input is all zeros and there is no bias.
_VARIANCE_FLOOR = 1e-24


@dataclass(frozen=True)
class Draw:
    """How the weights are drawn in one pass of the network.

    - ``"shared"``: one draw for the whole batch, as in the paper;
    - ``"independent"``: one draw for each example;
    - ``"mixed"``: one for each example in Linear layers and normalisations, one for the batch in all else. Each
      example's law, and so the expected gradient, is the same in all three; only the dependence between examples
      differs;
    - ``"mean"``: no draw, the means themselves: the deterministic network.
    """

    sampling: str
    normals: Normals
    dropout: float = 0.0
    examples: int | None = None
    """How many there are in the batch: where each has its own draw, every layer must see one row for each."""
    scales: Tensor | None = None
    """The deviations of all weights, a flat vector, where they are at hand already."""

    def __post_init__(self) -> None:
        check_one_of("sampling", self.sampling, SAMPLINGS)
        check_in_range("dropout", self.dropout, 0, 1, closed_low=True)


@dataclass(frozen=True)
class Moments:
    """Means and deviations of one weight tensor, and the family they belong to."""

    mean: Tensor
    scale: Tensor
    distribution: Distribution

    def sample(self, draw: Draw, copies: int | None = None) -> Tensor:
        """One draw, or with ``copies`` that many stacked in front."""
        if draw.sampling == "mean":
            return self.mean
        if copies is not None and hasattr(draw.normals, "around") and isinstance(self.distribution, Gaussian):
            many: Tensor = draw.normals.around(self.mean, self.scale, copies)
            return many
        if copies is None:
            return self.mean + self.scale * self.distribution.noise(tuple(self.mean.shape), draw.normals)
        normals = of_examples(draw.normals, axis=-1 - self.mean.dim())
        return self.mean + self.scale * self.distribution.noise((copies, *self.mean.shape), normals)


class StochasticLayer(nn.Module):
    """A layer without weights of its own: the network binds their moments for the time of a pass."""

    weight: Moments
    bias: Moments | None
    draw: Draw
    name = "the model"

    def bind(self, draw: Draw, weight: Moments, bias: Moments | None) -> None:
        self.draw, self.weight, self.bias, self.used = draw, weight, bias, False

    def unbind(self) -> None:
        """Let go of the graph behind the moments."""
        del self.draw, self.weight, self.bias

    def _check(self, x: Tensor, *, own_draws: bool) -> None:
        # The means are the same each time; but of two outputs one would be lost.
        if self.used and (self.draw.sampling != "mean" or isinstance(self, OutputLinear)):
            raise UnsupportedModel(
                f"{self.name} is applied more than once in a pass, which would draw its weights anew each time: give "
                "each use a layer of its own"
            )
        self.used = True
        if own_draws and self.draw.examples is not None and len(x) != self.draw.examples:
            raise UnsupportedModel(
                f"{self.name} gets {len(x)} rows for {self.draw.examples} examples, so a draw for each row is not a "
                "draw for each example: keep the examples on the first axis and their positions behind it"
            )

    def draws_weights(self, x: Tensor) -> bool:
        """Whether an independent draw for each example of x takes a copy of the weights for each."""
        return True

    def _sample(self, copies: int | None = None) -> tuple[Tensor, Tensor | None]:
        return self.weight.sample(self.draw, copies), self.bias.sample(self.draw, copies) if self.bias else None


class StochasticLinear(StochasticLayer):
    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features

    def forward(self, x: Tensor) -> Tensor:
        return _dropped(self.drawn(x), self.draw)

    def drawn(self, x: Tensor) -> Tensor:
        own_draws = self.draw.sampling in ("independent", "mixed")
        self._check(x, own_draws=own_draws)
        if not own_draws:
            return F.linear(x, *self._sample())
        if not self.draws_weights(x):
            # A draw of the weights for each example is a draw of each pre-activation (local reparameterisation).
            # What certificates and predictions are made of; training may be faster.
            counted = self.draw.sampling == "independent" and not torch.is_grad_enabled()
            mean, variance = self._wide_moments(x) if counted else self.moments(x)
            noise = of_examples(self.draw.normals)(tuple(mean.shape))
            if torch.is_grad_enabled():
                variance = variance.clamp_min(_VARIANCE_FLOOR)
            return mean + variance.sqrt().to(mean.dtype) * noise
        # Positions of one example share its weights, so the weights themselves are drawn.
        weight, bias = self._sample(len(x))
        out = torch.einsum("b...i,boi->b...o", x, weight)
        return out if bias is None else out + bias.view(len(x), *(1,) * (x.dim() - 2), -1)

    def draws_weights(self, x: Tensor) -> bool:
        return x.dim() != 2 or not isinstance(self.weight.distribution, Gaussian)

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the output given x [batch, in], the weights independent: M and V of Algorithm 1."""
        weight, bias = self.weight, self.bias
        mean = F.linear(x, weight.mean, bias.mean if bias else None)
        return mean, F.linear(x.square(), weight.scale.square(), bias.scale.square() if bias else None)

    def _wide_moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`moments`, the variance in float64: squares of small inputs must not vanish, nor their noise."""
        weight, bias = self.weight, self.bias
        by_bias = bias.scale.double().square() if bias else None
        squares = x.to(torch.float64, copy=True).square_()  # in place: inputs may be most of the memory
        variance = F.linear(squares, weight.scale.double().square(), by_bias)
        return F.linear(x, weight.mean, bias.mean if bias else None), variance


class OutputLinear(StochasticLinear):
    """The last layer: Gaussian always. In a conditional pass it returns the mean and leaves the variance here."""

    conditional = False
    variance: Tensor

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 2:
            raise UnsupportedModel(
                f"the last Linear must get [batch, features], and got {tuple(x.shape)}: pool or flatten before it"
            )
        # Full precision, whatever the layers before it use: the error probability is a difference of its outputs.
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(self.weight.mean.dtype)
            if not self.conditional:
                return self.drawn(x)
            self._check(x, own_draws=True)
            mean, self.variance = self.moments(x)
            return mean

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        weight, bias = self.weight, self.bias
        if not (x.is_cuda and torch.compiler.is_compiling() and weight.mean.numel() <= _FEW):
            return super().moments(x)
        # As sums, which the compiler joins with what stands around them: a product would be a kernel of its own.
        pairs = ((x, weight.mean), (x.square(), weight.scale.square()))
        mean, variance = ((a.unsqueeze(1) * b).sum(-1) for a, b in pairs)
        return (mean + bias.mean, variance + bias.scale.square()) if bias else (mean, variance)


class StochasticConv(StochasticLayer):
    """Conv1d, Conv2d or Conv3d, every option of the original kept."""

    by_product = True
    """Whether one matrix product may take its place: the outputs are the same, but lie otherwise in memory."""

    def __init__(self, conv: nn.Conv1d | nn.Conv2d | nn.Conv3d):
        super().__init__()
        self.conv = conv
        # The original stays for its geometry; its weights now live in the network's flat vectors.
        for name in ("weight", "bias"):
            setattr(conv, name, None)

    def forward(self, x: Tensor) -> Tensor:
        spatial = len(self.conv.kernel_size)
        if x.dim() != spatial + 2:
            raise InvalidInput(f"a {spatial}-d convolution needs [batch, channels, ...], and got {tuple(x.shape)}")
        self._check(x, own_draws=self.draw.sampling == "independent")
        if self.draw.sampling == "independent":
            x = self._each_its_own(x, *self._sample(len(x)))
        elif self.by_product and self._suits_a_product(x) and self.draw.sampling != "mean":
            x = self._as_product(x, *self._sample())
        else:
            x = self.conv._conv_forward(x, *self._sample())
        return _dropped(x, self.draw, spatial)

    def _suits_a_product(self, x: Tensor) -> bool:
        conv = self.conv
        plain = conv.groups == 1 and conv.padding_mode == "zeros" and not isinstance(conv.padding, str)
        tiny = isinstance(conv, nn.Conv2d) and conv.in_channels * math.prod(conv.kernel_size) <= 32
        return x.is_cuda and plain and tiny

    def _as_product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution as one matrix product: for one or three input channels a GPU is faster at that."""
        patches, extent = self._patches(x)
        columns, rows = patches.transpose(1, 2), weight.flatten(1)
        if bias is not None:
            # As the weight of an input that is always 1: so its gradient takes no pass of its own.
            columns, rows = F.pad(columns, (0, 1), value=1.0), torch.cat([rows, bias.unsqueeze(1)], 1)
        missing = -rows.shape[1] % 16
        out = F.linear(F.pad(columns, (0, missing)), F.pad(rows, (0, missing)))
        return out.transpose(1, 2).unflatten(2, extent)

    def _patches(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """What each output position sees, [batch, channels * kernel, positions], and the output's height and width.

        Views and one copy: ``F.unfold`` does the same, but takes a GPU kernel for every example.
        """
        conv = self.conv
        assert isinstance(conv.padding, tuple)
        x = F.pad(x, (conv.padding[1], conv.padding[1], conv.padding[0], conv.padding[0]))
        for axis in (0, 1):
            x = x.unfold(2 + axis, conv.dilation[axis] * (conv.kernel_size[axis] - 1) + 1, conv.stride[axis])
        x = x[..., :: conv.dilation[0], :: conv.dilation[1]]
        height, width = x.shape[2:4]
        return x.permute(0, 1, 4, 5, 2, 3).reshape(len(x), -1, height * width), (height, width)

    def _each_its_own(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Convolve example b with its own weight[b]: weights are shared over positions, so they must be drawn."""
        conv, batch = self.conv, len(x)
        padding = conv.padding
        if conv.padding_mode != "zeros":
            x = F.pad(x, conv._reversed_padding_repeated_twice, conv.padding_mode)
            padding = (0,) * len(conv.kernel_size)
        elif isinstance(conv, nn.Conv2d) and conv.groups == 1 and not isinstance(padding, str):
            patches, extent = self._patches(x)
            out = (weight.flatten(2) @ patches).unflatten(2, extent)
            return out if bias is None else out + bias[:, :, None, None]
        convolve = (F.conv1d, F.conv2d, F.conv3d)[len(conv.kernel_size) - 1]
        out = convolve(
            x.reshape(1, -1, *x.shape[2:]),
            weight.flatten(0, 1),
            None if bias is None else bias.flatten(),
            conv.stride,
            padding,
            conv.dilation,
            conv.groups * batch,
        )
        return out.view(batch, conv.out_channels, *out.shape[2:])


def _dropped(x: Tensor, draw: Draw, spatial: int = 0) -> Tensor:
    """Dropout, of whole channels where there are spatial axes; it commutes with a ReLU or max pooling that follows."""
    if draw.dropout == 0:
        return x
    shape = x.shape[: x.dim() - spatial] + (1,) * spatial
    kept = torch.special.ndtr(of_examples(draw.normals)(tuple(shape))) >= draw.dropout
    return x * kept / (1 - draw.dropout)
