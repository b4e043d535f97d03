"""Modules that do something else in training, draw random numbers, or keep a state."""

# People's code as it is written: what torch's own types say of it is not the point.
# mypy: disable-error-code="no-any-return, no-untyped-call, arg-type, operator, call-overload"

from __future__ import annotations

import random
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.idioms.table import body, floats, idiom, randn, tokens

S = "modes"


def _drop_path(x: Tensor, share: float, training: bool) -> Tensor:
    if share == 0.0 or not training:
        return x
    keep = 1 - share
    mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
    return x * mask.div_(keep)


@idiom(S, floats(6))
class DropPath(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = x + _drop_path(self.a(x), 0.5, self.training)
        return x + _drop_path(self.b(x), 0.5, self.training)


@idiom(S, floats(6))
class StochasticDepthByRand(nn.Module):
    """As transformers writes it, with a rounded uniform number."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        if self.training:
            drawn = 0.6 + torch.rand((x.shape[0], 1), dtype=x.dtype, device=x.device)
            y = y.div(0.6) * drawn.floor_()
        return x + y


@idiom(S, floats(6))
class AuxiliaryHead(nn.Module):
    """A second head that only training returns."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head, self.aux = nn.Linear(6, 6), nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Any:
        y = self.stem(x).relu()
        if self.training:
            return self.head(y), self.aux(y)
        return self.head(y)


@idiom(S, floats(3, 8, 8))
class DetectionHead(nn.Module):
    """Boxes are decoded only when it is tested."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 12, 1)

    def forward(self, x: Tensor) -> Tensor:
        b, _, h, w = x.shape
        y = self.conv(x).view(b, 2, 6, h, w).permute(0, 1, 3, 4, 2).contiguous()
        if not self.training:
            ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
            grid = torch.stack((xs, ys), 2).view(1, 1, h, w, 2).float()
            y = y.sigmoid()
            y[..., 0:2] = (y[..., 0:2] * 2 - 0.5 + grid) * 8
            y[..., 2:4] = (y[..., 2:4] * 2) ** 2 * torch.tensor([4.0, 6.0])
            y = y.view(b, -1, 6)
        return y


@idiom(S, floats(6))
class NoiseInTraining(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            x = x + 0.1 * torch.randn_like(x)
        return self.fc(x)


@idiom(S, floats(8, 6))
class SpecAugment(nn.Module):
    """Masks random spans in training, drawn by numpy or Python."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.mask = nn.Parameter(torch.rand(6))

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc(x)
        if self.training:
            start = random.randint(0, 5)
            keep = torch.ones(x.shape[:2], dtype=torch.bool)
            keep[:, start : start + 3] = False
            x[~keep] = self.mask
        return x


@idiom(S, floats(6))
class LayerDrop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            drawn = torch.rand([])
            if not self.training or drawn > 0.3:
                x = x + layer(x).tanh()
        return x


@idiom(S, floats(6))
class LayerDropByPython(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            if self.training and random.uniform(0, 1) < 0.3:
                continue
            x = layer(x)
        return x


class _OwnDropout(nn.Module):
    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        return x * (torch.rand_like(x) > self.p) / (1 - self.p)


@idiom(S, floats(6))
class OwnDropout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.drop = nn.Linear(6, 6), _OwnDropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.fc(x))


@idiom(S, floats(4, 6))
class EveryDropout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.drops = nn.Sequential(
            nn.Dropout(0.3), nn.Dropout1d(0.2), nn.AlphaDropout(0.2), nn.FeatureAlphaDropout(0.1)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.drops(self.fc(x))
        return F.dropout(y, 0.4, self.training) + F.dropout(y, 0.2, training=False)


@idiom(S, floats(6))
class PlainFunctionalDropout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.head = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(F.relu(self.fc(x)), training=self.training)
        return F.log_softmax(self.head(x), dim=1)


@idiom(S, floats(6), draws=True)
class DropoutAlways(nn.Module):
    """Monte Carlo dropout: drawn in eval mode too."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.fc(x), 0.5, training=True)


@idiom(S, floats(6), draws=True)
class Sampled(nn.Module):
    """A variational encoder that samples whatever the mode."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.log = nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        mean, std = self.mean(x), torch.exp(0.5 * self.log(x))
        return mean + std * torch.randn_like(std)


@idiom(S, floats(6), draws=True)
class BernoulliAlways(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.bernoulli(torch.sigmoid(self.fc(x)))


@idiom(S, floats(6), draws=True)
class MultinomialAlways(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.multinomial(self.fc(x).softmax(-1), 2)


@idiom(S, floats(6), draws=True)
class GumbelAlways(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return F.gumbel_softmax(self.fc(x), tau=0.5, hard=True)


@idiom(S, floats(6), draws=True)
class PermutedAlways(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)[:, torch.randperm(6)]


@idiom(S, floats(6), draws=True)
class UniformInPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        return y + torch.empty_like(y).uniform_(-1, 1)


@idiom(S, floats(6), draws=True)
class PythonNumberAlways(nn.Module):
    """What it draws is a plain number by the time torch sees it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x) * random.random()


@idiom(S, floats(6))
class DrawnButUnused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        torch.rand_like(x)
        return self.fc(x)


@idiom(S, floats(6))
class RreluAndGaussianInEval(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return F.rrelu(self.fc(x), training=False)


@idiom(S, floats(6), name="nested_modes")
class _NestedModes(nn.Module):
    """A part that is frozen in eval mode inside a model that trains."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.BatchNorm1d(6))
        self.head = nn.Linear(6, 2)

    def train(self, mode: bool = True) -> _NestedModes:
        super().train(mode)
        self.body.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            y = self.body(x)
        return self.head(y)


@idiom(S, floats(6))
class MergedInEval(nn.Module):
    """RepVGG's and LoRA's way: train() and eval() split and merge weights."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
        self.merged = False

    def train(self, mode: bool = True) -> MergedInEval:
        super().train(mode)
        if mode == self.merged:
            sign = -1 if mode else 1
            with torch.no_grad():
                self.a.weight += sign * self.b.weight
            self.merged = not mode
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) if self.merged else self.a(x) + x @ self.b.weight.T


@idiom(S, floats(6))
class CountsCalls(nn.Module):
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.register_buffer("calls", torch.tensor(2))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.fc(x) * self.calls


@idiom(S, floats(6))
class CountsPlainly(nn.Module):
    """A counter that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.fc(x)


@idiom(S, floats(6))
class RunningMeanByHand(nn.Module):
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * y.detach().mean(0))
        return y - self.mean


@idiom(S, floats(6))
class RunningMeanAlways(nn.Module):
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.register_buffer("mean", torch.rand(6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        self.mean.lerp_(y.mean(0).detach(), 0.1)
        return y - self.mean


@idiom(S, floats(6))
class BufferReplaced(nn.Module):
    last: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.register_buffer("last", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x) + self.last
        self.last = y.mean(0).detach()
        return y


@idiom(S, lambda n: (randn(2, 1, 6, seed=n),), sizes=(2, 2))
class KeyValueCache(nn.Module):
    cache: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.register_buffer("cache", torch.zeros(2, 4, 6), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.cache[:, 1:2] = self.fc(x)
        return self.cache.sum(1) + x[:, 0]


@idiom(S, floats(6))
class HiddenBuffer(nn.Module):
    scale: Tensor
    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.register_buffer("scale", torch.linspace(1, 2, 6), persistent=False)
        self.register_buffer("shift", torch.linspace(1, 2, 6))
        self.register_buffer("nothing", None)
        self.plain = torch.linspace(-1, 1, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x) * self.scale + self.shift + self.plain


@idiom(S, tokens(9, 5))
class TiedWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 6)
        self.out = nn.Linear(6, 9, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.embed(ids).mean(1))


@idiom(S, floats(6))
class CalledTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)
        self.again = self.fc

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.again(self.norm(self.fc(x)).relu()))


@idiom(S, floats(6))
class SharedBuffer(nn.Module):
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.linspace(1, 2, 6))
        self.fc = nn.Linear(6, 6)
        self.fc.register_buffer("same", self.scale)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x) * self.scale + self.fc.same


@idiom(S, floats(6))
class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True))
        self.b = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(checkpoint(self.a, x, use_reentrant=False))


@idiom(S, floats(6))
class CheckpointedOnlyInTraining(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = checkpoint(self.a, x, use_reentrant=True) if self.training else self.a(x)
        return self.b(y.relu())


@idiom(S, floats(6))
class WithoutGradients(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.teacher, self.student = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            target = self.teacher(x)
            target[:, 0] = 0
        return self.student(x) * target + target.detach()


@idiom(S, floats(6))
class ModeOfAnotherName(nn.Module):
    """A flag of its own that eval() sets."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.deploy = nn.Linear(6, 6), False

    def eval(self) -> ModeOfAnotherName:
        self.deploy = True
        return super().eval()

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        return y.softmax(-1) if self.deploy else y


@idiom(S, floats(6))
class WithHooks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.head = nn.Linear(6, 6), nn.Linear(6, 2)
        self.fc.register_forward_hook(lambda _, __, y: y * 2)
        self.head.register_forward_pre_hook(lambda _, given: (given[0] + 1,))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.fc(x))


@body(S, 6)
def nothing_trained(y: Tensor) -> Tensor:
    with torch.inference_mode(False), torch.set_grad_enabled(False):
        z = y * 2
    return z + y
