"""Normalisation, and weights that are computed from others."""

# People's code as it is written: what torch's own types say of it is not the point.
# mypy: disable-error-code="no-any-return, no-untyped-call, arg-type, operator, call-overload"

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune

from tests.idioms.table import body, floats, idiom

S = "norms"


@idiom(S, floats(6, 4, 4))
class EveryNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.batch = nn.BatchNorm2d(6)
        self.slow = nn.BatchNorm2d(6, momentum=None)
        self.plain = nn.BatchNorm2d(6, affine=False)
        self.group = nn.GroupNorm(3, 6)
        self.layer = nn.LayerNorm([6, 4, 4], bias=False)
        self.instance = nn.InstanceNorm2d(6, affine=True)
        self.local = nn.LocalResponseNorm(3)
        self.rms = nn.RMSNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.instance(self.group(self.plain(self.slow(self.batch(x)))))
        return self.rms(self.local(self.layer(x)))


@idiom(S, floats(6, 4, 4))
class BatchOwnStatistics(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(6, 6, 1)
        self.norm = nn.BatchNorm2d(6, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


@idiom(S, floats(6, 8))
class InstanceTracked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm1d(6, affine=True, track_running_stats=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


@idiom(S, floats(6))
class FrozenNorm(nn.Module):
    """A batch normalisation that stays in eval mode whatever train() says."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.norm = nn.BatchNorm1d(6)

    def train(self, mode: bool = True) -> FrozenNorm:
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.fc(x))


@idiom(S, floats(6))
class AlwaysBatchStatistics(nn.Module):
    """Statistics of the batch in eval mode too, by the flag of the function."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.register_buffer("running_mean", torch.zeros(6))
        self.register_buffer("running_var", torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        return F.batch_norm(y, None, None, training=True) + F.batch_norm(
            y, self.running_mean, self.running_var
        )


@idiom(S, floats(6))
class WeightNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = parametrizations.weight_norm(nn.Linear(6, 8))
        self.b = parametrizations.weight_norm(nn.Linear(8, 4), dim=None)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.tanh(self.a(x)))


@idiom(S, floats(6))
class OldWeightNorm(nn.Module):
    """As written before torch 2.0, with a hook that sets the weight."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.utils.weight_norm(nn.Linear(6, 8))
        self.b = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x).relu())


@idiom(S, floats(6))
class SpectralNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = parametrizations.spectral_norm(nn.Linear(6, 8))
        self.b = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x).relu())


@idiom(S, floats(6))
class OldSpectralNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.utils.spectral_norm(nn.Linear(6, 8))
        self.b = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x).relu())


@idiom(S, floats(6))
class Orthogonal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = parametrizations.orthogonal(nn.Linear(6, 6), orthogonal_map="cayley")

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x)


class _Symmetric(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.triu() + x.triu(1).transpose(-1, -2)


@idiom(S, floats(6))
class Parametrized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)
        parametrize.register_parametrization(self.a, "weight", _Symmetric())

    def forward(self, x: Tensor) -> Tensor:
        with parametrize.cached():
            return self.a(self.a(x))


class _StandardConv(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight
        mean = weight.mean((1, 2, 3), keepdim=True)
        std = weight.std((1, 2, 3), keepdim=True) + 1e-5
        return self._conv_forward(x, (weight - mean) / std, self.bias)


@idiom(S, floats(3, 6, 6))
class WeightStandardised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = _StandardConv(3, 4, 3)
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


@idiom(S, floats(3, 6, 6))
class ClippedWeights(nn.Module):
    """Writes into its own weight before it uses it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.conv.weight.clamp_(-0.1, 0.1)
        return self.conv(x)


@idiom(S, floats(6))
class MaskedWeights(nn.Module):
    """Pruning by hand: a mask over a weight."""

    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.register_buffer("mask", (torch.rand(6, 6) > 0.5).float())

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.fc.weight * self.mask, self.fc.bias)


@idiom(S, floats(6))
class Pruned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        prune.l1_unstructured(self.fc, "weight", amount=0.4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


@idiom(S, floats(6))
class LowRankUpdate(nn.Module):
    """LoRA: a weight plus a product of two small ones."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(6, 6)
        self.base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(2, 6))
        self.b = nn.Parameter(torch.randn(6, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + (x @ self.a.T) @ self.b.T * (16 / 2)


@body(S, 6, 4, 4)
def layer_norm_channels_first(y: Tensor) -> Tensor:
    mean = y.mean(1, keepdim=True)
    var = (y - mean).pow(2).mean(1, keepdim=True)
    return (y - mean) / torch.sqrt(var + 1e-6)


@body(S, 6, 4, 4)
def layer_norm_permuted(y: Tensor) -> Tensor:
    return F.layer_norm(y.permute(0, 2, 3, 1), (6,)).permute(0, 3, 1, 2)


@body(S, 6)
def rms_by_hand(y: Tensor) -> Tensor:
    dtype = y.dtype
    z = y.to(torch.float32)
    return (z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + 1e-6)).to(dtype)


@idiom(S, floats(6, 4, 4))
class SqueezeExcite(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(6, 2, 1), nn.Conv2d(2, 6, 1)
        self.scale = nn.Parameter(torch.full((6, 1, 1), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        gate = F.hardsigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)), inplace=True)))
        return x + self.scale * (x * gate)


class _FrozenStatistics(nn.Module):
    """A detector's batch normalisation: four buffers, none of them trained."""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, count: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.rand(count))
        self.register_buffer("bias", torch.rand(count))
        self.register_buffer("running_mean", torch.rand(count))
        self.register_buffer("running_var", torch.rand(count))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight.reshape(1, -1, 1, 1) * (self.running_var + 1e-5).rsqrt().reshape(
            1, -1, 1, 1
        )
        return x * scale + (self.bias - self.running_mean).reshape(1, -1, 1, 1) * scale


@idiom(S, floats(3, 5, 5))
class FrozenBatchNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), _FrozenStatistics(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


@idiom(S, floats(3, 5, 5))
class UnusedNorm(nn.Module):
    """A head of training alone, with statistics of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.aux = (
            nn.Conv2d(3, 4, 3),
            nn.Sequential(nn.Conv2d(4, 2, 1), nn.BatchNorm2d(2)),
        )

    def forward(self, x: Tensor) -> Any:
        y = self.conv(x)
        return (y, self.aux(y)) if self.training else y
