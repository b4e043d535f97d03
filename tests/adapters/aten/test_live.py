"""dlv.adapters.aten.live over the zoo: structure, names, shapes, and a module left as it was."""

from __future__ import annotations

import collections
import copy
import json
import random
import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from dlv.canonical import matrix_hash
from dlv.errors import UsageError
from dlv.network import json_form
from dlv.network.graph import Network
from dlv.network.inference import node_shapes
from dlv.network.sizes import Shape
from dlv.network.verify import verify

torch: Any = pytest.importorskip("torch", reason="torch makes these networks: dlv[torch]")

from torch import nn  # noqa: E402

from dlv.adapters.aten.exported_graph import fill  # noqa: E402
from dlv.adapters.aten.live import STATIC as STATIC_NOTE  # noqa: E402
from dlv.adapters.aten.live import Unexportable  # noqa: E402
from dlv.adapters.aten.live import trace as live  # noqa: E402
from dlv.adapters.aten.network import convert  # noqa: E402
from tests.zoo.models import STATIC, UNEXPORTABLE, ZOO, build  # noqa: E402
from tests.zoo.traced import Traced, trace, traced  # noqa: E402

every = pytest.mark.parametrize("name", sorted(ZOO))

# What each model needs beyond the vocabulary; everything else has a word of its own.
RAW: dict[str, set[str]] = {
    "unet": {"upsample_nearest2d"},
    "gpt": {"arange"},
    "functional": {"div", "exp", "gt", "where"},
    "rolled": {"bilinear", "cumsum", "prelu", "roll", "sum", "topk"},
    "pools": {"feature_dropout", "stack"},
    "masked": {"baddbmm", "bmm", "masked_fill", "zeros_like"},
}


def recorded(found: Traced) -> dict[str, tuple[Shape, ...]]:
    """The shapes that torch noted while it exported, by node and port."""
    graph = fill(torch, found.program)
    constants = {tensor.name: tensor for tensor in found.checkpoint.constants}
    return convert(graph, constants, {}).recorded


@every
class TestZoo:
    def test_no_problem_is_found(self, name: str) -> None:
        found = traced(name)
        problems = verify(found.network, found.tensors)
        assert [str(p) for p in problems if p.severity == "error"] == []

    def test_every_tensor_is_used_or_told(self, name: str) -> None:
        found = traced(name)
        network, state = found.network, found.tensors
        used = {kept for node in network.nodes for kept in node.params.values()}
        assert used <= state.keys()
        told = {p.seen for p in verify(network, state) if p.rule == "extra"}
        tied = {each for each, kept in network.aliases.items() if kept in used}
        tied |= {network.aliases[each] for each in used if each in network.aliases}
        assert used | told | tied == set(state)
        # Nothing but what counts batches is of no use here.
        assert all(each.endswith("num_batches_tracked") for each in told)

    def test_shapes_are_those_that_torch_saw(self, name: str) -> None:
        found = traced(name)
        shapes = node_shapes(found.network, found.tensors)
        for node, ports in recorded(found).items():
            seen = shapes[node]
            if found.network.node(node).op == "OP":
                assert seen == ports[:1]
            elif node == "topk.1":
                assert seen == (None,)  # of an unknown operation, the first output is known
            else:
                assert seen[: len(ports)] == ports[: len(seen)], node

    def test_what_is_beyond_the_vocabulary(self, name: str) -> None:
        raw = {
            str(node.source["op"]).split(".")[1]
            for node in traced(name).network.nodes
            if node.op == "OP" and node.source
        }
        assert raw == RAW.get(name, set())
        notes = [note for note in traced(name).checkpoint.notes if "beyond" in note]
        assert len(notes) == bool(raw)

    def test_plain_json_gives_the_same_network(self, name: str) -> None:
        network = traced(name).network
        text = json.dumps(json_form.write(network))
        again, warnings = json_form.read(json.loads(text))
        assert (again.id, warnings) == (network.id, [])
        assert Network.from_canonical(network.canonical()).id == network.id

    def test_the_batch_is_open(self, name: str) -> None:
        found = traced(name)
        origin = found.network.origin or {}
        assert (origin["importer"], origin["version"]) == ("torch.export", torch.__version__)
        static = origin.get("batch") == "static"
        assert static == (name in STATIC) == (STATIC_NOTE in found.checkpoint.notes)
        for item, given in zip(found.network.inputs, found.inputs, strict=True):
            assert item.shape[1:] == tuple(given.shape[1:])
            assert item.shape[0] == (given.shape[0] if static else "B")
            assert item.dtype == str(given.dtype).removeprefix("torch.")

    def test_sources_refer_to_what_is_there(self, name: str) -> None:
        for node in traced(name).network.nodes:
            if node.variant == "LRN":
                assert node.source is None
                continue
            assert node.source is not None
            tags: dict[str, list[Any]] = collections.defaultdict(list)
            todo = [*node.source["args"], *node.source["kwargs"].values()]
            while todo:
                ((tag, value),) = todo.pop().items()
                todo.extend(value) if tag == "l" else tags[tag].append(value)
            assert sorted(tags["n"]) == list(range(len(node.inputs)))
            assert sorted(tags["p"]) == sorted(node.params)


