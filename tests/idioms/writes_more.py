"""Writes that are harder to follow: through several views, into parts of parts, in odd orders."""

# People's code as it is written: what torch's own types say of it is not the point.
# mypy: disable-error-code="no-any-return, no-untyped-call, arg-type, operator, call-overload"

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from tests.idioms.table import body, floats, idiom, randn

S = "more writes"


@body(S, 4, 6)
def view_of_view_of_view(y: Tensor) -> Tensor:
    z = y.view(-1, 2, 2, 6).transpose(2, 3).unsqueeze(1)[:, 0, 1]
    z[:, 3:].mul_(z[:, :3])
    return y


@body(S, 4, 6)
def two_views_written_in_turn(y: Tensor) -> Tensor:
    a, b = y[:, :2], y.transpose(1, 2)[:, :3]
    a.add_(1)
    b.mul_(2)
    a.sub_(b.sum())
    return torch.cat([a.flatten(1), b.flatten(1), y.flatten(1)], 1)


@body(S, 6)
def augmented_item(y: Tensor) -> Tensor:
    y[:, 1] *= 3
    y[:, 2] -= y[:, 1]
    y[:, -1] /= 2
    y[:, 3] **= 2
    y[..., 4] //= 0.5
    return y


@body(S, 6)
def negative_and_open_ends(y: Tensor) -> Tensor:
    y[:, -2:] = 0
    y[:, :-4] = 1
    y[:, 2:100] += 3
    y[:, 5:2] = 9
    return y


@body(S, 2, 6)
def whole_assigned(y: Tensor) -> Tensor:
    out = torch.empty(y.shape)
    out[:] = y
    out[...] += 1
    out[:, 0][:] = 2
    return out


@body(S, 6)
def rows_assigned(y: Tensor) -> Tensor:
    y[0] = 0
    y[1:] = y[1:] * 2
    y[-1, 0] = 7
    return y


@body(S, 6)
def rows_shifted(y: Tensor) -> Tensor:
    out = torch.zeros_like(y)
    out[1:] = y[:-1]
    out[0] = 1
    return out


@body(S, 2, 4, 4)
def quadrants(y: Tensor) -> Tensor:
    out = y.new_zeros(y.shape[0], 8, 2, 2)
    out[:, 0:2] = y[:, :, 0::2, 0::2]
    out[:, 2:4] = y[:, :, 1::2, 0::2]
    out[:, 4:6] = y[:, :, 0::2, 1::2]
    out[:, 6:8] = y[:, :, 1::2, 1::2]
    return out


@body(S, 2, 6, 6)
def crop_written_back(y: Tensor) -> Tensor:
    crop = y[:, :, 1:4, 2:5]
    crop -= crop.mean((2, 3), keepdim=True)
    y[:, :, 1:4, 2:5] = crop.abs()
    return y


@body(S, 6)
def values_then_view_of_old(y: Tensor) -> Tensor:
    z = y.view(-1, 3, 2)
    w = z.sum(2)
    y.zero_()
    return w + z.sum(2)


@body(S, 6)
def copies_are_apart(y: Tensor) -> Tensor:
    a = y.clone()
    b = y[:, [0, 1, 2]]
    c = y.contiguous()
    d = y.to(torch.float64)
    e = y.float()
    y.add_(10)
    return a.sum(1) + b.sum(1) + c.sum(1) + d.sum(1).float() + e.sum(1)


@body(S, 4, 6)
def contiguous_of_a_transposed(y: Tensor) -> Tensor:
    z = y.transpose(1, 2).contiguous()
    z[:, 0] = 5
    return y + z.transpose(1, 2)


@body(S, 4, 6)
def reshape_that_copies(y: Tensor) -> Tensor:
    z = y.transpose(1, 2).reshape(y.shape[0], -1)
    z[:, ::2] = 0
    return y.flatten(1) + z


@body(S, 4, 6)
def flatten_that_views(y: Tensor) -> Tensor:
    z = y.flatten(1)
    z[:, ::2] = 0
    return y


@body(S, 6)
def expanded_read_after(y: Tensor) -> Tensor:
    z = y.unsqueeze(1).expand(-1, 2, -1)
    y[:, 0] = 1
    return z * 2


@body(S, 6)
def list_of_views(y: Tensor) -> Tensor:
    parts = [y[:, place : place + 2] for place in range(0, 6, 2)]
    for place, part in enumerate(parts):
        part.mul_(place)
    return torch.cat(parts[::-1], 1) + y


@body(S, 6)
def dict_of_buffers(y: Tensor) -> Tensor:
    held = {"a": torch.zeros_like(y), "b": torch.ones_like(y)}
    held["a"][:, :3] = y[:, 3:]
    held["b"] += held["a"]
    held["a"].fill_(2)
    return held["a"] + held["b"]


