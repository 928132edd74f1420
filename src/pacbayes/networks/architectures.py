"""The paper's networks, small ones, and some for records, as data: one line of layers each.

``conv N`` is a 3x3 convolution to N channels (``conv N same`` with padding 1, ``conv N 5x5`` of that size), ``pool`` a
2x2 max pooling, ``residual N`` two convolutions with a way around them, ``average`` the mean over all places,
``mirrored`` the mean over an image and its mirror image of all that comes before, ``scatter J L`` a fixed scattering
transform, ``centre A B`` the inputs less A, divided by B; ``|`` stands between the members of a committee, which are
side by side. A ReLU follows every layer, after its pooling where it has one; the last Linear, to the number of classes,
closes the net.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pacbayes.checks import check_one_of, check_type, plain
from pacbayes.errors import InvalidInput
from pacbayes.networks.scattering import Scattering
from pacbayes.seeds import check_seed

INITS = ("default", "orthogonal")


@dataclass(frozen=True)
class Architecture:
    layers: str
    about: str

    @property
    def for_images(self) -> bool:
        return any(word in self.layers for word in ("conv", "scatter"))


def _same(*channels: int) -> str:
    return ", ".join(f"conv {c} same" for c in channels)


def _resnet(n: int) -> str:
    stages = [f"residual {c}, residual {c}" for c in (n, 2 * n, 4 * n, 8 * n)]
    return f"conv {n} same, {', pool, '.join(stages)}, average"


_CNN_6 = f"{_same(64, 64)}, pool, {_same(128, 128)}, pool, {_same(256, 256)}, average"

# Unpadded convolutions of three sizes, without a pooling before the end: after An, Lee, Park, Yang and So (2020).
_KERNELS = (
    ", ".join(f"conv {c}" for c in range(32, 177, 16)) + ", pool",
    ", ".join(f"conv {c} 5x5" for c in range(32, 161, 32)) + ", pool",
    ", ".join(f"conv {c} 7x7" for c in range(48, 193, 48)),
)

ARCHITECTURES = {
    "mlp": Architecture("linear 100", "one hidden layer of 100, for small data"),
    "mlp-2": Architecture("linear 256, linear 128", "two hidden layers, for tabular data"),
    "cnn-small": Architecture(
        "conv 16 same, conv 32 same, pool, linear 64", "two convolutions and a hidden layer, for 8x8 images"
    ),
    "mnist-4": Architecture("conv 32, conv 64, pool, linear 128", "the paper's 4 layers (SM5.1)"),
    # (pixel/255 - 1/8)/(5/16), where our inputs are 4 pixel/255. Round numbers: the authors' own, .1307 and .3081, are
    # fitted to MNIST's training images, which are the bound data of a data-free prior.
    "mnist-4-centred": Architecture(
        "centre 0.5 1.25, conv 32, conv 64, pool, linear 128",
        "the same, with inputs of mean 0 and deviation 1, nearly, as in the authors' code",
    ),
    "cifar10-9": Architecture(
        f"{_same(32, 64)}, pool, {_same(128, 128)}, pool, {_same(256, 256)}, pool, linear 1024, linear 512",
        "the paper's 9 layers (SM5.2.1)",
    ),
    # The paper's formula has a fifth pooling, after C6, but its L1 has 2048 inputs, which needs four.
    "cifar10-15": Architecture(
        f"{_same(32, 64)}, pool, {_same(128, 128)}, pool, {_same(256, 256, 256, 256)}, pool, "
        f"{_same(512, 512, 512, 512)}, pool, linear 1024, linear 512",
        "the paper's 15 layers (SM5.2.2), pooled after C2, C4, C8 and C12",
    ),
    "cifar10-15-five-pools": Architecture(
        f"{_same(32, 64)}, pool, {_same(128, 128)}, pool, {_same(256, 256)}, pool, {_same(256, 256)}, pool, "
        f"{_same(512, 512, 512, 512)}, pool, linear 1024, linear 512",
        "the 15 layers with the five poolings of the paper's formula (L1 has 512 inputs then)",
    ),
    "cnn-6": Architecture(_CNN_6, "six convolutions, for 28x28 images"),
    "cnn-6-committee": Architecture(" | ".join(8 * [_CNN_6]), "eight networks of six convolutions that learn apart"),
    "kernels-committee": Architecture(
        " | ".join(2 * _KERNELS), "six networks, of convolutions of size 3, 5 and 7, that learn apart; for 28x28 images"
    ),
    "resnet-18": Architecture(_resnet(64), "eight residual blocks of 64 to 512 channels, without normalisation"),
    "resnet-18-mirrored": Architecture(f"{_resnet(64)}, mirrored", "the same, shown each image and its mirror image"),
    "resnet-18-wide": Architecture(f"{_resnet(128)}, mirrored", "the same, of 128 to 1024 channels"),
    "scattering": Architecture(
        "scatter 2 8", "one linear layer, from zero, on a scattering transform that no data have shaped"
    ),
    "scattering-photo": Architecture(
        "scatter 3 8, mirrored", "the same, with larger scales and mirror images, for photographs"
    ),
}


def build(name: str, shape: Sequence[int], classes: int, *, init: str = "default", seed: int = 0) -> nn.Sequential:
    """An architecture for examples of this shape, initialised from the seed.

    ``init``: ``"default"`` is PyTorch's, ``"orthogonal"`` orthogonal weights and zero biases. These have no gain for
    ReLU: with it the 15 layers fall silent in the first steps of cross-entropy at the paper's rate, and stay so.

    >>> sum(p.numel() for p in build("mnist-4", (1, 28, 28), 10).parameters())
    1199882
    """
    check_one_of("initialisation", init, INITS)
    check_seed(seed := plain(seed))
    shape, classes = _checked(name, shape, classes)
    if ARCHITECTURES[name].for_images and shape[2] in (1, 3, 4) and min(shape[:2]) > shape[2]:
        warnings.warn(
            f"{name} takes images [channels, height, width], and examples of shape {list(shape)} look like [height, "
            "width, channels]: if they are, take x.transpose(0, 3, 1, 2)",
            stacklevel=2,
        )
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)  # and no GPU's
        return _model(name, shape, classes, init)


def count_weights(name: str, shape: Sequence[int], classes: int) -> int:
    """The number of weights of an architecture, which is not made: no memory is taken, whatever the shape."""
    shape, classes = _checked(name, shape, classes)
    with torch.device("meta"):
        return sum(p.numel() for p in _model(name, shape, classes, "default").parameters())


def _checked(name: str, shape: Sequence[int], classes: int) -> tuple[tuple[int, ...], int]:
    check_one_of("model", name, ARCHITECTURES)
    try:
        shape = tuple(map(operator.index, shape))
    except TypeError:
        raise InvalidInput(f"shape must be that of one example, such as (1, 28, 28), and is {shape!r}") from None
    check_type("classes", classes := plain(classes), int)
    if not shape or min(classes, *shape) < 1:
        raise InvalidInput(f"shape and classes must be positive, and are {list(shape)} and {classes}")
    if ARCHITECTURES[name].for_images and len(shape) != 3:
        remedy = ": give the channels an axis, x[:, None]" if len(shape) == 2 else ""
        raise InvalidInput(
            f"{name} takes images [channels, height, width], and an example has shape {list(shape)}{remedy}"
        )
    return shape, classes


def _model(name: str, shape: tuple[int, ...], classes: int, init: str) -> nn.Sequential:
    """The architecture on the default device, by its generator."""
    modules, features = _body(ARCHITECTURES[name].layers, name, shape)
    model = nn.Sequential(*modules, nn.Linear(features, classes))
    if init == "orthogonal":
        for layer in model.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.orthogonal_(layer.weight)
                assert layer.bias is not None
                nn.init.zeros_(layer.bias)
    if any(isinstance(module, Scattering) for module in model.modules()):
        # A start at random would only have to be unlearnt.
        for parameter in model[-1].parameters():
            nn.init.zeros_(parameter)
    return model.float()  # as examples are, whatever PyTorch's default


class Residual(nn.Module):
    """Two 3x3 convolutions, and around them the input itself, or a 1x1 convolution of it to as many channels."""

    def __init__(self, channels: int, out: int):
        super().__init__()
        self.first, self.second = nn.Conv2d(channels, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        self.around = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(x))) + self.around(x))


class Centred(nn.Module):
    offset: Tensor
    scale: Tensor

    def __init__(self, offset: float, scale: float):
        super().__init__()
        self.register_buffer("offset", torch.tensor(offset))
        self.register_buffer("scale", torch.tensor(scale))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.offset) / self.scale


class Mirrored(nn.Sequential):
    """Layers in a row, and in evaluation the mean of what they give for an image and for its mirror image."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = super().forward(x)
        return y if self.training else (y + super().forward(x.flip(-1))) / 2


