"""Weights drawn in one GPU kernel: the same law as everywhere else."""

import math

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_the_weights_are_normal_around_their_means():
    from pacbayes.networks.gpu_draws import GpuNormals

    generator = torch.Generator("cuda").manual_seed(0)
    mean, scale = torch.randn(3, 5, 7, device="cuda"), torch.rand(3, 5, 7, device="cuda") + 0.5
    normals = GpuNormals(generator, mean)
    noise = (torch.cat([normals.around(mean, scale, 20_000) for _ in range(10)]) - mean) / scale
    noise = noise.flatten(1).double()
    n = noise.numel()
    # Six standard errors each: a right kernel fails once in a hundred million.
    assert abs(noise.mean()) < 6 / math.sqrt(n)
    assert abs(noise.square().mean() - 1) < 6 * math.sqrt(2 / n)
    assert abs(noise.pow(4).mean() - 3) < 6 * math.sqrt(96 / n)
    for limit in (1.0, 2.0, 3.0, 4.0):
        expected = math.erfc(limit / math.sqrt(2))
        share = (noise.abs() > limit).double().mean()
        assert abs(share - expected) < 6 * math.sqrt(expected / n)
    # Neither weights of one draw nor draws of one weight, of one call or two, depend on each other.
    across = noise.T @ noise / len(noise)
    assert (across - torch.eye(len(across), device="cuda")).abs().max() < 7 * math.sqrt(2 / len(noise))
    for shift in (1, 2, 3, 4, 19_999, 20_000, 20_001):
        assert abs((noise[shift:] * noise[:-shift]).mean()) < 6 / math.sqrt(n)


def test_the_same_seed_gives_the_same_weights_and_another_call_others():
    from pacbayes.networks.gpu_draws import GpuNormals

    mean, scale = torch.zeros(5000, device="cuda"), torch.ones(5000, device="cuda")

    def draw() -> list[torch.Tensor]:
        normals = GpuNormals(torch.Generator("cuda").manual_seed(7), mean)
        return [normals.around(mean, scale, 3) for _ in range(2)]

    (a, b), (c, d) = draw(), draw()
    assert torch.equal(a, c) and torch.equal(b, d) and not torch.equal(a, b)
    assert not torch.equal(a[0], a[1])
