"""Models of many kinds, none of them a plain chain of Linear and Conv: residual, attention, recurrent, tied, again."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """The basic block of a ResNet."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Callable[[int], nn.Module]):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1, self.norm2 = norm(outputs), norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs))

    def forward(self, x):
        out = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(out + self.shortcut(x))


class ResNet18(nn.Module):
    """The eighteen layers of a ResNet for small images; ``width`` channels at the start, 64 in the original."""

    def __init__(self, norm: Callable[[int], nn.Module], width: int = 64, classes: int = 3, channels: int = 3):
        super().__init__()
        self.fc = nn.Linear(8 * width, classes)
        self.stem = nn.Sequential(nn.Conv2d(channels, width, 3, 1, 1, bias=False), norm(width), nn.ReLU(inplace=True))
        sizes = [width, width, 2 * width, 4 * width, 8 * width]
        self.stages = nn.ModuleList(
            nn.Sequential(Block(a, b, 1 if i == 0 else 2, norm), Block(b, b, 1, norm))
            for i, (a, b) in enumerate(zip(sizes, sizes[1:], strict=False))
        )

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return self.fc(x.mean((2, 3)))


def group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(2, channels)


class Tokens(nn.Module):
    """An encoder of words: embeddings, positions, a class token, self-attention; all parameters are trainable."""

    def __init__(self, encoder: Callable[[int], nn.Module], words: int = 9, width: int = 8, batch_first: bool = True):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.token = nn.Parameter(0.5 * torch.randn(1, 1, width))
        self.positions = nn.ParameterList([0.5 * torch.randn(width) for _ in range(6)])
        self.encoder, self.batch_first = encoder(width), batch_first
        self.out = nn.Linear(width, 3)

    def forward(self, x):
        h = self.words((x.abs() * 3).long() % self.words.num_embeddings)
        h = torch.cat([self.token.expand(len(x), -1, -1), h], 1) + torch.stack(list(self.positions))
        h = self.encoder(h) if self.batch_first else self.encoder(h.transpose(0, 1)).transpose(0, 1)
        return self.out(h.mean(1))


def encoder_layer(width: int, **options) -> nn.Module:
    return nn.TransformerEncoderLayer(width, 2, 12, **({"batch_first": True} | options))


def encoder(width: int, **options) -> nn.Module:
    return nn.TransformerEncoder(encoder_layer(width, **options), 2, enable_nested_tensor=False)


class Attends(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True, add_bias_kv=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], **options):
        super().__init__()
        self.body = kind(4, 5, **({"batch_first": True} | options))
        self.out = nn.Linear(10 if options.get("bidirectional") else 5, 3)

    def forward(self, x):
        if self.body.batch_first:
            return self.out(self.body(x)[0].mean(1))
        return self.out(self.body(x.transpose(0, 1))[0].mean(0))


class Way(nn.Module):
    """Named layers, and a function that says how they are applied."""

    def __init__(self, way, **layers):
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.way = way

    def forward(self, x):
        return self.way(self, x)


class OwnLinear(nn.Linear):
    """A Linear with another forward: not to be taken for a Linear."""

    def forward(self, x):
        return super().forward(x).sin()


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    model[2].weight = model[0].weight
    return model


def two_places() -> nn.Module:
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Tanh(), nn.Linear(4, 3))


def half_frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    model[0].weight.requires_grad_(False)
    return model


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    model[0].register_forward_hook(lambda module, args, out: 2 * out)
    return model


def ended(*layers: nn.Module, features: int) -> nn.Sequential:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 3))


def again(net, x):
    return net.out(torch.tanh(net.body(torch.tanh(net.body(x)))))


def positions_first(net, x):
    return net.out(torch.tanh(net.body(x.transpose(0, 1))).mean(0))


def positions_folded(net, x):
    return net.out(torch.tanh(net.body(x.flatten(0, 1))).view(len(x), -1, 4).mean(1))


def by_hand(net, x):
    return net.out(torch.tanh(F.linear(torch.tanh(net.body(x)), net.body.weight.t())))


def linears(**layers) -> dict[str, nn.Module]:
    return {"body": nn.Linear(4, 4), "out": nn.Linear(4, 3)} | layers