class Committee(nn.Module):
    """Networks side by side. Each learns apart, from a share of every batch; in evaluation all see every example.

    What the next Linear makes of their outputs is then the mean of what it would make of each by itself.
    """

    def __init__(self, members: Sequence[nn.Module]):
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        count = len(self.members)
        # The end of an epoch may leave a batch too short to share.
        if not self.training or len(x) < 2 * count:
            return torch.cat([member(x) for member in self.members], 1)
        columns = []
        for place, member in enumerate(self.members):
            share = member(x[place::count]) * count
            column = share.new_zeros(len(x), share.shape[1])
            column[place::count] = share
            columns.append(column)
        return torch.cat(columns, 1)


def _body(layers: str, name: str, shape: tuple[int, ...]) -> tuple[list[nn.Module], int]:
    """All but the last Linear, and how many numbers it gives."""
    if "|" in layers:
        members = [_body(member, name, shape) for member in layers.split(" | ")]
        return [Committee([nn.Sequential(*modules) for modules, _ in members])], sum(size for _, size in members)
    modules: list[nn.Module] = []
    size = torch.Size(shape)
    for words in (item.split() for item in layers.split(", ")):
        kind = words[0]
        if kind == "pool":
            # Before the ReLU of the layer above, as the paper has it; the two commute.
            modules.insert(len(modules) - isinstance(modules[-1], nn.ReLU), nn.MaxPool2d(2))
            size = torch.Size((size[0], size[1] // 2, size[2] // 2))
        elif kind == "conv":
            kernel = next((int(word[0]) for word in words if "x" in word), 3)
            padding = kernel // 2 if "same" in words else 0
            modules += [nn.Conv2d(size[0], int(words[1]), kernel, padding=padding), nn.ReLU()]
            lost = kernel - 1 - 2 * padding
            size = torch.Size((int(words[1]), size[1] - lost, size[2] - lost))
        elif kind == "residual":
            modules.append(Residual(size[0], int(words[1])))
            size = torch.Size((int(words[1]), *size[1:]))
        elif kind == "average":
            modules += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
            size = torch.Size((size[0],))
        elif kind == "mirrored":
            modules = [Mirrored(*modules)]
        elif kind == "centre":
            modules.append(Centred(float(words[1]), float(words[2])))
        elif kind == "scatter":
            modules.append(Scattering(int(words[1]), int(words[2])))
            size = modules[-1](torch.zeros(1, *shape, dtype=torch.float32)).shape[1:]
        else:
            if len(size) > 1:
                modules.append(nn.Flatten())
            modules += [nn.Linear(size.numel(), int(words[1])), nn.ReLU()]
            size = torch.Size((int(words[1]),))
        if min(size) < 1:
            raise InvalidInput(f"{name} pools images of shape {list(shape)} away to nothing: take a smaller network")
    if len(size) > 1:
        modules.append(nn.Flatten())
    return modules, size.numel()
