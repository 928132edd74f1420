"""The binary Kullback-Leibler divergence kl(q‖p) and its inverse (Proposition 1 and SM4).

Everything is written in the coordinate ``w = log((1 - q)/(1 - p)) >= 0``, because there

    p - q   = (1 - q)(1 - e^-w)                   no cancellation for p near q or near 1
    kl      = q h((p - q)/q) + (1 - q) h(-(p - q)/(1 - q)),    h(x) = x - log(1 + x) >= 0
    dkl/dw  = (p - q)/p

and kl is convex in w: Newton's method started above the root stays above it, and converges in a few steps.
"""

from __future__ import annotations

from typing import overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pacbayes.errors import InvalidInput

NEWTON_STEPS = {True: 5, False: 3}  # for float64's accuracy, and for float32's

# The divergence is computed to a few units of 1e-16; the inverse is solved for a level this much higher, relatively,
# and rounded up, so that it is never below the true one. kl_inverse is concave in c: it moves by no more than this.
_LEVEL_MARGIN = 1e-13
_ROUND_UP = 1 + 2**-50

# Gradients are evaluated no closer than this to the ends where the true ones are infinite (q = 0, c = 0).
_GRADIENT_FLOOR = 1e-30
# Its reciprocal is still in the range where log1p is right in every build of PyTorch: some give inf beyond 1e307.
_TINY = 1e-300


def x_minus_log1p(x: Tensor) -> Tensor:
    """``h(x) = x - log(1 + x)``, accurate to a few ulps in float64 also near 0."""
    r = x / (2 + x)
    r2 = r * r
    # log(1 + x) = 2 atanh(r) and x - 2r = x r, so the leading terms cancel in exact arithmetic.
    series = torch.zeros_like(x)
    for k in range(21, 1, -2):
        series = r2 * (series + 1 / k)
    return torch.where(x.abs() < 0.3, r * (x - 2 * series), x - torch.log1p(x))


def _divergence(q: Tensor, d: Tensor, w: Tensor, exact: bool) -> Tensor:
    """kl(q‖q + d), with w for the pair; q in [0, 1)."""
    x = d / q.clamp_min(_TINY)
    if not exact:
        # Where p is near q this cancels; in float64 what is left is enough for a float32 result.
        return (1 - q) * w - q * torch.log1p(x)
    # For large x, q h(x) = d - q log(1 + x): right for q = 0 too, and no overflow of d/q.
    below = torch.where(x < 1, q * x_minus_log1p(x.clamp_max(1)), d - q * torch.log1p(x))
    y = d / (1 - q)
    above = torch.where(y < 0.5, x_minus_log1p(-y.clamp_max(0.5)), w - y)
    return below + (1 - q) * above


def _solve(q: Tensor, c: Tensor, exact: bool) -> tuple[Tensor, Tensor]:
    """Float64 ``(d, w)`` with kl(q‖q + d) = c, from above; q in [0, 1)."""
    one_minus_q = 1 - q
    # Upper bounds on the root. Near q: kl >= d²/(2v), v the largest x(1 - x) on [q, p], which is at most p, 1/4,
    # and q(1 - q) where q >= 1/2. Far from it: kl >= (1 - q) w + q log q.
    spread = torch.where(q < 0.5, 0.25, q * one_minus_q)
    near = torch.minimum(c + torch.sqrt(c) * torch.sqrt(c + 2 * q), torch.sqrt(2 * spread * c))
    w_near = -torch.log1p(-torch.clamp_max(near / one_minus_q, 1 - 1e-16))
    w_far = (c - torch.xlogy(q, q)) / one_minus_q
    w = start = torch.minimum(torch.where(near < one_minus_q, w_near, w_far), w_far)
    for _ in range(NEWTON_STEPS[exact]):
        d = -one_minus_q * torch.expm1(-w)
        step = (_divergence(q, d, w, exact) - c) * ((q + d) / d.clamp_min(_TINY))
        w = torch.minimum(torch.clamp_min(w - step, 0), start)
    return -one_minus_q * torch.expm1(-w), w


