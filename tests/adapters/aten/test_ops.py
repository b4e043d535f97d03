"""dlv.adapters.aten.ops: what each call becomes, and that it means the same.

The calls are exported by torch in one module; what they became is run again from op and
attributes alone, without the recorded call, and held against torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dlv.network.graph import Network, Node

torch: Any = pytest.importorskip("torch", reason="torch is the oracle here: dlv[torch]")
torch_module: Any = pytest.importorskip("dlv.network.torch.module")

from torch import nn  # noqa: E402

from tests.zoo.traced import Traced, trace  # noqa: E402

f = nn.functional
aten: Any = torch.ops.aten


def one_for_all(image: Any, weight: Any, transposed: bool) -> Any:
    """The call that decomposed graphs have for every convolution."""
    extra, groups = ([1, 0], 1) if transposed else ([0, 0], 2)
    return torch.convolution(image, weight, None, [2, 1], [1, 0], [1, 1], transposed, extra, groups)


class Held(nn.Module):
    """Parameters of every use, and statistics."""

    def __init__(self) -> None:
        super().__init__()
        shapes = {
            "c1": (6, 4, 3), "c2": (6, 2, 3, 4), "c3": (2, 4, 1, 2, 2), "d2": (4, 3, 3, 2),
            "d1": (4, 2, 3), "d3": (4, 2, 2, 2, 1), "w": (5, 6), "b6": (6,), "b5": (5,),
            "wt": (6, 5), "table": (9, 5), "side": (4, 1), "g4": (4,), "h4": (4,),
            "ln": (3, 6), "lb": (3, 6),
        }  # fmt: skip
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape)))
        self.register_buffer("mean", torch.randn(4))
        self.register_buffer("var", torch.rand(4) + 0.5)
        self.register_buffer("whole", torch.arange(4).reshape(4, 1))
        self.lstm = nn.LSTM(6, 3, bias=False)
        self.proj = nn.LSTM(6, 4, proj_size=2)
        self.rnn = nn.RNN(6, 3)

    def forward(self, x: Any, image: Any, volume: Any, tokens: Any) -> Any:
        given = Given(self, x, image, volume, tokens)
        return tuple(run(given) for _, run in CASES)


class Given:
    """The inputs, and every tensor of the module."""

    def __init__(self, held: Held, x: Any, image: Any, volume: Any, tokens: Any) -> None:
        self.held = held
        self.x, self.i, self.v, self.t = x, image, volume, tokens

    def __getattr__(self, name: str) -> Any:
        return getattr(self.held, name)


Case = tuple[str, Callable[[Given], Any]]

# What it becomes, and a call. x: 2×4×6, i(mage): 2×4×6×5, v(olume): 2×4×4×6×5, t(okens): 2×3.
CASES: list[Case] = [
    ("CONV", lambda m: f.conv1d(m.x, m.c1, m.b6, 2, 1, 2)),
    ("CONV", lambda m: f.conv1d(m.x, m.c1, None, padding="valid")),
    ("CONV", lambda m: f.conv2d(m.i, m.c2, m.b6, padding="same", groups=2)),
    ("CONV", lambda m: f.conv2d(m.i, m.c2, None, (2, 1), (0, 2), (1, 1), 2)),
    ("CONV", lambda m: f.conv3d(m.v, m.c3, stride=(2, 1, 1), padding=(0, 1, 0))),
    ("CONV", lambda m: one_for_all(m.i, m.c2, False)),
    ("DECONV", lambda m: one_for_all(m.i, m.d2, True)),
    ("DECONV", lambda m: f.conv_transpose1d(m.x, m.d1, None, 2, 1, 1, 2, 2)),
    ("DECONV", lambda m: f.conv_transpose2d(m.i, m.d2, None, (2, 1), 1, (1, 0))),
    ("DECONV", lambda m: f.conv_transpose3d(m.v, m.d3, groups=2, dilation=(1, 2, 1))),
    ("FULL", lambda m: f.linear(m.x, m.w, m.b5)),
    ("FULL", lambda m: f.linear(m.x, m.w)),
    ("EMBED", lambda m: f.embedding(m.t, m.table, padding_idx=0)),
    ("NORM BATCH", lambda m: f.batch_norm(m.x, m.mean, m.var, m.g4, m.h4, False, 0.2, 1e-3)),
    ("NORM BATCH", lambda m: f.batch_norm(m.i, None, None, m.g4, None, True)),
    ("NORM INSTANCE", lambda m: f.instance_norm(m.i, weight=m.g4, bias=m.h4, eps=1e-3)),
    ("NORM LAYER", lambda m: f.layer_norm(m.x[:, :3], (3, 6), m.ln, m.lb, 1e-3)),
    ("NORM LAYER", lambda m: f.layer_norm(m.x, (6,), m.b6)),
    ("NORM RMS", lambda m: f.rms_norm(m.x, (6,), m.b6, 1e-3)),
    ("NORM GROUP", lambda m: f.group_norm(m.i, 2, m.g4, m.h4, 1e-3)),
    ("NORM LRN", lambda m: f.local_response_norm(m.i, 3, 0.5, 0.7, 2.0)),
    ("NORM LRN", lambda m: f.local_response_norm(m.x, 4, 0.5)),
    ("RELU", lambda m: f.leaky_relu(m.x, 0.3)),
    ("RELU", lambda m: torch.relu(m.x)),
    ("ACT GELU", lambda m: f.gelu(m.x, approximate="tanh")),
    ("ACT GELU", lambda m: f.gelu(m.x)),
    ("ACT SILU", lambda m: f.silu(m.x)),
    ("ACT SIGMOID", lambda m: m.x.sigmoid()),
    ("ACT TANH", lambda m: torch.tanh(m.x)),
    ("ACT RELU6", lambda m: f.relu6(m.x * 9)),
    ("ACT RELU6", lambda m: f.hardtanh(m.x * 9, 0.0, 6.0)),
    ("aten.hardtanh.default", lambda m: f.hardtanh(m.x)),
    ("SOFTMAX", lambda m: m.x.softmax(1)),
    ("SOFTMAX", lambda m: f.log_softmax(m.x, -1)),
    ("aten.softmax.int", lambda m: m.x.softmax(1, dtype=torch.float64)),
    ("ADD", lambda m: m.x + m.x),
    ("ADD", lambda m: m.side + m.x),
    ("ADD", lambda m: 2 + m.x),
    ("ADD", lambda m: m.x - 1.5),
    ("MUL", lambda m: m.x * m.side),
    ("MUL", lambda m: 0.5 * m.x),
    ("aten.add.Tensor", lambda m: torch.add(m.x, m.x, alpha=2)),
    ("aten.add.Tensor", lambda m: m.t + 1),
    ("aten.add.Tensor", lambda m: m.x + m.whole),
    ("aten.add.Tensor", lambda m: m.side + m.g4),
    ("aten.mul.Tensor", lambda m: m.x * float("inf")),
    ("aten.sub.Tensor", lambda m: m.x - m.x[:1]),
    ("ATTENTION", lambda m: f.scaled_dot_product_attention(m.i, m.i, m.i, scale=0.3)),
    ("ATTENTION", lambda m: f.scaled_dot_product_attention(m.x, m.x, m.x, is_causal=True)),
    ("ATTENTION", lambda m: f.scaled_dot_product_attention(m.x, m.x, m.x, m.x @ m.x.mT)),
    ("RNN LSTM", lambda m: m.lstm(m.x)[0]),
    ("aten.lstm.input", lambda m: m.proj(m.x)[0]),
    ("aten.rnn_tanh.input", lambda m: m.rnn(m.x)[0]),
    ("POOL MAX", lambda m: f.max_pool1d(m.x, 3, 2, 1, 2)),
    ("POOL MAX", lambda m: f.max_pool2d(m.i, (3, 2), ceil_mode=True)),
    ("POOL MAX", lambda m: f.max_pool2d(m.i, 2, 1, return_indices=True)[0]),
    ("POOL MAX", lambda m: f.max_pool3d(m.v, 2, (1, 2, 2))),
    ("POOL AVG", lambda m: f.avg_pool1d(m.x, 2, 2, 1, True, False)),
    ("POOL AVG", lambda m: f.avg_pool2d(m.i, 2, 1, 1)),
    ("aten.avg_pool2d.default", lambda m: f.avg_pool2d(m.i, 2, divisor_override=3)),
    ("aten.avg_pool2d.default", lambda m: f.avg_pool2d(m.x, 2)),
    ("POOL AVG", lambda m: f.adaptive_avg_pool2d(m.i, (3, None))),
    ("POOL AVG", lambda m: f.adaptive_avg_pool1d(m.x, 4)),
    ("POOL MAX", lambda m: f.adaptive_max_pool3d(m.v, 2)),
    ("POOL MEAN", lambda m: m.i.mean((2, 3), keepdim=True)),
    ("POOL MEAN", lambda m: m.x.mean()),
    ("aten.mean.dim", lambda m: m.x.mean(1, dtype=torch.float64)),
    ("CONCAT", lambda m: torch.cat([m.x, m.x + 1, m.x], -1)),
    ("CONCAT", lambda m: torch.cat([m.x, m.x])),
    ("flatten", lambda m: m.i.flatten(1, 2)),
    ("reshape", lambda m: m.x.reshape(2, -1)),
    ("view", lambda m: m.x.view(-1, 3, 2)),
    ("reshape", lambda m: m.x.unflatten(-1, (2, -1))),
    ("aten.view.dtype", lambda m: m.x.view(torch.int32)),
    ("transpose", lambda m: m.x.transpose(0, -1)),
    ("transpose", lambda m: m.x[0].t()),
    ("permute", lambda m: m.i.permute(0, 2, 3, 1)),
    ("squeeze", lambda m: m.x[:, :1].squeeze(1)),
    ("squeeze", lambda m: m.x[:1, :1].squeeze()),
    ("squeeze", lambda m: m.x[:1, :1].squeeze((0, 1))),
    ("unsqueeze", lambda m: m.x.unsqueeze(-1)),
    ("select", lambda m: m.x.select(1, -1)),
    ("slice", lambda m: m.x[:, 1:-1:2]),
    ("slice", lambda m: m.x.narrow(1, -3, 2)),
    ("slice", lambda m: m.x.narrow(1, -2, 2)),
    ("expand", lambda m: m.x[:, :1].expand(-1, 5, -1)),
    ("split", lambda m: m.x.split([1, 3], 1)[1]),
    ("split", lambda m: m.x.split(4, -1)[1]),
    ("split", lambda m: m.x.chunk(3, -1)[2]),
    ("contiguous", lambda m: m.x.transpose(0, 1).contiguous()),
    ("aten.contiguous.default", lambda m: m.i.contiguous(memory_format=torch.channels_last)),
    ("to", lambda m: m.x.to(torch.float64)),
    ("aten.type_as.default", lambda m: m.x.double().type_as(m.x)),
    ("fill", lambda m: torch.zeros(3, 2)),  # noqa: ARG005
    ("fill", lambda m: torch.full((2,), 1.5)),  # noqa: ARG005
    ("fill", lambda m: torch.ones(m.x.shape[0], 2)),
    ("aten.ones.default", lambda m: torch.ones(2, dtype=torch.int64)),  # noqa: ARG005
    ("select", lambda m: m.x.unbind(1)[2]),
    ("FULL", lambda m: m.x @ m.wt),
    ("FULL", lambda m: m.x[0, 0] @ m.wt),
    ("FULL", lambda m: torch.mm(m.x[:, 0], m.wt)),
    ("FULL", lambda m: torch.addmm(m.b5, m.x[:, 0], m.wt)),
    ("FULL", lambda m: torch.addmm(m.b5, m.x[:, 0], m.w.t())),
    ("FULL", lambda m: torch.mm(m.x[:, 0], m.w.permute(1, 0))),
    ("FULL", lambda m: torch.mm(m.x[:, 0], m.w.transpose(-1, -2))),
    ("aten.addmm.default", lambda m: torch.addmm(m.b5, m.x[:, 0], m.wt, beta=2)),
    ("aten.addmm.default", lambda m: torch.addmm(m.b5, m.x[:, 0], m.w.t(), alpha=2)),
    ("aten.addmm.default", lambda m: torch.addmm(m.side[:2], m.x[:, 0], m.wt)),
    ("aten.matmul.default", lambda m: m.w @ m.x.mT),
    ("aten.mm.default", lambda m: torch.mm(m.side, m.x[0, :1])),
]  # fmt: skip


@pytest.fixture(scope="module")
def exported() -> Traced:
    torch.manual_seed(0)
    shapes = ((2, 4, 6), (2, 4, 6, 5), (2, 4, 4, 6, 5))
    inputs = (*(torch.randn(shape) for shape in shapes), torch.randint(0, 9, (2, 3)))
    return trace(Held(), inputs)


def end(found: Traced, case: int) -> Node:
    """The node behind an output, past what only takes an element."""
    node = found.network.node(found.network.outputs[case][0])
    return found.network.node(node.inputs[0][0]) if node.attrs.get("kind") == "getitem" else node


@pytest.mark.parametrize("case", range(len(CASES)))
def test_what_it_becomes(exported: Traced, case: int) -> None:
    node, wanted = end(exported, case), CASES[case][0]
    assert node.source is not None or node.variant == "LRN"
    if node.op == "OP":
        assert node.source is not None
        assert node.source["op"] == wanted
    elif node.op == "RESHAPE":
        assert node.attrs["kind"] == wanted
    else:
        assert f"{node.op} {node.variant or ''}".strip() == wanted


def from_attributes(network: Network) -> Network:
    """Without the recorded calls, where attributes tell all."""
    return replace(
        network,
        nodes=tuple(
            node
            if node.op == "OP" or node.attrs.get("kind") == "arithmetic"
            else replace(node, source=None)
            for node in network.nodes
        ),
    )


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("recorded", [True, False])
def test_it_means_the_same(exported: Traced, recorded: bool) -> None:
    network = exported.network if recorded else from_attributes(exported.network)
    state = {name: each.clone() for name, each in exported.module.state_dict().items()}
    module = torch_module.build(network, state, exported.constants).train()
    wanted, got = exported.module(*exported.inputs), module(*exported.inputs)
    # What was asked for by a literal, not by the mode: statistics that do not train.
    literal = [place for place, (word, _) in enumerate(CASES) if word == "NORM BATCH"][:1]
    wrong = []
    for place, (ours, theirs) in enumerate(zip(got, wanted, strict=True)):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        near = torch.allclose(ours, theirs, rtol=1e-6, atol=1e-6, equal_nan=True)
        if not near and place not in literal:
            wrong.append((place, CASES[place][0]))
    assert wrong == []


def test_an_even_kernel_pads_behind(exported: Traced) -> None:
    assert end(exported, 2).attrs["pad"] == ((1, 1), (1, 2))


def test_slots(exported: Traced) -> None:
    assert end(exported, 0).params == {"weight": "c1", "bias": "b6"}
    bare = next(place for place, (word, _) in enumerate(CASES) if word == "RNN LSTM")
    assert end(exported, bare).params.keys() == {"weight_ih_l0", "weight_hh_l0"}
    assert end(exported, bare).attrs["bias"] is False
