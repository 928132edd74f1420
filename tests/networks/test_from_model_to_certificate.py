"""Networks of today, from the model to a certificate: a ResNet-18 and a transformer encoder."""

from __future__ import annotations

import pytest
import torch
from any_nets import ResNet18, Tokens, encoder, group_norm
from torch import nn

import pacbayes as pb


def images(m: int = 24, size: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(m, 3, size, size, generator=generator), torch.arange(m) % 3


def seeded_model(make) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make()


def step_and_certificate(model: nn.Module, data, **options: object) -> pb.Certificate:
    net = pb.stochastic(model, 1e-4)
    before = net.mean.detach().clone()
    pb.fit(net, data, epochs=1, batch_size=12, **{"keep": "last", **options})
    assert all(part.any() for part in net.parts(net.mean - before).values())
    certificate = pb.certify(net, data, draws=30, seed=0)
    assert certificate.check() == []
    assert certificate.kl > 0 and certificate.m == len(data[1]) and certificate.visits == 30
    assert 0 <= pb.holdout_bound(net, data, seed=0) <= 1
    return certificate


def test_a_full_resnet_18_trains_a_step_and_is_certified():
    net_size = sum(p.numel() for p in ResNet18(group_norm).parameters())
    assert net_size == 11_170_371  # 11,689,512 with a stem of 7x7 and a thousand classes
    data = images(8, 4)
    net = pb.stochastic(seeded_model(lambda: ResNet18(group_norm)), 1e-4)
    assert len(net.mean) == net_size
    pb.fit(net, data, epochs=1, batch_size=8)
    assert net.drawn_by_rules
    assert pb.certify(net, data, draws=4, seed=0).check() == []


@pytest.mark.parametrize("sampling", ["shared", "mixed", "independent"])
def test_a_narrow_resnet_18(sampling):
    step_and_certificate(seeded_model(lambda: ResNet18(group_norm, 4)), images(), sampling=sampling)


@pytest.mark.parametrize("method", ["G", "S", "CE"])
@pytest.mark.parametrize("sampling", ["shared", "mixed", "independent"])
def test_a_transformer_encoder(method, sampling):
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(9, (24, 5), generator=generator)
    model = seeded_model(lambda: Tokens(encoder))
    options = {} if method != "CE" else {"keep": "last", "dropout": 0.1}
    net = pb.stochastic(model, 1e-4)
    data = (words, torch.arange(24) % 3)
    pb.fit(net, data, epochs=1, batch_size=12, method=method, sampling=sampling, **options)
    for mode in ("independent", "shared"):
        certificate = pb.certify(net, data, draws=30, seed=0, sampling=mode)
        assert certificate.check() == []


def test_torchvisions_resnet_18():
    models = pytest.importorskip("torchvision.models")
    model = seeded_model(lambda: models.resnet18(num_classes=3, norm_layer=group_norm))
    net = pb.stochastic(model, 1e-4)
    pb.fit(net, images(8, 32), epochs=1, batch_size=8)
    assert pb.certify(net, images(8, 32), draws=8, seed=0).check() == []