@body(S, 6)
def scatter_reduced(y: Tensor) -> Tensor:
    places = torch.tensor([0, 0, 1, 1, 2, 2]).expand(y.shape[0], 6)
    a = torch.zeros(y.shape[0], 3).scatter_reduce(1, places, y, "amax", include_self=False)
    b = torch.ones(y.shape[0], 3).scatter_reduce_(1, places, y, reduce="mean")
    return a + b + torch.zeros(y.shape[0], 3).scatter_(1, places, y, reduce="add")


@body(S, 4, 6)
def scattered_slices(y: Tensor) -> Tensor:
    a = torch.slice_scatter(y, torch.zeros(y.shape[0], 2, 6), 1, 1, 3)
    b = torch.select_scatter(a, y[:, 0] * 3, 1, 2)
    return b.diagonal_scatter(torch.ones(y.shape[0], 4), 0, 1, 2)


@body(S, 6)
def mask_of_itself(y: Tensor) -> Tensor:
    y[y > 0.5] *= 2
    y[(y < -0.5) & (y > -2)] = y.mean()
    y[torch.isnan(y)] = 0.0
    return y


@body(S, 4, 6)
def mask_of_rows_and_columns(y: Tensor) -> Tensor:
    keep = torch.tensor([True, False, True, False])
    y[:, keep] = 0
    y[..., torch.tensor([False, True] * 3)] += 1
    return y


@body(S, 4, 6)
def index_pairs(y: Tensor) -> Tensor:
    y[:, [0, 1, 2], [3, 4, 5]] = -9
    y[torch.arange(y.shape[0]), 1] = 4
    y[:, torch.tensor([3])] += 2
    return y


@body(S, 6)
def index_put_with_values(y: Tensor) -> Tensor:
    rows = torch.arange(y.shape[0])
    y[rows, y.argmax(1)] = 0
    y.index_put_((rows, torch.zeros_like(rows)), y.sum(1))
    return y


@body(S, 6)
def repeated_places_added(y: Tensor) -> Tensor:
    out = torch.zeros(y.shape[0], 3)
    out.index_put_(
        (torch.arange(y.shape[0])[:, None], torch.tensor([0, 0, 1, 1, 2, 2])), y, accumulate=True
    )
    return out


@body(S, 6)
def in_place_chain_on_slices(y: Tensor) -> Tensor:
    y[:, :3].add_(1).mul_(2).clamp_(min=0)
    y[:, 3:].neg_().exp_()
    return y.sqrt_()


@body(S, 6)
def swapped_by_index(y: Tensor) -> Tensor:
    y[:, [0, 5]] = y[:, [5, 0]]
    return y


@body(S, 6)
def integer_buffer(y: Tensor) -> Tensor:
    counts = torch.zeros(y.shape[0], 6, dtype=torch.long)
    counts[:, 1:] += 2
    counts[:, 0] = (y > 0).sum(1)
    counts += y.argsort(1)
    return counts * y


@body(S, 6)
def boolean_buffer(y: Tensor) -> Tensor:
    keep = torch.ones_like(y, dtype=torch.bool)
    keep[:, 0] = False
    keep &= y > -1
    keep[:, 5] |= True
    return y.masked_fill(~keep, 0)


@body(S, 6)
def cast_on_write(y: Tensor) -> Tensor:
    out = torch.zeros(y.shape[0], 6, dtype=torch.float64)
    out[:, :3] = y[:, :3]
    whole = torch.zeros(y.shape[0], 3, dtype=torch.int64)
    whole[:] = (y[:, 3:] * 10).round()
    return torch.cat([out, whole], 1)


@body(S, 6)
def number_promoted(y: Tensor) -> Tensor:
    counts = torch.arange(6)
    counts.add_(1).mul_(2)
    counts[2] = 7.9
    return y * counts


@body(S, 6)
def rebound_names(y: Tensor) -> Tensor:
    x = y
    x = x + 1
    x[:, 0] = 0
    y[:, 1] = 0
    x, y = y, x
    x += y
    return x * 10 + y


@idiom(S, floats(6))
class WrittenThroughAModule(nn.Module):
    """A layer hands its input on, and somebody writes into it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.same, self.drop = nn.Linear(6, 6), nn.Identity(), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        z = self.same(y)
        z[:, 0] = 3
        w = self.drop(y)
        return y + w


@idiom(S, floats(6))
class DropoutThenWritten(nn.Module):
    """In eval mode a dropout gives its input itself, so that a write shows in both."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.drop = nn.Linear(6, 6), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        z = self.drop(y)
        z[:, :3] = 0
        return y + z


