"""Shapes changed, pictures resized and sampled, embeddings, contractions."""

# People's code as it is written: what torch's own types say of it is not the point.
# mypy: disable-error-code="no-any-return, no-untyped-call, arg-type, operator, call-overload"

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from tests.idioms.table import body, floats, idiom, randn, tokens

S = "shapes"


@body(S, 4, 6)
def einsum_and_bmm(y: Tensor) -> Tensor:
    a = torch.einsum("btd,bsd->bts", y, y)
    b = torch.bmm(a, y) + torch.baddbmm(y, a, y, beta=0.5, alpha=2.0)
    return torch.einsum("b t d, e t -> b e d", b, torch.ones(3, 4)) + torch.matmul(a, y).sum()


@body(S, 4, 6)
def split_every_way(y: Tensor) -> Tensor:
    a, b, c = y.chunk(3, -1)
    d, e = y.split([1, 3], 1)
    f = torch.stack(y.unbind(1)[::-1], 1)
    return torch.cat(
        [a * b + c, d.repeat(1, 4, 1)[..., :2], e.mean(1, True).expand(-1, 4, -1), f], -1
    )


@body(S, 4, 6)
def rearranged(y: Tensor) -> Tensor:
    z = y.view(y.shape[0], 2, 2, 3, 2).permute(0, 3, 1, 4, 2).contiguous()
    z = z.flatten(2, 3).swapaxes(1, 2).movedim(-1, 1).unflatten(1, (1, -1))
    return z.reshape(y.shape[0], -1) + y.flatten(1)


@body(S, 8, 4, 4)
def pixel_shuffled(y: Tensor) -> Tensor:
    return F.pixel_unshuffle(F.pixel_shuffle(y, 2), 4)


@body(S, 8, 4, 4)
def channel_shuffled(y: Tensor) -> Tensor:
    b, c, h, w = y.size()
    return y.view(b, 2, c // 2, h, w).transpose(1, 2).contiguous().view(b, -1, h, w)


@body(S, 2, 6, 6)
def grid_sampled(y: Tensor) -> Tensor:
    theta = torch.tensor([[[0.8, 0.1, 0.0], [-0.1, 0.9, 0.1]]]).expand(y.shape[0], -1, -1)
    grid = F.affine_grid(theta, [y.shape[0], 2, 5, 5], align_corners=False)
    return F.grid_sample(y, grid, mode="bilinear", padding_mode="border", align_corners=False)


@body(S, 2, 6, 6)
def grid_sampled_nearest(y: Tensor) -> Tensor:
    base = torch.stack(
        torch.meshgrid(torch.linspace(-1, 1, 4), torch.linspace(-1, 1, 4), indexing="ij"), -1
    )
    return F.grid_sample(y, base.expand(y.shape[0], -1, -1, -1), mode="nearest", align_corners=True)


@body(S, 2, 5, 5)
def interpolated(y: Tensor) -> Tensor:
    a = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
    b = F.interpolate(y, size=(10, 10), mode="nearest")
    c = F.interpolate(y, size=(10, 10), mode="bilinear", align_corners=True)
    return a + b + c


@body(S, 2, 6, 6)
def interpolated_down(y: Tensor) -> Tensor:
    a = F.interpolate(y, scale_factor=0.5, mode="nearest")
    b = F.interpolate(y, size=(3, 3), mode="area")
    c = F.interpolate(y, size=(3, 3), mode="bicubic", align_corners=False)
    d = F.interpolate(y, size=(3, 3), mode="nearest-exact")
    return a + b + c + d


@body(S, 2, 6, 6)
def interpolated_antialiased(y: Tensor) -> Tensor:
    return F.interpolate(y, size=(4, 4), mode="bilinear", antialias=True)


@body(S, 2, 5, 6)
def interpolated_to_another(y: Tensor) -> Tensor:
    low = F.max_pool2d(y, 2)
    return y + F.interpolate(low, size=y.shape[-2:], mode="bilinear", align_corners=False)


@body(S, 2, 5, 5)
def padded(y: Tensor) -> Tensor:
    a = F.pad(y, (1, 2, 0, 1), mode="reflect")
    b = F.pad(y, (1, 2, 0, 1), mode="replicate")
    c = F.pad(y, (1, 2, 0, 1), mode="circular")
    d = F.pad(y, (1, 2, 0, 1), value=-1.0)
    return a + b + c + d


@body(S, 2, 5, 5)
def cropped_by_negative_pad(y: Tensor) -> Tensor:
    return F.pad(y, (-1, -1, 1, -2))


@body(S, 2, 6, 6)
def unfolded(y: Tensor) -> Tensor:
    columns = F.unfold(y, 3, padding=1, stride=2)
    return F.fold(columns * 2, (6, 6), 3, padding=1, stride=2)


@body(S, 2, 6, 6)
def patches_by_unfold(y: Tensor) -> Tensor:
    z = y.unfold(2, 3, 3).unfold(3, 3, 3)
    return z.permute(0, 2, 3, 1, 4, 5).flatten(3)


@idiom(S, tokens(9, 5))
class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 6, padding_idx=0)
        self.normed = nn.Embedding(9, 6, max_norm=None, scale_grad_by_freq=True)
        self.places = nn.Embedding(8, 6)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device).unsqueeze(0)
        return self.words(ids) + self.normed(ids) + self.places(places)