# name -> the model, the shape of an example, and whether every layer draws by a rule of its own
NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], bool]] = {
    "resnet, group norm": (lambda: ResNet18(group_norm, 2), (3, 8, 8), True),
    "layer norm": (lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 3)), (4,), True),
    "layer norm without bias, of positions": (
        lambda: ended(nn.Linear(4, 6), nn.LayerNorm((2, 6), bias=False), features=36),
        (3, 2, 4),
        True,
    ),
    "group norm of features": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.GroupNorm(2, 6), nn.Linear(6, 3)),
        (4,),
        True,
    ),
    "rms norm": (lambda: nn.Sequential(nn.Linear(4, 6), nn.RMSNorm(6), nn.Linear(6, 3)), (4,), False),
    "instance norm": (lambda: ended(nn.Conv1d(2, 3, 2), nn.InstanceNorm1d(3, affine=True), features=12), (2, 5), False),
    "prelu": (lambda: nn.Sequential(nn.Linear(4, 6), nn.PReLU(6), nn.Linear(6, 3)), (4,), False),
    "conv transpose 1d": (
        lambda: ended(nn.ConvTranspose1d(2, 4, 3, stride=2, output_padding=1, groups=2), features=48),
        (2, 5),
        False,
    ),
    "conv transpose 2d": (lambda: ended(nn.ConvTranspose2d(2, 3, 2, bias=False), features=75), (2, 4, 4), False),
    "conv transpose 3d": (lambda: ended(nn.ConvTranspose3d(1, 2, 2), features=54), (1, 2, 2, 2), False),
    "words": (lambda: Tokens(lambda width: nn.Identity()), (5,), False),
    "attention": (lambda: Tokens(Attends), (5,), False),
    "transformer": (lambda: Tokens(encoder), (5,), False),
    "transformer, norm first, gelu": (
        lambda: Tokens(lambda width: encoder_layer(width, norm_first=True, activation="gelu", dropout=0.5)),
        (5,),
        False,
    ),
    "transformer, positions first": (
        lambda: Tokens(lambda width: encoder_layer(width, batch_first=False), batch_first=False),
        (5,),
        False,
    ),
    "lstm": (lambda: Recurrent(nn.LSTM), (3, 4), False),
    "lstm, two ways, two layers, positions first": (
        lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True, batch_first=False, dropout=0.5),
        (3, 4),
        False,
    ),
    "gru": (lambda: Recurrent(nn.GRU), (3, 4), False),
    "rnn": (lambda: Recurrent(nn.RNN, bias=False), (3, 4), False),
    "weight norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), nn.Tanh(), nn.Linear(5, 3)),
        (4,),
        False,
    ),
    "tied": (tied, (4,), False),
    "two places": (two_places, (4,), False),
    "applied again": (lambda: Way(again, **linears()), (4,), False),
    "positions first": (lambda: Way(positions_first, **linears()), (5, 4), False),
    "positions folded into the batch": (lambda: Way(positions_folded, **linears()), (5, 4), False),
    "weights taken by hand": (lambda: Way(by_hand, **linears()), (4,), False),
    "own kind of linear": (lambda: nn.Sequential(OwnLinear(4, 4), nn.Linear(4, 3)), (4,), False),
    "hooked": (hooked, (4,), False),
    "frozen weight with trainable bias": (half_frozen, (4,), False),
    "nested, with a parameter on the root": (
        lambda: Way(
            lambda net, x: net.out(torch.tanh(net.nest["in"](x * net.scale))),
            scale=nn.Parameter(torch.ones(4)),
            nest=nn.ModuleDict({"in": nn.Sequential(nn.Sequential(nn.Linear(4, 4)), nn.LayerNorm(4))}),
            out=nn.Linear(4, 3),
        ),
        (4,),
        False,
    ),
}


def net_and_batch(name: str, batch: int = 4) -> tuple[nn.Module, torch.Tensor]:
    make, shape, _ = NETS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = make().double()
        for parameter in model.parameters():
            if parameter.requires_grad:
                # Away from zeros and ones, so that every weight matters.
                parameter.data += 0.1 * torch.randn_like(parameter)
        return model, torch.randn(batch, *shape).double()
