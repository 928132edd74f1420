"""The scattering transform: fixed, of known size and length, and hardly changed by small shifts."""

import pytest
import torch
import torch.nn.functional as F

import pacbayes as pb
from pacbayes.data.strokes import read_strokes
from pacbayes.errors import InvalidInput
from pacbayes.networks.scattering import LENGTH, Scattering, _cosines, _turned, _waves


def smooth_images(n: int = 6) -> torch.Tensor:
    x = torch.randn(n, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    return F.avg_pool2d(F.pad(x, (4, 4, 4, 4), mode="reflect"), 9, stride=1)


def test_no_weights_and_one_part_of_given_length_for_each_order():
    body = Scattering(2, 4)
    assert not list(body.parameters())
    out = body(smooth_images())
    # 8 x 8 places; 1, 2 * 4 and 4 * 4 paths of order 0, 1 and 2.
    assert out.shape == (6, 64 * (1 + 8 + 16))
    for part, pieces in zip(out.split([64, 512, 1024], 1), (1, 2, 1), strict=True):
        assert torch.allclose(part.norm(dim=1), torch.full((6,), LENGTH), rtol=1e-4)
        # Centred: the constants that its pieces, one for each scale, begin with have no sum.
        assert torch.allclose(part.view(6, pieces, -1)[:, :, 0].sum(1), torch.zeros(6), atol=1e-4)


@pytest.mark.parametrize("basis", [_cosines, _waves])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8])
def test_bases_are_orthonormal(basis, n):
    rows = basis(n, torch.device("cpu"))
    torch.testing.assert_close(rows @ rows.T, torch.eye(n, dtype=torch.float64))
    torch.testing.assert_close(rows[0], torch.full((n,), n**-0.5, dtype=torch.float64))


def test_a_turn_keeps_lengths_and_sees_a_turned_image_in_the_first_direction_alone():
    x = torch.randn(3, 2, 8, 8, 4, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(_turned(x).flatten(1).norm(dim=1), x.flatten(1).norm(dim=1))
    # Turning an image moves both directions on by as much; what is constant in the first stays as it was.
    torch.testing.assert_close(_turned(x.roll((3, 3), (2, 3)))[:, :, 0], _turned(x)[:, :, 0])
    assert not torch.allclose(_turned(x.roll(3, 2))[:, :, 0], _turned(x)[:, :, 0], atol=0.1)


def test_wavelets_do_not_see_a_constant_and_see_their_own_direction():
    body = Scattering(1, 4)
    waves = body.wavelets_0
    assert torch.allclose(waves.sum((1, 2, 3)), torch.zeros(8), atol=1e-6)
    x = torch.sin(torch.arange(32) * 3 * torch.pi / 4).expand(1, 1, 32, 32)
    seen = body._modulus(x, 0, 0)[0, :, 8:-8, 8:-8].mean((1, 2))
    assert int(seen.argmax()) == 0
    assert int(body._modulus(x.transpose(2, 3), 0, 0)[0, :, 8:-8, 8:-8].mean((1, 2)).argmax()) == 2


def test_a_small_shift_changes_little_and_less_with_more_scales():
    x = torch.as_tensor(read_strokes((), (60, 1, 28, 28), test=False)[0]) / 255
    moved = {}
    for scales in (1, 3):
        body = Scattering(scales, 4)
        moved[scales] = float((body(x.roll(1, -1)) - body(x)).norm() / body(x).norm())
    pixels = float((x.roll(1, -1) - x).norm() / x.norm())
    assert moved[3] < 0.6 * moved[1] and moved[3] < 0.5 * pixels


def test_small_images_are_mirrored_as_often_as_needed():
    assert Scattering(3, 4)(torch.rand(2, 1, 5, 7)).isfinite().all()


def test_the_network_is_linear_in_what_the_data_have_not_shaped():
    model = pb.build("scattering", (1, 16, 16), 10)
    assert {name for name, _ in model.named_parameters()} == {"1.weight", "1.bias"}
    assert not any(p.any() for p in model.parameters())
    net = pb.stochastic(model, 0.01)
    assert net.hidden_size == 0
    data = (torch.rand(40, 1, 16, 16), torch.arange(40) % 10)
    certificate = pb.certify(net, data, sampling="exact", bound="catoni")
    assert certificate.mc_delta == 0 and certificate.empirical_risk == pytest.approx(0.9, abs=0.05)


def test_contrast_is_a_shift():
    """Twice the contrast adds log 2 to each modulus that is not tiny; centred, nothing of it is left."""
    x, body = torch.randn(2, 1, 16, 16, generator=torch.Generator().manual_seed(0)), Scattering(2, 4)
    torch.testing.assert_close(body(1000 * x), body(2000 * x), rtol=0, atol=5e-3)
    # Where moduli are tiny there is nothing to see: next to none of it is left, and what is is not the same.
    assert not torch.allclose(body(1e-3 * x)[:, 16:], body(1000 * x)[:, 16:], atol=0.1)


def test_the_network_for_photographs_starts_from_zero_and_sees_mirror_images_alike():
    model = pb.build("scattering-photo", (3, 16, 16), 5).eval()
    x = torch.randn(3, 3, 16, 16)
    assert not model(x).any()
    torch.testing.assert_close(model[0](x), model[0](x.flip(-1)))


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 2, 2), (1, 40, 1)])
def test_images_that_are_too_small_are_refused(shape):
    with pytest.raises(InvalidInput, match="too small"):
        pb.build("scattering", shape, 2)
