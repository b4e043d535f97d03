"""More of what people's code does around its layers."""

# People's code as it is written: what torch's own types say of it is not the point.
# mypy: disable-error-code="no-any-return, no-untyped-call, arg-type, operator, call-overload"

from __future__ import annotations

import copy
import functools
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from tests.idioms.table import body, floats, idiom, randint, randn, tokens

S = "more calls"


@idiom(S, floats(6))
class EarlyExitInEval(nn.Module):
    """A deep supervision that only training has, and a shorter path in eval."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))
        self.heads = nn.ModuleList(nn.Linear(6, 2) for _ in range(4))

    def forward(self, x: Tensor) -> Any:
        outs = []
        for layer, head in zip(self.layers, self.heads, strict=True):
            x = torch.tanh(layer(x))
            outs.append(head(x))
        return outs if self.training else outs[-1].softmax(-1)


@idiom(S, floats(6))
class ModeOfAnInnerModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        if self.inner[1].training:
            y = y * 2
        return self.head(y)


@idiom(S, floats(6))
class DropoutAsAttribute(nn.Module):
    """A share that is a number, applied by function with the module's mode."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.p = nn.Linear(6, 6), 0.4

    def forward(self, x: Tensor) -> Tensor:
        y = F.dropout(self.fc(x), p=self.p, training=self.training)
        return F.alpha_dropout(y, p=self.p, training=self.training)


@idiom(S, floats(5, 8))
class AttentionDropout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).transpose(1, 3).unbind(2)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.3 if self.training else 0.0)
        return y.transpose(1, 2).flatten(2)


@idiom(S, floats(6))
class NoisyLinear(nn.Module):
    """Noise in the weights, resampled into buffers in training."""

    noise: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.sigma = nn.Parameter(torch.randn(6, 6)), nn.Parameter(torch.rand(6, 6))
        self.register_buffer("noise", torch.randn(6, 6))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.noise.normal_()
            return F.linear(x, self.mean + self.sigma * self.noise)
        return F.linear(x, self.mean)