class TestStructure:
    def test_lenet(self) -> None:
        network = traced("lenet").network
        assert [(node.name, node.op) for node in network.nodes] == [
            ("conv1", "CONV"),
            ("pool1", "POOL"),
            ("conv2", "CONV"),
            ("pool2", "POOL"),
            ("flatten", "RESHAPE"),
            ("ip1", "FULL"),
            ("relu1", "RELU"),
            ("ip2", "FULL"),
            ("softmax", "SOFTMAX"),
        ]
        before = "x"
        for node in network.nodes:
            assert node.inputs == ((before, 0),)
            before = node.name
        assert network.outputs == (("softmax", 0),)
        conv, pool = network.node("conv2"), network.node("pool2")
        assert (conv.attrs["out"], conv.attrs["kernel"], conv.attrs["pad"]) == (
            50,
            (5, 5),
            ((0, 0), (0, 0)),
        )
        assert conv.params == {"weight": "conv2.weight", "bias": "conv2.bias"}
        assert (pool.variant, pool.attrs["stride"]) == ("MAX", (2, 2))
        assert conv.source == {
            "dialect": "aten",
            "op": "aten.conv2d.default",
            "args": [{"n": 0}, {"p": "weight"}, {"p": "bias"}],
            "kwargs": {},
        }

    @pytest.mark.parametrize(
        ("name", "counts"),
        [
            ("resnet16", "CONV 17 NORM-BATCH 17 RELU 15 ADD 7 POOL-AVG 1 RESHAPE 1 FULL 1"),
            (
                "alexnet",
                "RELU 4 CONV 3 POOL-MAX 2 POOL-AVG 1 NORM-LRN 1 RESHAPE 1 FULL 2 DROPOUT 2",
            ),
            ("generator", "DECONV 3 NORM-BATCH 2 RELU 2 ACT-TANH 1"),
            ("norms", "NORM-GROUP 1 NORM-INSTANCE 2 CONV 1 NORM-LAYER 2 NORM-RMS 1 NORM-BATCH 2"),
        ],
    )
    def test_counts(self, name: str, counts: str) -> None:
        found = collections.Counter(
            node.op if node.variant is None else f"{node.op}-{node.variant}"
            for node in traced(name).network.nodes
        )
        words = counts.split()
        assert found == dict(zip(words[::2], map(int, words[1::2]), strict=True))

    def test_alexnet(self) -> None:
        network = traced("alexnet").network
        norm = {"size": 5, "alpha": 1e-4, "beta": 0.75, "k": 1.0, "axis": 1}
        assert network.node("features.2").attrs == norm
        assert network.node("features.4").attrs["groups"] == 2
        assert network.node("features.6").attrs["ceil"] is True
        assert network.node("avgpool").attrs["size"] == (2, 2)
        assert network.node("classifier.0").attrs["p"] == 0.4
        assert network.node("features.0").attrs["pad"] == ((2, 2), (2, 2))

    def test_depthwise_and_relu6(self) -> None:
        network = traced("mobilenet").network
        assert network.node("features.3.conv.3").attrs["groups"] == 16
        assert network.node("features.3.conv.2").variant == "RELU6"
        assert network.node("features.3.add").inputs == (
            ("features.2", 0),
            ("features.3.conv.7", 0),
        )

    def test_skip_connections(self) -> None:
        network = traced("unet").network
        assert network.node("cat").inputs == (("up2", 0), ("down2.1", 0))
        assert network.node("cat_1").inputs == (("up1", 0), ("down1.1", 0))
        assert network.node("up2").op == "DECONV"

    def test_generator(self) -> None:
        network = traced("generator").network
        assert network.node("main.6").attrs["output_pad"] == (1, 1)
        assert network.node("main.5").attrs["slope"] == 0.2
        assert network.node("main.0").attrs["bias"] is False

    def test_attention(self) -> None:
        bert, gpt = traced("bert").network, traced("gpt").network
        mixed = next(node for node in bert.nodes if node.op == "ATTENTION")
        assert (mixed.attrs["p"], mixed.attrs["causal"], mixed.attrs["heads"]) == (0.1, False, None)
        causal = next(node for node in gpt.nodes if node.op == "ATTENTION")
        assert (causal.attrs["p"], causal.attrs["causal"]) == (0.0, True)
        assert [item.name for item in bert.inputs] == ["input_ids", "token_type_ids"]
        gelu = {node.attrs["approximate"] for node in gpt.nodes if node.variant == "GELU"}
        assert gelu == {"tanh"}

    def test_tied_embedding(self) -> None:
        network = traced("gpt").network
        assert network.aliases == {"lm_head.weight": "wte.weight"}
        assert network.node("wte").params == {"weight": "wte.weight"}
        assert network.node("lm_head").params == {"weight": "lm_head.weight"}

    def test_shared_modules(self) -> None:
        network = traced("shared").network
        assert [node.name for node in network.nodes] == [
            *("encode", "tanh", "again", "tanh_1", "decode")
        ]
        assert network.aliases == {
            "again.weight": "encode.weight",
            "again.bias": "encode.bias",
            "decode.weight": "encode.weight",
        }
        twice = traced("functional").network
        assert twice.node("twice").params == twice.node("twice_1").params
        assert twice.node("twice_1").inputs == (("relu", 0),)

    def test_recurrent(self) -> None:
        network = traced("lstm").network
        node = network.node("lstm")
        assert (node.op, node.variant, len(node.params)) == ("RNN", "LSTM", 16)
        assert node.params["bias_hh_l1_reverse"] == "lstm.bias_hh_l1_reverse"
        assert [name for name, _ in node.inputs] == ["embed", "lstm.zeros", "lstm.zeros_1"]
        assert network.node("lstm.zeros").attrs["size"] == (4, "B", 8)
        assert network.outputs == (("fc", 0), ("lstm", 1))
        gru = traced("gru").network
        assert gru.node("select").inputs == (("gru", 1),)
        assert traced("gru_state").network.node("gru").inputs == (("x", 0), ("state", 0))

    def test_split_is_addressed_by_port(self) -> None:
        network = traced("gpt").network
        assert network.node("h.0.split").attrs["sizes"] == (16, 16, 16)
        assert network.node("h.0.view_2").inputs[0] == ("h.0.split", 2)

    def test_unknown_operation_with_two_outputs(self) -> None:
        network = traced("rolled").network
        assert network.node("topk").out_shape == ("B", 3)
        assert network.node("topk.1").attrs == {"kind": "getitem", "index": 1}
        assert network.outputs == (("add", 0), ("topk.1", 0))
        assert network.node("roll").source == {
            "dialect": "aten",
            "op": "aten.roll.default",
            "args": [{"n": 0}, {"l": [{"c": 1}]}, {"l": [{"c": -1}]}],
            "kwargs": {},
        }
        assert network.node("prelu").params == {"weight": "prelu.weight"}

    def test_constants(self) -> None:
        found = traced("functional")
        held = {tensor.name: tensor for tensor in found.checkpoint.constants}
        assert set(held) == set(found.network.constants) == {"scale", "lifted_tensor_0"}
        lifted = np.frombuffer(bytes(held["lifted_tensor_0"].read()), "f4")
        assert lifted.tolist() == [0.25, -0.25] * 4
        for name, tensor in held.items():
            wanted = matrix_hash(tensor.dtype, tensor.shape, bytes(tensor.read()))
            assert found.network.constants[name] == wanted
        assert found.network.node("add_1").inputs == (("mul", 0), ("lifted_tensor_0", 0))
        assert found.network.node("mul_1").params == {"value": "gain"}
        # A hidden buffer is no part of the state dict.
        assert "scale" not in found.module.state_dict()

    def test_masks_and_named_inputs(self) -> None:
        network = traced("masked").network
        assert [(item.name, item.dtype) for item in network.inputs] == [
            ("x", "float32"),
            ("mask", "bool"),
        ]
        fill = network.node("attention.masked_fill")
        assert fill.source is not None
        assert fill.source["args"][2] == {"c": "-Infinity"}


