"""What goes in and comes out, sizes in arithmetic, control flow, dtypes, gradients of one's own."""

# People's code as it is written: what torch's own types say of it is not the point.
# mypy: disable-error-code="no-any-return, no-untyped-call, arg-type, operator, call-overload"

from __future__ import annotations

import math
from collections import OrderedDict, namedtuple
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import functional_call

from tests.idioms.table import body, floats, idiom, randint, randn

S = "calls"


@body(S, 6)
def dict_out(y: Tensor) -> dict[str, Tensor]:
    return {"scores": y, "aux": y.sum(1), "a": y[:, 0]}


@body(S, 6)
def tuple_out(y: Tensor) -> tuple[Tensor, Tensor]:
    return y, y.relu()


@body(S, 6)
def nested_out(y: Tensor) -> Any:
    return [y, (y + 1, {"z": [y * 2], "b": y - 1})]


@body(S, 6)
def ordered_out(y: Tensor) -> Mapping[str, Tensor]:
    return OrderedDict(out=y.relu(), aux=y)


class Pair(NamedTuple):
    logits: Tensor
    hidden: Tensor | None = None


Scores = namedtuple("Scores", ["scores", "labels"])


@body(S, 6)
def named_tuple_out(y: Tensor) -> Any:
    return Scores(y, y.argmax(1))


@body(S, 6)
def named_tuple_with_none(y: Tensor) -> Pair:
    return Pair(y)


@dataclass
class Output:
    logits: Tensor
    loss: Tensor | None = None
    hidden: tuple[Tensor, ...] = ()


@body(S, 6)
def dataclass_out(y: Tensor) -> Output:
    return Output(y, None, (y + 1, y + 2))


@body(S, 6)
def none_and_numbers_out(y: Tensor) -> Any:
    return y, None, y.shape[1], 2.5


@body(S, 6)
def batch_size_out(y: Tensor) -> Any:
    return y, y.shape[0]


@body(S, 6)
def same_output_twice(y: Tensor) -> Any:
    return y, y, y.view(-1, 6)


@idiom(S, floats(6))
class InputAndWeightOut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Any:
        return self.fc(x), x, self.fc.bias


@idiom(S, floats(6))
class OnlyTheInput(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


@body(S, 6)
def constant_out(y: Tensor) -> Any:
    return y, torch.ones(2, 3), torch.tensor([1, 2])


@idiom(S, lambda n: (randn(n, 6), 3, 0.5))
class NumbersIn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor, times: int, scale: float) -> Tensor:
        for _ in range(times):
            x = self.fc(x) * scale
        return x


@idiom(S, lambda n: (randn(n, 6), None, True))
class NoneAndFlagsIn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor, mask: Tensor | None = None, double: bool = False) -> Tensor:
        y = self.fc(x)
        if mask is not None:
            y = y * mask
        return y * 2 if double else y


@idiom(S, lambda n: (randn(n, 6),), keywords=lambda n: {"b": randn(n, 6, seed=1), "scale": None})
class KeywordsIn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, a: Tensor, *, scale: Any = None, b: Tensor) -> Tensor:  # noqa: ARG002
        return self.fc(a) - b


@idiom(S, lambda n: ([randn(n, 6), randn(n, 4, seed=1)], {"b": randn(n, 3), "a": randn(n, 2)}))
class NestedIn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(15, 6)

    def forward(self, parts: list[Tensor], more: dict[str, Tensor]) -> Tensor:
        return self.fc(torch.cat([*parts, more["b"], more["a"]], 1))


@idiom(S, lambda n: (randn(n, 6), randn(n, 6, seed=1)))
class UnusedInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, unused: Tensor, x: Tensor) -> Tensor:  # noqa: ARG002
        return self.fc(x)


@idiom(S, lambda n: (randn(n, 6), torch.tensor(1.5)))
class ScalarTensorIn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return self.fc(x) * scale


