"""Masks, and how elements are moved, picked and counted."""

# People's code as it is written: what torch's own types say of it is not the point.
# mypy: disable-error-code="no-any-return, no-untyped-call, arg-type, operator, call-overload"

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from tests.idioms.table import body, floats, idiom, randint, randn, tokens

S = "masks"


@body(S, 5, 8)
def causal_triu(y: Tensor) -> Tensor:
    t = y.shape[1]
    mask = torch.triu(torch.full((t, t), float("-inf")), diagonal=1)
    return ((y @ y.transpose(1, 2)) / 8**0.5 + mask).softmax(-1) @ y


@body(S, 5, 8)
def causal_tril_masked_fill(y: Tensor) -> Tensor:
    scores = torch.einsum("btd,bsd->bts", y, y)
    keep = torch.tril(torch.ones(5, 5)).bool()
    return scores.masked_fill(~keep, float("-inf")).softmax(-1)


@body(S, 5, 8)
def causal_written(y: Tensor) -> Tensor:
    mask = torch.zeros(5, 5)
    mask[torch.ones(5, 5).triu(1) == 1] = -1e9
    return (y @ y.mT + mask).softmax(-1)


@idiom(S, lambda n: (randn(n, 5, 8), torch.arange(5).expand(n, 5) < 3))
class KeyPadding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        scores = self.fc(x) @ x.transpose(-1, -2)
        scores = scores.masked_fill(keep[:, None, :] == 0, torch.finfo(scores.dtype).min)
        out = F.softmax(scores, dim=-1) @ x
        return (out * keep.unsqueeze(-1)).sum(1) / keep.sum(1, keepdim=True)


@idiom(S, tokens(9, 6))
class PaddedTokens(nn.Module):
    """A mask that is computed from the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 8, padding_idx=0)
        self.fc = nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Tensor:
        keep = ids.ne(0)
        x = self.embed(ids) * keep[..., None].to(torch.float32)
        return self.fc(x.sum(1) / keep.sum(1, keepdim=True).clamp(min=1))


@body(S, 6)
def where_and_compare(y: Tensor) -> Tensor:
    a = torch.where(y > 0, y, torch.zeros_like(y))
    b = torch.where((y > -0.5) & (y < 0.5) | y.isnan(), 1.0, y)
    return a + b + (y >= 0.1).float() + torch.logical_xor(y > 0, y < 0.2).int()


@body(S, 4, 6)
def rolled_both(y: Tensor) -> Tensor:
    return torch.roll(y, (1, -2), (1, 2)) + y.roll(1) + y.roll(2, 2)


@body(S, 6)
def cumulated(y: Tensor) -> Tensor:
    return y.cumsum(1) + y.cumprod(1) + torch.cummax(y, 1).values + y.logcumsumexp(1)


@body(S, 4, 6)
def flipped(y: Tensor) -> Tensor:
    return y.flip(1) + y.flip([1, 2]) + torch.fliplr(y) + y[:, torch.arange(3, -1, -1)]


@body(S, 6)
def top_three(y: Tensor) -> tuple[Tensor, Tensor]:
    values, places = y.topk(3, dim=1)
    return values, places


@body(S, 6)
def sorted_both(y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    values, places = torch.sort(y, 1, descending=True)
    return values, places, y.argsort(1)


@body(S, 4, 6)
def argmax_gathered(y: Tensor) -> Tensor:
    best = y.sum(-1).argmax(1)
    return y.gather(1, best[:, None, None].expand(-1, 1, 6)).squeeze(1)


@body(S, 4, 6)
def last_token_by_arange(y: Tensor) -> Tensor:
    places = (y.sum(-1) > 0).sum(1).clamp(max=3)
    return y[torch.arange(y.shape[0]), places]


@body(S, 6)
def one_hot_of_argmax(y: Tensor) -> Tensor:
    hot = F.one_hot(y.argmax(1), 6)
    return hot * y + hot.float().cumsum(0)[-1:]


@body(S, 6)
def straight_through_argmax(y: Tensor) -> Tensor:
    soft = y.softmax(1)
    hard = torch.zeros_like(soft).scatter_(1, soft.max(1, keepdim=True)[1], 1.0)
    return hard - soft.detach() + soft


@body(S, 6)
def top_k_routing(y: Tensor) -> Tensor:
    """A mixture of experts: all but the best two are masked."""
    values, places = y.topk(2, dim=-1)
    gates = torch.full_like(y, float("-inf")).scatter(-1, places, values).softmax(-1)
    return gates * y


@body(S, 6)
def top_p_filter(y: Tensor) -> Tensor:
    values, places = y.sort(dim=-1, descending=True)
    remove = values.softmax(-1).cumsum(-1) > 0.8
    remove[..., 1:] = remove[..., :-1].clone()
    remove[..., 0] = False
    return y.masked_fill(remove.scatter(1, places, remove), -50.0)


@body(S, 6)
def bucketed(y: Tensor) -> Tensor:
    edges = torch.tensor([-1.0, 0.0, 1.0])
    return torch.bucketize(y, edges) + torch.searchsorted(edges, y.contiguous(), right=True)


@idiom(S, lambda n: (randn(n, 4, 8), randint(5, n, seed=2)))
class LengthsToMask(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        keep = torch.arange(x.size(1))[None, :] < lengths[:, None]
        y = self.fc(x)
        y[~keep] = 0
        return y


@idiom(S, floats(6, 8))
class RelativeBias(nn.Module):
    index: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(11, 2))
        places = torch.arange(6)
        self.register_buffer("index", places[:, None] - places[None, :] + 5)
        self.qk = nn.Linear(8, 16)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k = self.qk(x).view(b, t, 2, 2, 4).permute(2, 0, 3, 1, 4)
        bias = self.table[self.index.view(-1)].view(t, t, -1).permute(2, 0, 1).contiguous()
        return (q @ k.transpose(-2, -1) + bias.unsqueeze(0)).softmax(-1)


@idiom(S, floats(1, 8, 8))
class ShiftedWindows(nn.Module):
    """The windows of Swin, with a mask that is written region by region."""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Conv2d(1, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.proj(x).permute(0, 2, 3, 1)
        b, h, w, c = y.shape
        y = torch.roll(y, shifts=(-2, -2), dims=(1, 2))
        mask = torch.zeros(1, h, w, 1)
        count = 0
        for rows in (slice(0, -4), slice(-4, -2), slice(-2, None)):
            for columns in (slice(0, -4), slice(-4, -2), slice(-2, None)):
                mask[:, rows, columns, :] = count
                count += 1
        areas = mask.view(1, h // 4, 4, w // 4, 4, 1).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16)
        bias = areas.unsqueeze(1) - areas.unsqueeze(2)
        bias = bias.masked_fill(bias != 0, -100.0).masked_fill(bias == 0, 0.0)
        y = y.view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        scores = (y @ y.transpose(1, 2)).view(b, -1, 16, 16) + bias.unsqueeze(0)
        return scores.view(-1, 16, 16).softmax(-1).mean(1).view(b, -1)