@pytest.mark.parametrize("name", sorted(UNEXPORTABLE))
def test_unexportable(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    module, inputs = build(name)
    with pytest.raises(Unexportable) as caught:
        live(module, inputs)
    assert isinstance(caught.value, UsageError)
    assert "GuardOnDataDependentSymNode" in (caught.value.why or "")
    assert "onnx" in (caught.value.hint or "")
    # What went wrong is told once, by the error.
    assert capfd.readouterr() == ("", "")


class Restless(nn.Module):
    """Whatever a forward may do to its module."""

    steps: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.frozen = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("steps", torch.zeros(4))
        self.seen: list[Any] = []
        self.about: dict[str, Any] = {"kept": 1}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps.add_(1)
        self.seen.append(len(x.shape))
        self.about["new"] = random.random()
        self.extra = 5
        random.random()
        np.random.rand()
        out: torch.Tensor = self.drop(self.frozen(self.first(x))) + torch.rand(4)
        return out


def test_the_module_is_as_before() -> None:
    torch.manual_seed(3)
    module = Restless()
    module.frozen.eval()
    module(torch.randn(8, 4)).sum().backward()
    module.first.bias.requires_grad_(False)
    x = torch.randn(8, 4, requires_grad=True)
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    values = copy.deepcopy(tensors)
    grads = {name: each.grad for name, each in module.named_parameters()}
    grad_values = copy.deepcopy(grads)
    modes = {name: each.training for name, each in module.named_modules()}
    attributes = dict(vars(module))
    numbers = torch.get_rng_state(), random.getstate(), np.random.get_state()

    network = live(module, x).network

    assert network is not None
    after = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    assert all(after[name] is each for name, each in tensors.items())
    assert all(torch.equal(after[name], each) for name, each in values.items())
    assert all(each.grad is grads[name] for name, each in module.named_parameters())
    for name, each in grad_values.items():
        assert each is None or torch.equal(each, cast(Any, grads[name]))
    assert not module.first.bias.requires_grad
    assert modes == {name: each.training for name, each in module.named_modules()}
    assert not module.frozen.training
    assert vars(module).keys() == attributes.keys()
    assert module.seen == [2]
    assert module.about.keys() == {"kept", "new"}
    assert torch.equal(torch.get_rng_state(), numbers[0])
    assert random.getstate() == numbers[1]
    assert repr(np.random.get_state()) == repr(numbers[2])
    assert x.grad is None


def test_a_failure_leaves_it_as_before_too() -> None:
    class Failing(Restless):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            super().forward(x)
            raise OSError("the disk is gone")

    module, x = Failing().eval(), torch.randn(2, 4)
    state = torch.get_rng_state()
    with pytest.raises(Unexportable, match="forward fails") as caught:
        live(module, x)
    assert caught.value.why == "OSError: the disk is gone"
    assert not any(each.training for each in module.modules())
    assert torch.equal(torch.get_rng_state(), state)
    assert module.seen == []
    assert module.steps.sum() == 0


def names(network: Network) -> list[str]:
    return [node.name for node in network.nodes]


def words(found: Traced) -> list[str]:
    return [
        str(node.source["op"]) if node.op == "OP" and node.source else node.op
        for node in found.network.nodes
    ]


class Base(nn.Module):
    avg: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.fc_1 = nn.Linear(4, 4)
        self.cls = nn.Parameter(torch.randn(1, 4))
        self.register_buffer("avg", torch.zeros(4))


class Written(Base):
    """A part of a tensor is written, then the whole is read."""

    def forward(self, x: torch.Tensor) -> Any:
        y = self.fc(x)
        y[:, 0] = 0
        return y.relu()


class Viewed(Base):
    """A view is taken before, and read after the change."""

    def forward(self, x: torch.Tensor) -> Any:
        y = self.fc(x)
        view = y.view(-1)
        y.add_(1)
        return y.sum() + view.sum()


class Cloned(Base):
    """Only the copy is written."""

    def forward(self, x: torch.Tensor) -> Any:
        y = self.fc(x)
        z = y.clone()
        z[:, 1] = 3
        return y + z


class Chained(Base):
    """In-place calls that are as good as functions; a copy that is none."""

    def forward(self, x: torch.Tensor) -> Any:
        return self.fc(x).clone().mul_(2).add_(1).relu_()


class Moving(Base):
    """A buffer that is changed by hand."""

    def forward(self, x: torch.Tensor) -> Any:
        y = self.fc(x)
        self.avg.mul_(0.9).add_(y.mean(0).detach(), alpha=0.1)
        return y + self.avg


class WithoutGradients(Base):
    def forward(self, x: torch.Tensor) -> Any:
        with torch.no_grad():
            y = self.fc(x)
        return y * self.fc_1(x)


class Unbound(Base):
    def forward(self, x: torch.Tensor) -> Any:
        a, _, c, d = self.fc(x).unbind(1)
        return a * c + d


class Handed(Base):
    """A parameter comes out, and one joins what flows."""

    def forward(self, x: torch.Tensor) -> Any:
        return self.fc.weight, torch.cat([self.cls.expand(x.shape[0], -1), self.fc(x)], 1)


class Literal(Base):
    """A dropout that is told never to drop, beside one that does."""

    def forward(self, x: torch.Tensor) -> Any:
        functional = nn.functional
        x = functional.dropout(self.fc(x), 0.5, training=self.training)
        return functional.dropout(x, 0.25, training=False)


class Twice(Base):
    """The second call of `fc` would like the name that another module has."""

    def forward(self, x: torch.Tensor) -> Any:
        return self.fc_1(self.fc(self.fc(x)))


class Whole(Base):
    """Numbers: whole ones stay whole."""

    def forward(self, x: torch.Tensor) -> Any:
        half = x.to(torch.float16).to(memory_format=torch.preserve_format)
        return self.fc(x) - 1, (x > 0).long() + 1, half


class Halves(Base):
    """In place keeps the dtype of the first, a function takes the wider one."""

    def forward(self, x: torch.Tensor) -> Any:
        y = self.fc(x).half()
        y.mul_(x)
        return y


TRAPS: dict[type[Base], tuple[list[str], list[str]]] = {
    Written: (
        ["FULL", *["RESHAPE"] * 5, "CONCAT", "RELU"],
        ["fc", "select", "sym_size", "full", "unsqueeze", "slice", "cat", "relu"],
    ),
    Viewed: (
        ["FULL", "ADD", "aten.sum.default", "RESHAPE", "aten.sum.default", "ADD"],
        ["fc", "add", "sum", "view", "sum_1", "add_1"],
    ),
    Cloned: (
        ["FULL", *["RESHAPE"] * 6, "CONCAT", "ADD"],
        ["fc", "select", "sym_size", "full", "unsqueeze", "slice", "slice_1", "cat", "add"],
    ),
    Chained: (["FULL", "MUL", "ADD", "RELU"], ["fc", "mul", "add", "relu"]),
    Moving: (
        [
            *("FULL", "aten.mul.Tensor", "POOL", "aten.detach.default"),
            *("aten.add.Tensor", "ADD", "aten.copy_.default"),
        ],
        ["fc", "mul", "mean", "detach", "add", "add_1", "copy"],
    ),
    WithoutGradients: (
        ["FULL", "aten.detach.default", "FULL", "MUL"],
        ["fc", "detach", "fc_1", "mul"],
    ),
    Unbound: (
        ["FULL", *["RESHAPE"] * 3, "MUL", "ADD"],
        ["fc", "select", "select_1", "select_2", "mul", "add"],
    ),
    Handed: (
        ["RESHAPE", "aten.expand.default", "FULL", "CONCAT", "aten.alias.default"],
        ["sym_size", "expand", "fc", "cat", "alias"],
    ),
    Literal: (["FULL", "DROPOUT"], ["fc", "dropout"]),
    Twice: (["FULL"] * 3, ["fc", "fc_2", "fc_1"]),
    Whole: (
        [*["RESHAPE"] * 2, "FULL", "ADD", "aten.gt.Scalar", "RESHAPE", "aten.add.Tensor"],
        ["to", "to_1", "fc", "sub", "gt", "to_2", "add"],
    ),
    Halves: (["FULL", "RESHAPE", "MUL", "RESHAPE"], ["fc", "to", "mul", "to_1"]),
}


@pytest.fixture(scope="module")
def caught() -> Callable[[type[Base]], Traced]:
    """Each trap, exported once."""
    found: dict[type[Base], Traced] = {}

    def one(kind: type[Base]) -> Traced:
        if kind not in found:
            torch.manual_seed(0)
            found[kind] = trace(kind(), torch.randn(3, 4))
        return found[kind]

    return one


@pytest.mark.parametrize("kind", TRAPS)
class TestTraps:
    def test_what_it_becomes(
        self, kind: type[Base], caught: Callable[[type[Base]], Traced]
    ) -> None:
        assert words(caught(kind)) == TRAPS[kind][0]
        assert names(caught(kind).network) == TRAPS[kind][1]

    def test_it_is_sound(self, kind: type[Base], caught: Callable[[type[Base]], Traced]) -> None:
        found = caught(kind)
        problems = verify(found.network, found.tensors)
        assert [str(p) for p in problems if p.severity == "error"] == []

    @pytest.mark.parametrize("batch", [3, 5])
    @pytest.mark.parametrize("training", [True, False])
    def test_it_computes_the_same(
        self, kind: type[Base], caught: Callable[[type[Base]], Traced], batch: int, training: bool
    ) -> None:
        torch_module = pytest.importorskip("dlv.network.torch.module")
        found = caught(kind)
        state = {name: each.clone() for name, each in found.module.state_dict().items()}
        rebuilt = torch_module.build(found.network, state, found.constants)
        rebuilt.train(training)
        original = copy.deepcopy(found.module).train(training)
        x = torch.randn(batch, 4)
        results = []
        for each in (original, rebuilt):
            torch.manual_seed(1)
            result = each(x)
            results.append(result if isinstance(result, tuple) else (result,))
        for wanted, got in zip(*results, strict=True):
            assert torch.equal(wanted, got)
            assert wanted.dtype == got.dtype
        assert all(
            torch.equal(each, rebuilt.state_dict()[name])
            for name, each in original.state_dict().items()
        )


def test_written_buffers_are_told(caught: Callable[[type[Base]], Traced]) -> None:
    assert any("forward changes avg" in note for note in caught(Moving).checkpoint.notes)


class Inputs(nn.Module):
    def forward(self, x: Any, *, pair: Any, scale: float = 2.0, mask: Any = None) -> Any:
        y = x * scale + pair["left"] + pair["right"][0]
        return y if mask is None else y * mask


def test_named_and_nested_inputs() -> None:
    x = torch.randn(2, 3)
    found = live(Inputs(), x, {"pair": {"left": x + 1, "right": [torch.randn(3)]}, "scale": 3.0})
    assert found.network is not None
    shapes = {item.name: item.shape for item in found.network.inputs}
    assert shapes == {"x": ("B", 3), "pair_left": ("B", 3), "pair_right_0": (3,)}
    same = live(Inputs(), {"x": x, "pair": {"left": x, "right": [torch.randn(3)]}, "scale": 3.0})
    assert same.network is not None
    assert same.network.id == found.network.id


def test_a_batch_of_one_is_enough() -> None:
    found = live(nn.Linear(3, 2), torch.randn(1, 3)).network
    assert found is not None
    assert found.inputs[0].shape == ("B", 3)
    fixed = live(nn.Linear(3, 2), torch.randn(1, 3), dynamic_batch=False)
    assert fixed.network is not None
    assert fixed.network.inputs[0].shape == (1, 3)
    assert STATIC_NOTE not in fixed.notes  # it was asked for


class Casting(Base):
    """What is recorded depends on gradients being on, and on autocast being off."""

    def forward(self, x: torch.Tensor) -> Any:
        with torch.no_grad():
            y = self.fc(x)
        return self.fc_1(y).to(x.dtype)


def test_what_is_around_the_call_does_not_matter() -> None:
    module, x = Casting(), torch.randn(2, 4)
    plain = live(module, x).network
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        around = live(module, x).network
        assert torch.is_autocast_enabled("cpu")
        assert not torch.is_grad_enabled()
    with torch.inference_mode():
        inference = live(module, x).network
        created_here = live(module, torch.randn(2, 4)).network
    ids = {found.id if found else None for found in (plain, around, inference, created_here)}
    assert len(ids) == 1
    assert plain is not None
    assert names(plain) == ["fc", "detach", "fc_1", "to"]


def test_the_mode_does_not_matter() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.3))
    x = torch.randn(3, 4)
    trained, evaluated = live(module.train(), x).network, live(module.eval(), x).network
    assert trained is not None
    assert evaluated is not None
    assert trained.id == evaluated.id
    assert [node.op for node in trained.nodes] == ["FULL", "NORM", "DROPOUT"]
    assert trained.nodes[1].source is not None
    assert trained.nodes[1].source["args"][5] == {"c": True}