@idiom(S, lambda n: (randn(n, 6), randn(4, 6, seed=3)))
class SharedPrototypes(nn.Module):
    """The second input has no batch."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor, prototypes: Tensor) -> Tensor:
        return -torch.cdist(self.fc(x), self.fc(prototypes))


@body(S, 6)
def batch_in_arithmetic(y: Tensor) -> Tensor:
    n = y.size(0)
    return y / n + math.sqrt(6) * n + (n - 1) // 2 + float(n) ** 0.5


@body(S, 6)
def batch_in_a_mean(y: Tensor) -> Tensor:
    return y - y.sum(0, keepdim=True) / y.shape[0]


@body(S, 6)
def batch_positions(y: Tensor) -> Tensor:
    rows = torch.arange(y.shape[0])
    return y[rows, rows % 6] + torch.linspace(0, 1, 3).sum() + torch.eye(y.shape[0]).sum(1)


@body(S, 6)
def batch_expanded(y: Tensor) -> Tensor:
    query = torch.ones(1, 2, 6).expand(y.size(0), -1, -1)
    return query * y[:, None] + torch.zeros(y.shape[0], 2, 1)


@body(S, 6)
def batch_similarity(y: Tensor) -> Tensor:
    n = len(y)
    scores = y @ y.T
    scores = scores.masked_fill(torch.eye(n, dtype=torch.bool), -1e9)
    return scores.softmax(1) @ y


@body(S, 6)
def batch_specialised_one(y: Tensor) -> Tensor:
    if y.shape[0] == 1:
        return y * 100
    return y


@body(S, 6)
def batch_specialised_three(y: Tensor) -> Tensor:
    if y.shape[0] == 3:
        return y * 100
    return y


@body(S, 6)
def batch_parity(y: Tensor) -> Tensor:
    return y * 2 if y.shape[0] % 2 else y


@body(S, 6)
def batch_by_item(y: Tensor) -> Tensor:
    return torch.stack([row * (place + 1) for place, row in enumerate(y)])


@body(S, 6)
def batch_as_number(y: Tensor) -> Tensor:
    return y * torch.tensor(y.shape[0]) + int(y.shape[0]) + torch.full((6,), y.shape[0] / 2)


@body(S, 6)
def batch_doubled(y: Tensor) -> Tensor:
    """Guidance: twice the batch inside, halved again."""
    a, b = torch.cat([y, -y]).relu().chunk(2)
    return b + 3 * (a - b)


@body(S, 4, 6)
def batch_folded_into_time(y: Tensor) -> Tensor:
    z = y.reshape(-1, 6)
    z = z - z.mean(1, keepdim=True)
    return z.view(-1, 4, 6).mean(1)


@body(S, 6)
def branch_on_values(y: Tensor) -> Tensor:
    if y.sum() > 0:
        return y * 2
    return -y


@body(S, 6)
def loop_on_values(y: Tensor) -> Tensor:
    while y.abs().max() > 1:
        y = y / 2
    return y


@body(S, 6)
def item_of_a_value(y: Tensor) -> Tensor:
    return y * y.max().item()


@body(S, 6)
def nonzero_of_values(y: Tensor) -> Tensor:
    return y[y > 0].sum() + y


@body(S, 6)
def through_numpy(y: Tensor) -> Tensor:
    return y + torch.from_numpy(y.detach().numpy() * 2)


@body(S, 6)
def cond_operator(y: Tensor) -> Tensor:
    return torch.cond(y.sum() > 0, lambda v: v * 2, lambda v: v - 1, (y,))


@body(S, 6)
def unique_of_values(y: Tensor) -> Tensor:
    return y + torch.unique((y > 0).long()).sum()


@idiom(S, lambda n: (randint(7, n, 4), randn(n, 4) > 0))
class IntegersAndFlags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 5)

    def forward(self, ids: Tensor, flags: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        picked = torch.where(flags, ids, torch.full_like(ids, 7))
        return self.embed(picked).sum(1), picked % 3 + ids // 2, flags.any(1) & ~flags[:, 0]


@idiom(S, lambda n: (randn(n, 6).double(),))
class Doubles(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6).double()

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        y[:, 0] = y[:, 0] + torch.arange(1.0, dtype=torch.float64)
        return y


@idiom(S, lambda n: (randn(n, 6).bfloat16(),), narrow=True)
class Bfloats(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8)).bfloat16()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


@idiom(S, lambda n: (randn(n, 6).half(),), narrow=True)
class Halves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 3)).half()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


@idiom(S, floats(6), narrow=True)
class CastInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6).bfloat16()
        self.b = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x.to(self.a.weight.dtype)).float())


@idiom(S, floats(6), narrow=True)
class AutocastInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x)
        return self.b(y.float())


@body(S, 6)
def autocast_switched_off(y: Tensor) -> Tensor:
    with torch.autocast("cpu", enabled=False):
        return y.float() @ torch.ones(6, 2)


@body(S, 4, 8)
def fourier(y: Tensor) -> Tensor:
    z = torch.fft.rfft(y, dim=-1)
    z = z * torch.exp(torch.complex(torch.zeros(5), torch.ones(5)))
    return torch.fft.irfft(z, n=8, dim=-1) + torch.fft.fft2(y).real + z.abs().sum(-1, keepdim=True)


@body(S, 4, 6)
def complex_rotary(y: Tensor) -> Tensor:
    turn = torch.polar(
        torch.ones(4, 3), torch.outer(torch.arange(4.0), torch.tensor([1.0, 0.1, 0.01]))
    )
    z = torch.view_as_complex(y.reshape(y.shape[0], 4, 3, 2))
    return torch.view_as_real(z * turn).flatten(2)


@body(S, 2, 16)
def short_time_fourier(y: Tensor) -> Tensor:
    z = torch.stft(y[:, 0], 8, 4, window=torch.hann_window(8), return_complex=True)
    return z.abs().pow(2)


class _Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004
        return x.round()

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> Tensor:  # noqa: ARG004
        return given[0]


@body(S, 6)
def own_gradient(y: Tensor) -> Tensor:
    return _Round.apply(y * 4.3) / 4.3


@body(S, 6)
def straight_through_round(y: Tensor) -> Tensor:
    z = y * 7.3
    return z + (z.round() - z).detach()


@body(S, 6)
def quantised_like(y: Tensor) -> Tensor:
    scale = y.detach().abs().amax(1, keepdim=True) / 127
    levels = torch.clamp(torch.round(y / scale), -128, 127).to(torch.int8)
    return levels.to(torch.float32) * scale


@body(S, 6)
def fake_quantised(y: Tensor) -> Tensor:
    return torch.fake_quantize_per_tensor_affine(y, 0.1, 0, -128, 127)


@idiom(S, floats(6))
class FunctionalCall(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.gate = nn.Parameter(torch.tensor(0.3))

    def forward(self, x: Tensor) -> Tensor:
        changed = {name: value * self.gate for name, value in self.inner.named_parameters()}
        return functional_call(self.inner, changed, (x,))


@idiom(S, floats(6))
class HyperNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.make = nn.Linear(6, 24)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.make(x).view(-1, 4, 6)
        return torch.vmap(lambda w, v: w @ v)(weight, x)


@idiom(S, floats(6))
class GradientInside(nn.Module):
    """An energy whose derivative is the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.func.vmap(torch.func.grad(lambda v: self.fc(v).tanh().sum()))(x)


@idiom(S, floats(6))
class ParametersInLists(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.ParameterList(nn.Parameter(torch.randn(6)) for _ in range(3))
        self.named = nn.ParameterDict({"a": nn.Parameter(torch.randn(6))})
        self.parts = nn.ModuleDict({"x.y".replace(".", "_"): nn.Linear(6, 6)})

    def forward(self, x: Tensor) -> Tensor:
        y = x + self.named["a"]
        for row in self.rows:
            y = y * row
        return self.parts["x_y"](y)


@body(S, 6)
def scalar_out(y: Tensor) -> Tensor:
    return y.pow(2).mean()


@body(S, 6)
def loss_inside(y: Tensor) -> Any:
    return y, F.mse_loss(y, torch.zeros_like(y)), F.cross_entropy(y, y.argmax(1))


@body(S, 6)
def checks_inside(y: Tensor) -> Tensor:
    assert y.shape[1] == 6, "six features"
    torch._assert(y.dim() == 2, "a batch")
    torch._check(y.shape[0] > 0)
    return y


@body(S, 6)
def prints_and_copies(y: Tensor) -> Tensor:
    z = y.clone().detach().requires_grad_(True)
    return z.cpu().contiguous().to("cpu", torch.float32).type_as(y)