@idiom(S, tokens(9, 5))
class EmbeddingMaxNorm(nn.Module):
    """Its forward rescales rows of its own weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 6, max_norm=1.0)

    def forward(self, ids: Tensor) -> Tensor:
        return self.embed(ids).sum(1)


@idiom(S, tokens(9, 5))
class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.EmbeddingBag(9, 6, mode="mean")
        self.sum = nn.EmbeddingBag(9, 6, mode="sum", padding_idx=1)
        self.max = nn.EmbeddingBag(9, 6, mode="max")

    def forward(self, ids: Tensor) -> Tensor:
        return self.mean(ids) + self.sum(ids) + self.max(ids)


@idiom(S, lambda n: (torch.arange(4 * n) % 9, torch.arange(n) * 4))
class BagWithOffsets(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(9, 6, mode="sum")

    def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:
        return self.bag(ids, offsets)


@body(S, 4, 6)
def normalized(y: Tensor) -> Tensor:
    a = F.normalize(y, dim=-1) @ F.normalize(y, p=1.0, dim=-1).mT
    return a + F.cosine_similarity(y[:, :, None], y[:, None], dim=-1) + torch.cdist(y, y)


@body(S, 4, 6)
def reduced(y: Tensor) -> Tensor:
    parts = [
        y.mean((1, 2)), y.std(dim=(1, 2)), y.var(dim=(1, 2), unbiased=False), y.amax((1, 2)),
        y.flatten(1).norm(dim=1), y.prod(1).sum(1), y.logsumexp((1, 2)), y.flatten(1).median(1)[0],
        y.abs().sum((1, 2)), (y > 0).any(1).float().mean(1), y.flatten(1).min(1).values,
        torch.linalg.vector_norm(y, dim=(1, 2)), y.nansum((1, 2)), y.square().mean((1, 2)).rsqrt(),
    ]  # fmt: skip
    return torch.stack(parts, 1)


@body(S, 3, 8, 8)
def pooled_every_way(y: Tensor) -> Tensor:
    values, places = F.max_pool2d(y, 2, return_indices=True)
    a = F.max_unpool2d(values, places, 2)
    b = F.avg_pool2d(y, 3, 1, 1, count_include_pad=False)
    c = F.adaptive_avg_pool2d(y, (3, 5)).mean((2, 3), keepdim=True)
    d = F.adaptive_max_pool2d(y, 1) + F.lp_pool2d(y.abs(), 2, 8)
    return a + b + c + d


@body(S, 3, 7, 7)
def pooled_with_ceil(y: Tensor) -> Tensor:
    a = F.max_pool2d(y, 3, 2, 1, ceil_mode=True)
    return (
        a
        + F.avg_pool2d(y, 2, 2, ceil_mode=True)
        + F.max_pool2d(y, 2, 2, dilation=1, ceil_mode=True)
    )


@idiom(S, floats(4, 9))
class Convolutions1d(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.same = nn.Conv1d(4, 8, 4, padding="same")
        self.circular = nn.Conv1d(8, 8, 3, padding=2, padding_mode="circular", groups=4)
        self.reflect = nn.Conv1d(8, 4, 3, padding=1, padding_mode="reflect", stride=2)
        self.up = nn.ConvTranspose1d(4, 4, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.pad(x, (3, 0))  # causal
        return self.up(self.reflect(self.circular(self.same(y))))


@idiom(S, lambda n: (randn(n, 2, 5, 5),))
class ConvTransposeOutputSize(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.down(x), output_size=x.shape[-2:])


@idiom(S, floats(2, 4, 4, 4))
class Convolutions3d(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(2, 4, 3, padding=(1, 0, 1), dilation=(1, 1, 1))
        self.up = nn.ConvTranspose3d(4, 2, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool3d(self.up(F.max_pool3d(self.conv(x), (2, 1, 2))), 2)


@body(S, 6)
def outer_products(y: Tensor) -> Tensor:
    a = y.unsqueeze(2) * y.unsqueeze(1)
    b = torch.kron(torch.eye(2), torch.ones(3, 3)) * a
    return b + torch.tensordot(a, torch.eye(6), dims=1) + torch.diag_embed(y)


@body(S, 6)
def broadcast_pairs(y: Tensor) -> Tensor:
    a, b = torch.broadcast_tensors(y[:, :, None], y[:, None, :])
    return torch.cat(
        [(a - b).abs().mean(2), torch.maximum(a, b).amin(2), torch.atan2(a, b)[:, 0]], 1
    )


@body(S, 4, 6)
def repeated(y: Tensor) -> Tensor:
    return y.repeat_interleave(2, dim=1) + y.repeat(1, 2, 1) + torch.tile(y, (1, 2, 1))


@body(S, 4, 6)
def indexed(y: Tensor) -> Tensor:
    a = y[:, -1] + y[:, [0, 2]].sum(1) + y[..., None][:, 0, :, 0]
    return (
        a
        + y.index_select(1, torch.tensor([1, 1])).sum(1)
        + y.take_along_dim(torch.zeros(1, 1, 6).long(), 1)[:, 0]
    )