@idiom(S, floats(6))
class FlattenAndContiguousThenWritten(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.flat = nn.Linear(6, 6), nn.Flatten()

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        z = self.flat(y).contiguous().to(torch.float32).view(-1, 6)
        z += 1
        return y * z


@idiom(S, floats(6))
class HelperWrites(nn.Module):
    """Functions that write into what they are given and return nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    @staticmethod
    def clip(boxes: Tensor, most: float) -> None:
        boxes[..., 0].clamp_(0, most)
        boxes[..., 1].clamp_(0, most)
        boxes[..., [2, 3]] = boxes[..., [2, 3]].clamp(-most, most)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        self.clip(y, 0.3)
        return y


@idiom(S, floats(6, 8))
class TokenReplaced(nn.Module):
    """Masked tokens get a learned vector; a class token is written in front."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.mask = nn.Parameter(torch.randn(8))
        self.first = nn.Parameter(torch.randn(1, 8))

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        y[y.sum(-1) > 0] = self.mask
        out = torch.zeros(x.shape[0], 7, 8)
        out[:, :1] = self.first
        out[:, 1:] = y
        return out


@idiom(S, floats(6))
class ParameterCopiedThenWritten(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 6))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.clone()
        weight[:, 0] = 0
        weight.tril_()
        view = self.weight.t()
        return F.linear(x, weight) + x @ view


@idiom(S, floats(6))
class BufferCopiedThenWritten(nn.Module):
    base: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.register_buffer("base", torch.arange(6.0))

    def forward(self, x: Tensor) -> Tensor:
        base = self.base.clone()
        base[2:] += 1
        rows = self.base.repeat(x.shape[0], 1)
        rows[:, 0] = 4
        return self.fc(x) + base + rows


@idiom(S, floats(6))
class PlainConstantWritten(nn.Module):
    """A tensor that is no buffer, written at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.held = torch.zeros(6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        self.held[0] = 3
        return y + self.held


@idiom(S, lambda n: (randn(n, 6), randn(n, 6, seed=1)))
class TwoInputsWritten(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, a: Tensor, b: Tensor) -> Any:
        a[:, :2] = b[:, :2]
        b.copy_(a * 2)
        return self.fc(a), b, a


@idiom(S, floats(4, 6))
class BatchFirstLoop(nn.Module):
    """Item by item of a fixed axis, results written where they belong."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        out = torch.empty(x.shape[0], 4, 3)
        for place, part in enumerate(x.unbind(1)):
            y = self.fc(part)
            y[:, place] = 0
            out[:, 3 - place] = y[:, :3] + (out[:, 4 - place] if place else 0)
        return out


@body(S, 6)
def inplace_under_no_grad_view(y: Tensor) -> Tensor:
    z = y * 1
    with torch.no_grad():
        z[:, 0].fill_(2)
        z.view(-1, 2, 3)[:, 1] += 1
    return z


@body(S, 6)
def set_by_set_(y: Tensor) -> Tensor:
    z = torch.zeros_like(y)
    z.set_(y.detach())
    return z + 1


@body(S, 6)
def resized(y: Tensor) -> Tensor:
    z = y.clone()
    z.resize_(y.shape[0], 2, 3)
    return z * 2


@body(S, 6)
def squeezed_and_transposed_in_place(y: Tensor) -> Tensor:
    z = (y + 1).unsqueeze_(2)
    z.transpose_(1, 2)
    z.squeeze_(1)
    z[:, 0] = 0
    w = y.clone().swapaxes_(0, 1)
    w[0] = 1
    return z + w.t()


@body(S, 6)
def put_and_taken(y: Tensor) -> Tensor:
    z = y.clone()
    z.put_(torch.tensor([0, 7]), torch.tensor([1.0, 2.0]))
    return z + torch.take(y, torch.tensor([0, 5, 6])).sum()


@body(S, 5, 5)
def diagonal_added(y: Tensor) -> Tensor:
    y.diagonal(dim1=-2, dim2=-1).add_(1e-1)
    y.diagonal(1, 1, 2).mul_(2)
    return torch.linalg.solve(y @ y.mT + torch.eye(5) * 4, y)


@body(S, 6)
def tensor_split_and_hsplit(y: Tensor) -> Tensor:
    a, b, c = torch.tensor_split(y, (1, 4), dim=1)
    b.mul_(-1)
    d, e = torch.hsplit(y, 2)
    return torch.cat([a, c, d + e], 1)


@body(S, 2, 3, 4)
def movedim_and_named_views(y: Tensor) -> Tensor:
    torch.movedim(y, 1, 3)[..., 0] = 1
    y.swapdims(1, 2)[:, 2] += 1
    y.unflatten(3, (2, 2))[..., 0, 0] = 3
    y.mT[..., 3, :] = 4
    y.squeeze(1).unsqueeze(-1)[..., 0] *= 2
    torch.narrow(y, 3, 0, 2).neg_()
    y.view_as(y)[:, 0, 0] = 6
    return y


@body(S, 6)
def sum_of_overlapping(y: Tensor) -> Tensor:
    out = torch.zeros(y.shape[0], 9)
    for place in range(4):
        out[:, place : place + 6] += y * (place + 1)
    return out / out.abs().amax(1, keepdim=True)