def _inverse_and_gradients(q: Tensor, c: Tensor, exact: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Float64 kl_inverse rounded up, and its derivatives in q and c, all finite."""
    at_one = q >= 1
    inner = torch.where(at_one, 0.5, _not_denormal(q))
    # At 1e4 the inverse is 1 to the last digit for every q.
    level = _not_denormal(c).clamp_max(1e4) * (1 + _LEVEL_MARGIN)
    d, w = _solve(inner, level, exact)
    p = torch.clamp_max((inner + d) * _ROUND_UP, 1)
    p = torch.where(at_one, 1.0, torch.where(c == 0, q, p))

    # SM4, with p(1 - p)/(p - q) for the reciprocal of (1-q)/(1-p) - q/p.
    d = torch.maximum(d, (1 - inner) * _GRADIENT_FLOOR)
    base = inner.clamp_min(_GRADIENT_FLOOR)
    by_c = torch.exp(-w) * (1 - inner) * (inner + d) / d
    by_q = by_c * (torch.maximum(w, d / (1 - inner)) + torch.log1p(d / base))
    zero = torch.zeros_like(by_c)
    return p, torch.where(at_one, zero, by_q), torch.where(at_one, zero, by_c)


def _not_denormal(v: Tensor) -> Tensor:
    """Positive values below 1e-300 raised to it, where arithmetic keeps all its digits: upwards, so always safe."""
    return torch.where(v > 0, v.clamp_min(1e-300), v)


@overload
def kl_inverse(q: float, c: float) -> float: ...
@overload
def kl_inverse(q: Tensor, c: Tensor | float) -> Tensor: ...
@overload
def kl_inverse(q: npt.NDArray[np.floating], c: npt.ArrayLike) -> npt.NDArray[np.float64]: ...
def kl_inverse(q, c):  # type: ignore[no-untyped-def]
    """``sup {p : kl(q‖p) <= c}``, for floats, arrays and tensors (broadcast), the kl⁻¹ of Proposition 1.

    The float64 value is never below the true one and within 1e-12 of it, relatively. For tensors it is
    differentiable with the closed-form gradients of SM4; where one is infinite (in q at q = 0, in c at c = 0) a large
    finite one is given. Float32 tensors are solved in float64 and rounded.

    >>> kl_inverse(0.0, 0.1)  # 1 - exp(-0.1), rounded up
    0.09516258196404...
    """
    # Tensors are not looked at: a device would have to be waited for.
    for given, most in ((q, 1.0), (c, np.inf)):
        if not isinstance(given, Tensor) and not np.all((np.asarray(given) >= 0) & (np.asarray(given) <= most)):
            raise InvalidInput("kl_inverse needs q in [0, 1] and c >= 0")
    if not isinstance(q, Tensor) and not isinstance(c, Tensor):
        p = _inverse_and_gradients(*_as_float64(q, c))[0].numpy()
        return float(p) if p.ndim == 0 else p
    q, c = _as_tensors(q, c)
    with torch.no_grad():
        wide = torch.broadcast_tensors(q.double(), c.double())
        p, by_q, by_c = (t.to(q.dtype) for t in _inverse_and_gradients(*wide, exact=q.dtype == torch.float64))
    # The value is p; the derivatives are by_q and by_c, whatever comes from upstream.
    return p + by_q * (q - q.detach()) + by_c * (c - c.detach())


@overload
def kl(q: float, p: float) -> float: ...
@overload
def kl(q: Tensor, p: Tensor | float) -> Tensor: ...
@overload
def kl(q: npt.NDArray[np.floating], p: npt.ArrayLike) -> npt.NDArray[np.float64]: ...
def kl(q, p):  # type: ignore[no-untyped-def]
    """``kl(q‖p) = q log(q/p) + (1 - q) log((1 - q)/(1 - p))`` for floats, arrays and tensors; 0 log 0 = 0.

    >>> kl(0.5, 0.5)
    0.0
    """
    for given in (q, p):
        if not isinstance(given, Tensor) and not np.all((np.asarray(given) >= 0) & (np.asarray(given) <= 1)):
            raise InvalidInput("kl needs q and p in [0, 1]")
    if not isinstance(q, Tensor) and not isinstance(p, Tensor):
        value = _kl(*_as_float64(q, p)).numpy()
        return float(value) if value.ndim == 0 else value
    return _kl(*_as_tensors(q, p))


def _kl(q: Tensor, p: Tensor) -> Tensor:
    d = p - q
    terms = []
    # Each side is base * h(gap/base) where the gap is small against the base: no cancellation for p near q.
    for base, other, gap in ((q, p, d), (1 - q, 1 - p, -d)):
        x = gap / base.clamp_min(torch.finfo(base.dtype).tiny)
        close = base * x_minus_log1p(x.clamp(-0.5, 0.5))
        away = gap + torch.xlogy(base, base) - torch.xlogy(base, other)
        terms.append(torch.where(x.abs() < 0.5, close, away))
    return terms[0] + terms[1]


def _as_float64(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Tensor, Tensor]:
    a, b = np.broadcast_arrays(np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64))
    return torch.from_numpy(a.copy()), torch.from_numpy(b.copy())


def _as_tensors(a: Tensor | float, b: Tensor | float) -> tuple[Tensor, Tensor]:
    like = a if isinstance(a, Tensor) else b
    assert isinstance(like, Tensor)
    dtype = like.dtype if like.is_floating_point() else torch.float64
    a, b = (v if isinstance(v, Tensor) else torch.tensor(v, dtype=dtype, device=like.device) for v in (a, b))
    dtype = torch.promote_types(a.dtype, b.dtype)
    dtype = dtype if dtype.is_floating_point else torch.float64
    return a.to(dtype), b.to(dtype)
