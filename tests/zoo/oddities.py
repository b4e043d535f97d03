"""Models with what trips importers: functional style, shared modules, constants, unknown ops."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Functional(nn.Module):
    """In-place arithmetic, a constant made in forward, a hidden buffer, a module called twice."""

    scale: Tensor
    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.twice = nn.Linear(8, 8)
        self.bn = nn.BatchNorm1d(8)
        self.gain = nn.Parameter(torch.linspace(0.5, 1.5, 8))
        self.register_buffer("scale", torch.linspace(1, 2, 8), persistent=False)
        self.register_buffer("steps", torch.tensor(3.0))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.linear(x, self.first.weight, self.first.bias)
        x = self.twice(torch.relu_(self.twice(x)))
        x += 1
        x *= 0.5
        x = x + torch.tensor([0.25, -0.25] * 4)
        x = self.bn(x) * self.gain / self.steps
        x = x * self.scale
        y = x.clone()
        y.add_(torch.sigmoid(x)).mul_(2)
        return torch.where(y > 0, y, y.exp() - 1)


class Shared(nn.Module):
    """Two names of one module, and a tensor tied across two more."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(4, 4)
        self.again = self.encode
        self.decode = nn.Linear(4, 4)
        self.decode.weight = self.encode.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.decode(torch.tanh(self.again(torch.tanh(self.encode(x)))))
        return out


class Rolled(nn.Module):
    """Operations outside the vocabulary, one of them with two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.bilinear = nn.Bilinear(8, 8, 4)
        self.prelu = nn.PReLU()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.roll(self.fc(x), shifts=1, dims=-1)
        best, places = torch.topk(x, 3, dim=-1)
        mixed = self.prelu(self.bilinear(x, torch.cumsum(x, -1)))
        return mixed + best.sum(-1, keepdim=True), places


class ManyNorms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.group = nn.GroupNorm(2, 6)
        self.instance = nn.InstanceNorm1d(6, affine=True)
        self.tracked = nn.InstanceNorm1d(6, track_running_stats=True)
        self.conv = nn.Conv1d(6, 6, 3, padding="same", dilation=2)
        self.layer = nn.LayerNorm((6, 10))
        self.bare = nn.LayerNorm(10, elementwise_affine=False)
        self.rms = nn.RMSNorm(10)
        self.batch = nn.BatchNorm1d(6, affine=False, momentum=0.3)
        self.untracked = nn.BatchNorm1d(6, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(self.tracked(self.instance(self.group(x))))
        x = self.rms(self.bare(self.layer(x)))
        out: Tensor = self.untracked(self.batch(x))
        return out


class Pools(nn.Module):
    """Pools over three axes and one; silu, log-softmax, chunk, stack, a dropout of whole maps."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(1, 2, (1, 3, 3), stride=(1, 2, 1), padding=(0, 1, 2))
        self.most = nn.MaxPool3d((1, 2, 2), padding=(0, 1, 1))
        self.mean = nn.AvgPool3d(2, count_include_pad=False, ceil_mode=True)
        self.adaptive = nn.AdaptiveMaxPool1d(3)
        self.drop = nn.Dropout1d(0.3)
        self.act = nn.SiLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.mean(self.most(self.conv(x))))
        x = self.adaptive(self.drop(x.flatten(2)))
        x = x.unsqueeze(1).squeeze(1).permute(0, 2, 1)
        left, right = x.chunk(2, dim=-1)
        return functional.log_softmax(torch.stack([left, right], dim=1).mean((1, 3)), dim=1)


class Forking(nn.Module):
    """Data-dependent control flow: torch.export refuses it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = self.fc(x)
        return x


class Averaging(nn.Module):
    """A cumulative mean of statistics: how much a batch counts is read from a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1d(4, momentum=None)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn(x)
        return out


class FixedBatch(nn.Module):
    """A batch written into the code: only a static export is possible."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc(x)
        return out.view(2, 3, 2)


class Masked(nn.Module):
    """Named inputs, one of them optional and left out; a dictionary comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor, mask: Tensor, bias: Tensor | None = None) -> dict[str, Tensor]:
        mixed, weights = self.attention(x, x, x, key_padding_mask=mask)
        if bias is not None:
            mixed = mixed + bias
        return {"mixed": mixed, "weights": weights}
