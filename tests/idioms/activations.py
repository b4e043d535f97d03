"""In-place activations and residuals, on values that are read again."""

# People's code as it is written: what torch's own types say of it is not the point.
# mypy: disable-error-code="no-any-return, no-untyped-call, arg-type, operator, call-overload"

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from tests.idioms.table import body, floats, idiom

S = "activations"


@body(S, 6)
def relu_read_before_and_after(y: Tensor) -> Tensor:
    z = y * 2
    w = torch.relu_(y)
    return z + w + y


@body(S, 6)
def relu_flag(y: Tensor) -> Tensor:
    return F.relu(y, inplace=True) + y


@body(S, 6)
def hardswish_flag(y: Tensor) -> Tensor:
    z = F.hardswish(y, inplace=True)
    return z * y


@body(S, 6)
def leaky_and_elu_flags(y: Tensor) -> Tensor:
    F.leaky_relu(y, 0.2, inplace=True)
    F.elu_(y, 0.7)
    F.hardtanh(y, -0.3, 0.9, inplace=True)
    return y


@body(S, 6)
def silu_mish_selu_flags(y: Tensor) -> Tensor:
    F.silu(y, inplace=True)
    F.mish(y, inplace=True)
    return F.selu(y, inplace=True) + F.celu(y, 1.3, inplace=True)


@body(S, 6)
def threshold_flag(y: Tensor) -> Tensor:
    return F.threshold(y, 0.1, 20.0, inplace=True)


@body(S, 6)
def dropout_flag(y: Tensor) -> Tensor:
    z = F.dropout(y, 0.5, training=False, inplace=True)
    z += 1
    return y * z


@body(S, 6)
def residual_with_view(y: Tensor) -> Tensor:
    x = y.view(-1, 2, 3)
    y += y.flip(1)
    return x.sum(1)


@body(S, 6)
def sequence_of_in_place(y: Tensor) -> Tensor:
    return y.abs_().add_(1).sqrt_().neg_().exp_().clamp_(0.1).log_().pow_(2)


@idiom(S, floats(6))
class InplaceModules(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Dropout(0.4, inplace=True),
            nn.Linear(8, 8), nn.Hardswish(inplace=True), nn.Linear(8, 4), nn.SiLU(inplace=True),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


@idiom(S, floats(3, 8, 8))
class InplaceResidual(nn.Module):
    """The block of a residual net, with the same in-place activation twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 3, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(3)
        self.conv2 = nn.Conv2d(3, 3, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(3)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x
        return self.relu(out)


@idiom(S, floats(6))
class ActivationOfSharedValue(nn.Module):
    """Two branches read what one of them activates in place."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x)
        first = self.a(y)
        return first + self.b(F.relu(y, inplace=True)) + self.a(y)


@idiom(S, floats(6))
class GluKinds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 16)
        self.prelu = nn.PReLU(4)
        self.rrelu = nn.RReLU(0.1, 0.3)

    def forward(self, x: Tensor) -> Tensor:
        y = F.glu(self.fc(x), -1)
        a, b = y.chunk(2, -1)
        return self.prelu(F.silu(a) * b) + self.rrelu(a)


@body(S, 6)
def many_functions(y: Tensor) -> Tensor:
    parts = [
        F.gelu(y), F.gelu(y, approximate="tanh"), F.softplus(y, 2.0, 3.0), F.logsigmoid(y),
        F.tanhshrink(y), F.softshrink(y, 0.2), F.hardshrink(y, 0.2), F.softsign(y), F.relu6(y * 4),
        F.hardsigmoid(y), torch.erf(y), F.softmin(y, 1), F.log_softmax(y, 1),
    ]  # fmt: skip
    return torch.stack(parts, 1)