@idiom(S, floats(6))
class VariationalOutInTraining(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean, self.log, self.out = nn.Linear(6, 4), nn.Linear(6, 4), nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Any:
        mean, log = self.mean(x), self.log(x)
        z = mean + torch.randn_like(mean) * (0.5 * log).exp() if self.training else mean
        return self.out(z), mean, log


@idiom(S, lambda n: (randn(n, 3, 8, 8),))
class RandomErasing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and torch.rand(1).item() < 0.5:
            x[:, :, 2:5, 2:5] = 0
        return self.conv(x)


@idiom(S, floats(6))
class VectorQuantised(nn.Module):
    """Nearest code, with a straight-through gradient and moving averages in training."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.Parameter(torch.randn(5, 6))
        self.register_buffer("count", torch.ones(5))

    def forward(self, x: Tensor) -> Any:
        far = x.pow(2).sum(1, keepdim=True) - 2 * x @ self.codes.T + self.codes.pow(2).sum(1)
        best = far.argmin(1)
        found = self.codes[best]
        if self.training:
            self.count.data.mul_(0.9).add_(F.one_hot(best, 5).float().sum(0), alpha=0.1)
        return x + (found - x).detach(), best


@idiom(S, floats(6))
class MomentumTeacher(nn.Module):
    """A copy that follows the student in training."""

    def __init__(self) -> None:
        super().__init__()
        self.student = nn.Linear(6, 6)
        self.teacher = copy.deepcopy(self.student)
        self.teacher.requires_grad_(False)

    def forward(self, x: Tensor) -> Any:
        if self.training:
            with torch.no_grad():
                for own, other in zip(
                    self.teacher.parameters(), self.student.parameters(), strict=True
                ):
                    own.mul_(0.9).add_(other, alpha=0.1)
        return self.student(x), self.teacher(x)


@idiom(S, floats(6))
class LazyAndCached(nn.Module):
    """A table that is made at the first call and kept."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.table: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None or self.table.shape[0] != x.shape[1]:
            self.table = torch.arange(x.shape[1]).float().sin()
        return self.fc(x) + self.table


@functools.lru_cache
def _positions(length: int) -> Tensor:
    return torch.linspace(0, 1, length)


@body(S, 6)
def cached_function(y: Tensor) -> Tensor:
    return y + _positions(6)


@body(S, 6)
def sizes_as_tensor(y: Tensor) -> Tensor:
    size = torch.tensor(y.shape)
    return y * size[1] / size.float().mean() + torch.tensor([y.shape[0], 2]).sum()


@body(S, 6)
def shape_mean(y: Tensor) -> Tensor:
    return y.sum(0, keepdim=True).expand_as(y) / len(y) + y.numel() / y.size(-1)


@body(S, 6)
def at_least_two_rows(y: Tensor) -> Tensor:
    n = max(y.shape[0], 2)
    return F.pad(y, (0, 0, 0, n))[: y.shape[0] + 1]


@body(S, 6)
def pairs_of_the_batch(y: Tensor) -> Tensor:
    n = y.shape[0]
    a = y.unsqueeze(0).repeat(n, 1, 1)
    b = y.repeat_interleave(n, 0).view(n, n, 6)
    return (a - b).norm(dim=-1).triu(1).sum(1)


@body(S, 6)
def first_half_of_the_batch(y: Tensor) -> Tensor:
    half = y.shape[0] // 2
    return torch.cat([y[half:], y[:half] * 2])


@body(S, 6)
def every_second_row(y: Tensor) -> Tensor:
    return y[::2]


@body(S, 6)
def batch_flattened(y: Tensor) -> Tensor:
    return y.reshape(-1).cumsum(0).view(y.shape)


@body(S, 6)
def batch_shuffled_by_sort(y: Tensor) -> Tensor:
    return y[y[:, 0].argsort()]


@body(S, 6)
def softmax_over_the_batch(y: Tensor) -> Tensor:
    return y.softmax(0)


@body(S, 6)
def best_row(y: Tensor) -> Tensor:
    return y[y.sum(1).argmax()]


@body(S, 6)
def standardised_by_batch(y: Tensor) -> Tensor:
    return (y - y.mean(0)) / (y.std(0) + 1e-5)


@idiom(S, lambda n: (randn(1, 4, seed=n),), sizes=(1, 1))
class BatchOfOne(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x.squeeze(0)).unsqueeze(0)


@idiom(S, floats(4), sizes=(1, 4))
class BatchOfOneThenMore(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x.squeeze()).view(x.shape[0], -1) * x.shape[0]


@idiom(S, floats(4), sizes=(1, 4))
class OnlyBatchOfOne(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        return y * 2 if x.shape[0] == 1 else y


@idiom(S, lambda n: (randn(n, 3, 4),))
class TimeFirst(nn.Module):
    """The batch stands second."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        out, h = self.rnn(x)
        out[0] = 0
        return out + h


@idiom(S, lambda n: (randn(n, 6), randint(3, n, seed=4)))
class ChosenExpert(nn.Module):
    """Every expert computes, a mask keeps one."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    def forward(self, x: Tensor, which: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        for place, expert in enumerate(self.experts):
            keep = which == place
            out += expert(x) * keep[:, None]
        return out


@idiom(S, lambda n: (randn(n, 6), randint(3, n, seed=4)))
class RoutedExpert(nn.Module):
    """Only the rows of an expert reach it: how many depends on the values."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    def forward(self, x: Tensor, which: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        for place, expert in enumerate(self.experts):
            keep = which == place
            out[keep] = expert(x[keep])
        return out


@idiom(S, lambda n: (randn(n, 4, 6), randint(4, n, seed=5)))
class LastValid(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor, length: Tensor) -> Tensor:
        y = self.fc(x)
        return (
            y[torch.arange(y.size(0)), length]
            + y.gather(1, length.view(-1, 1, 1).expand(-1, 1, 6))[:, 0]
        )


@idiom(S, tokens(9, 5))
class ShiftedTokens(nn.Module):
    """BART's: one place to the right, a start token written in front."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 4)

    def forward(self, ids: Tensor) -> Tensor:
        shifted = ids.new_zeros(ids.shape)
        shifted[:, 1:] = ids[:, :-1].clone()
        shifted[:, 0] = 2
        shifted.masked_fill_(shifted == 5, 1)
        return self.embed(shifted)


@idiom(S, tokens(9, 5))
class PositionsFromPadding(nn.Module):
    """RoBERTa's: places are counted past the padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.places = (
            nn.Embedding(9, 4, padding_idx=1),
            nn.Embedding(8, 4, padding_idx=1),
        )

    def forward(self, ids: Tensor) -> Tensor:
        keep = ids.ne(1).int()
        places = (torch.cumsum(keep, dim=1).type_as(keep) + 0) * keep
        return self.embed(ids) + self.places(places.long() + 1)


@idiom(S, floats(6, 8))
class RelativeShift(nn.Module):
    """Transformer-XL's and XLNet's shift by a padded reshape."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        b, t, k = y.shape
        z = torch.cat([y.new_zeros(b, t, 1), y], -1).view(b, k + 1, t)
        return z[:, 1:].view_as(y)


@idiom(S, floats(2, 8, 8))
class PatchesMerged(nn.Module):
    """Swin's: four neighbours become channels."""

    def __init__(self) -> None:
        super().__init__()
        self.reduce, self.norm = nn.Linear(8, 4, bias=False), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        y = x.permute(0, 2, 3, 1)
        y = F.pad(y, (0, 0, 0, y.shape[2] % 2, 0, y.shape[1] % 2))
        parts = [y[:, a::2, b::2, :] for b in (0, 1) for a in (0, 1)]
        return self.reduce(self.norm(torch.cat(parts, -1)))


@idiom(S, floats(2, 8, 8))
class Anchors(nn.Module):
    """Boxes from anchors, clipped and sorted by their scores."""

    def __init__(self) -> None:
        super().__init__()
        self.cls, self.box = nn.Conv2d(2, 1, 1), nn.Conv2d(2, 4, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        scores = self.cls(x).flatten(1)
        deltas = self.box(x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4)
        ys, xs = torch.meshgrid(torch.arange(8) * 4.0, torch.arange(8) * 4.0, indexing="ij")
        centre = torch.stack([xs, ys], -1).view(1, -1, 2) + 2
        boxes = torch.empty_like(deltas)
        boxes[..., :2] = centre - deltas[..., 2:].exp().clamp(max=8)
        boxes[..., 2:] = centre + deltas[..., 2:].exp().clamp(max=8)
        boxes[..., 0::2].clamp_(min=0, max=32)
        boxes[..., 1::2].clamp_(0, 32)
        best, order = scores.sigmoid().topk(10, dim=1)
        return {"boxes": boxes.gather(1, order[..., None].expand(-1, -1, 4)), "scores": best}


@idiom(S, floats(3, 8, 8))
class UpAndConcatenated(nn.Module):
    """A U-net's cropping to the smaller size."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, stride=2)
        self.up, self.out = nn.ConvTranspose2d(4, 4, 2, 2), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = F.relu(self.a(x), inplace=True)
        y = self.up(F.relu_(self.b(skip)))
        dy, dx = skip.size(2) - y.size(2), skip.size(3) - y.size(3)
        y = F.pad(y, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.out(torch.cat([skip, y], 1))


@idiom(S, floats(4, 6))
class AveragedByMask(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        keep = (x.abs().sum(-1) > 4).type(x.dtype)
        weights = keep / torch.maximum(keep.sum(1, True), torch.ones(1))
        return torch.bmm(weights.unsqueeze(1), self.fc(x)).squeeze(1)


@body(S, 6)
def constants_by_value(y: Tensor) -> Tensor:
    a = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])
    b = torch.as_tensor([0.5] * 6)
    c = torch.from_numpy(__import__("numpy").arange(6.0, dtype="float32"))
    return (y - a) / b + c + torch.finfo(torch.float32).eps + float("1e-3")


@body(S, 6)
def infinities(y: Tensor) -> Tensor:
    a = y.masked_fill(y > 0, float("inf"))
    b = torch.where(y < -1, torch.tensor(float("nan")), y)
    return torch.stack(
        [a, -a, b, torch.nan_to_num(a, posinf=9.0), b.nan_to_num(2.0), a.clamp(max=5)]
    )


@body(S, 6)
def integer_division(y: Tensor) -> Tensor:
    n = (y * 10).long()
    parts = [
        n // 3,
        n % 4,
        torch.div(n, 3, rounding_mode="trunc"),
        n.remainder(5),
        torch.fmod(n, 5),
        -n // 7,
        n >> 1,
        n & 3,
    ]
    return torch.stack(parts, 1)


@body(S, 6)
def rounding(y: Tensor) -> Tensor:
    z = y * 3
    return torch.stack(
        [
            z.floor(),
            z.ceil(),
            z.round(),
            z.trunc(),
            z.frac(),
            z.sign(),
            z.round(decimals=1),
            z.fmod(1.0),
        ]
    )


@body(S, 6)
def powers(y: Tensor) -> Tensor:
    z = y.abs() + 0.1
    return torch.stack(
        [
            z**2,
            z**0.5,
            2**z,
            z**-1,
            z.pow(y),
            z.log2(),
            z.log1p(),
            z.expm1(),
            z.rsqrt(),
            z.reciprocal(),
            z.exp2(),
        ]
    )


@body(S, 6)
def mixed_dtypes(y: Tensor) -> Tensor:
    n = torch.arange(6)
    flags = y > 0
    return y * n + flags + n * flags + n / 2 + (y.double() * n).sum(1, keepdim=True).float()


@body(S, 6)
def half_and_back(y: Tensor) -> Tensor:
    return (y.half().float() * 0.0 + y).to(torch.int32).to(torch.float32) + y.bool()


@body(S, 4, 6)
def statistics(y: Tensor) -> Any:
    values, places = y.max(1)
    low = y.kthvalue(2, 1).values
    return values, places, low, y.aminmax(dim=1).min, torch.var_mean(y, 1)[0], y.mode(1).values * 0


@body(S, 4, 6)
def quantiles(y: Tensor) -> Tensor:
    return torch.quantile(y, torch.tensor([0.1, 0.5]), dim=1).transpose(0, 1)


@body(S, 4, 6)
def triangles(y: Tensor) -> Tensor:
    rows, columns = torch.tril_indices(4, 4, -1)
    pairs = y @ y.mT
    return pairs[:, rows, columns]


@body(S, 4, 6)
def combined_views(y: Tensor) -> Tensor:
    a = torch.hstack([y[:, 0], y[:, 1]]) + torch.cat(y.split(2, 1), -1)[:, 0]
    b = torch.dstack([y[:, 0], y[:, 1]]).flatten(1)
    return (
        a
        + b
        + torch.column_stack([y[:, 2], y[:, 3]])
        + torch.rot90(y, 2, (1, 2)).flatten(1)[:, :12]
    )


@body(S, 4, 6)
def einsum_kinds(y: Tensor) -> Tensor:
    a = torch.einsum("bij,bkj->bik", y, y)
    b = torch.einsum("bij->bji", y).sum(1)
    c = torch.einsum("bii->bi", a)
    d = torch.einsum("...ij,j->...i", y, torch.ones(6))
    return a.sum(2) + b + c + d


@body(S, 4, 6)
def linear_algebra(y: Tensor) -> Tensor:
    a = y @ y.mT + torch.eye(4) * 3
    return (
        torch.linalg.inv(a)
        + torch.linalg.cholesky(a)
        + torch.linalg.det(a)[:, None, None]
        + torch.matrix_exp(a * 0.1)
    )


@body(S, 4, 8)
def windows_of_a_signal(y: Tensor) -> Tensor:
    z = y.unfold(-1, 4, 2) * torch.hamming_window(4)
    return z.mean(-1)


@idiom(S, floats(6))
class SkipInit(nn.Module):
    """Gates that start at nothing, and are left out where they are."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.gate = nn.Linear(6, 6), nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.gate * self.fc(x).relu()


@idiom(S, floats(6))
class TiedTransposed(nn.Module):
    """An autoencoder that decodes by the encoder's weight, turned round."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.bias = nn.Linear(6, 4), nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.encode(x).tanh(), self.encode.weight.t(), self.bias)


@idiom(S, floats(6))
class NamesThatClash(nn.Module):
    """Layers that are called like words of torch or dlv."""

    def __init__(self) -> None:
        super().__init__()
        self.add_module("conv1", nn.Linear(6, 6))
        self.add_module("relu", nn.Linear(6, 6))
        self.add_module("forward_", nn.Linear(6, 6))
        self.add_module("add", nn.Linear(6, 6))
        self.add_module("weight_", nn.Linear(6, 6))

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        y = F.relu(self.conv1(input)) + self.relu(input)
        return self.add(self.forward_(y)) + self.weight_(y)


@idiom(S, floats(6), name="nested_calls")
class _NestedCalls(nn.Module):
    """A module that calls itself's parts in another order each time, and one inside another."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        y = self.b(self.a(x))
        z = self.a(self.b(y))
        return self.b[0](z) + self.b(z) + y