def test_wrapped_modules() -> None:
    module, x = nn.Sequential(nn.Linear(3, 2), nn.ReLU()), torch.randn(2, 3)
    plain = live(module, x).network
    assert plain is not None
    for wrapped in (nn.DataParallel(module), torch.compile(module, backend="eager")):
        found = live(wrapped, x).network
        assert found is not None
        assert found.id == plain.id


def test_other_dtypes() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.Tanh()).to(torch.bfloat16)
    found = trace(module, torch.randn(2, 3).to(torch.bfloat16))
    assert found.network.inputs[0].dtype == "bfloat16"
    assert not [p for p in verify(found.network, found.tensors) if p.severity == "error"]
    double = live(nn.Linear(3, 2).double(), torch.randn(2, 3).double()).network
    assert double is not None
    assert double.inputs[0].dtype == "float64"


def test_wrong_arguments() -> None:
    with pytest.raises(UsageError, match="not function"):
        live(lambda x: x, torch.randn(2))
    with pytest.raises(UsageError, match="not int"):
        live(nn.ReLU(), 5)
    with pytest.raises(Unexportable, match="forward fails") as caught:
        live(nn.Linear(3, 2), torch.randn(2, 4))
    assert "same reduction dim" in (caught.value.why or "")


def test_long_chains_are_fast() -> None:
    """What dlv adds to torch's own time grows with the number of layers, no faster."""
    layers: list[nn.Module] = []
    for _ in range(150):
        layers += [nn.Linear(4, 4), nn.ReLU(inplace=True)]
    found = trace(nn.Sequential(*layers), torch.randn(2, 4))
    start = time.process_time()
    converted = convert(fill(torch, found.program), {}, {})
    problems = verify(converted.network, found.tensors)
    assert time.process_time() - start < 5  # 3 s for 1,000 layers
    assert len(converted.network.nodes) == 300
    assert problems == []


class _Frozen(nn.Module):
    """Statistics that no layer of the vocabulary takes, and some that nothing reads."""

    weight: Any
    bias: Any
    running_mean: Any
    running_var: Any

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.aux = nn.Linear(4, 4), nn.BatchNorm1d(4)
        for name in ("weight", "bias", "running_mean", "running_var"):
            self.register_buffer(name, torch.rand(4))

    def forward(self, x: Any) -> Any:
        scale = self.weight * (self.running_var + 1e-5).rsqrt()
        return self.fc(x) * scale + (self.bias - self.running_mean) * scale


def test_buffers_that_are_no_layers_statistics_are_told() -> None:
    network = live(_Frozen(), torch.randn(3, 4)).network
    assert network is not None
    own = ["weight", "bias", "running_mean", "running_var"]
    assert (network.origin or {})["buffers"] == [*own, "aux.running_mean", "aux.running_var"]
