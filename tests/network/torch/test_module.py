"""Networks as modules: names, parameters and buffers, modes, copies, what is refused."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from dlv.canonical import matrix_hash
from dlv.errors import NotFound, UsageError
from dlv.network.graph import Input, Network, Node
from dlv.network.json_form import read
from dlv.network.vocabulary import complete

torch: Any = pytest.importorskip("torch", reason="torch runs the networks: dlv[torch]")
torch_module: Any = pytest.importorskip("dlv.network.torch.module")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


def node(
    name: str,
    op: str,
    inputs: Sequence[Any],
    params: Mapping[str, str] | None = None,
    /,
    *,
    variant: str | None = None,
    source: Mapping[str, Any] | None = None,
    **attrs: Any,
) -> Node:
    ports = tuple(each if isinstance(each, tuple) else (each, 0) for each in inputs)
    full = complete(op, variant, attrs, params=params or {})
    return Node(name, op, variant, full, ports, params or {}, source)


def aten(op: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"dialect": "aten", "op": op, "args": list(args), "kwargs": kwargs}


N, X = {"n": 0}, Input("x", ("B", 4))


def network(*nodes: Node, outputs: Sequence[str] = (), **rest: Any) -> Network:
    ends = tuple((name, 0) for name in outputs or [nodes[-1].name])
    return Network(rest.pop("inputs", (X,)), nodes, ends, **rest)


def linear(name: str, before: str, out: int, *, path: str = "") -> Node:
    path = path or name
    slots = {"weight": f"{path}.weight", "bias": f"{path}.bias"}
    return node(name, "FULL", [before], slots, out=out)


class Block(torch.nn.Module):  # type: ignore[misc]
    """All that a state dict may hold: parameters and buffers of any dtype, used or not."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.full((4,), 2.0))
        self.gain = torch.nn.Parameter(torch.randn(4))
        self.fc = torch.nn.Linear(4, 4)
        self.bn = torch.nn.BatchNorm1d(4)
        self.unused = torch.nn.Linear(2, 2)
        self.register_buffer("mask", torch.tensor([True, False]))
        self.register_buffer("hidden", torch.arange(4.0), persistent=False)
        self.head = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5))

    def forward(self, x: Any) -> Any:
        x = self.bn(self.fc(x)) * self.gain * self.scale + self.hidden
        return self.head(x)


def block_network() -> Network:
    slots = ("weight", "bias", "running_mean", "running_var")
    bn = {slot: f"bn.{slot}" for slot in slots}
    return network(
        linear("fc", "x", 4),
        node("bn", "NORM", ["fc"], bn, variant="BATCH"),
        node("mul", "MUL", ["bn"], {"value": "gain"}, shape=[4]),
        node("mul_1", "MUL", ["mul"], {"value": "scale"}, shape=[4]),
        node("add", "ADD", ["mul_1", "hidden"]),
        linear("head.0", "add", 3),
        node("head.1", "DROPOUT", ["head.0"]),
        constants={"hidden": matrix_hash("float32", (4,), bytes(16))},
    )


def block() -> tuple[Any, Any]:
    module = Block()
    constants = {"hidden": module.hidden.clone()}
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    made = torch_module.build(block_network(), state, constants, buffers=["scale"])
    return module, made


def test_names_kinds_and_order() -> None:
    module, made = block()
    assert list(made.state_dict()) == list(module.state_dict())
    wanted = [(name, tensor.dtype) for name, tensor in module.named_parameters()]
    assert [(name, tensor.dtype) for name, tensor in made.named_parameters()] == wanted
    assert {name for name, _ in made.named_buffers()} == {n for n, _ in module.named_buffers()}
    assert made.head.get_submodule("0").weight is dict(made.named_parameters())["head.0.weight"]
    made.load_state_dict(Block().state_dict(), strict=True)


def test_it_computes_and_learns_the_same() -> None:
    module, made = block()
    optimizers = [torch.optim.SGD(each.parameters(), 0.1, momentum=0.9) for each in (module, made)]
    for size in (2, 5, 7):
        x, results = torch.randn(size, 4), []
        for each, optimizer in zip((module, made), optimizers, strict=True):
            torch.manual_seed(size)
            optimizer.zero_grad()
            found = each(x)
            found.square().sum().backward()
            optimizer.step()
            results.append(found.detach())
        assert torch.equal(*results)
    wanted = module.state_dict()
    for name, tensor in made.state_dict().items():
        assert torch.equal(tensor, wanted[name]), name
    assert made.state_dict()["bn.num_batches_tracked"] == 3
    module.eval(), made.eval()
    x = torch.randn(1, 4)
    assert torch.equal(module(x), made(x))
    assert made.state_dict()["bn.num_batches_tracked"] == 3


def test_the_tensors_are_not_those_given() -> None:
    """Training must not write into what was handed in, but for the memory it said it gives."""
    module = Block()
    state = module.state_dict()
    made = torch_module.build(block_network(), state, {"hidden": module.hidden}, buffers=["scale"])
    assert made.fc.weight is not module.fc.weight
    assert made.fc.weight.requires_grad
    assert not made.scale.requires_grad


def tied() -> Any:
    table = torch.randn(4, 4)
    state = {
        "embed.weight": table,
        "norm.weight": torch.ones(4),
        "head.weight": table.clone(),
        "head.bias": torch.zeros(4),
    }
    return torch_module.build(
        network(
            node("embed", "FULL", ["x"], {"weight": "embed.weight"}, out=4),
            node("norm", "NORM", ["embed"], {"weight": "norm.weight"}, variant="LAYER"),
            node("head", "FULL", ["norm"], {"weight": "head.weight", "bias": "head.bias"}, out=4),
            aliases={"head.weight": "embed.weight", "more.weight": "embed.weight"},
        ),
        state,
        {},
    )


def test_tied_weights() -> None:
    made = tied()
    names = ["embed.weight", "norm.weight", "head.weight", "head.bias", "more.weight"]
    assert list(made.state_dict()) == names
    assert made.head.weight is made.embed.weight is made.more.weight
    assert len(list(made.parameters())) == 3
    optimizer = torch.optim.SGD(made.parameters(), 0.1)
    before = made.embed.weight.detach().clone()
    made(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    assert made.head.weight is made.embed.weight
    assert not torch.equal(made.embed.weight, before)
    for copied in (copy.deepcopy(made), made.double()):
        assert copied.head.weight is copied.embed.weight


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "save"])
def test_copies_stand_alone(way: str) -> None:
    _, made = block()
    if way == "deepcopy":
        other = copy.deepcopy(made)
    elif way == "pickle":
        other = pickle.loads(pickle.dumps(made))
    else:
        file = io.BytesIO()
        torch.save(made, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
    x = torch.randn(3, 4)
    torch.manual_seed(1)
    wanted = made(x)
    torch.manual_seed(1)
    assert torch.equal(other(x), wanted)
    with torch.no_grad():
        for tensor in other.parameters():
            tensor.zero_()
    other.eval(), made.eval()
    assert not other(x).any()
    assert made(x).any()
    assert made.bn.training is False


def test_a_part_may_be_in_another_mode() -> None:
    """As people freeze the statistics of a pretrained network."""
    _, made = block()
    made.bn.eval()
    made.head.eval()
    x = torch.randn(3, 4)
    assert torch.equal(made(x), made(x))
    assert made.state_dict()["bn.num_batches_tracked"] == 0


def test_functional_calls_and_parametrizations() -> None:
    _, made = block()
    made.eval()
    x = torch.randn(3, 4)
    zeros = {name: torch.zeros_like(tensor) for name, tensor in made.named_parameters()}
    assert not torch.func.functional_call(made, zeros, (x,)).any()
    assert made(x).any()

    class Nothing(torch.nn.Module):  # type: ignore[misc]
        def forward(self, weight: Any) -> Any:
            return weight * 0

    before = made(x)
    torch.nn.utils.parametrize.register_parametrization(made.fc, "weight", Nothing())
    assert not torch.equal(made(x), before)
    first = torch.func.vmap(made.eval(), in_dims=0)(torch.randn(2, 3, 4))
    assert first.shape == (2, 3, 3)


def test_dtypes_follow() -> None:
    _, made = block()
    made = made.eval().double()
    assert made(torch.randn(2, 4, dtype=torch.float64)).dtype == torch.float64
    assert made.hidden.dtype == torch.float64
    assert made.state_dict()["bn.num_batches_tracked"].dtype == torch.int64


def test_constants_of_whole_numbers() -> None:
    places = torch.tensor([3, 1])
    source = aten("aten.index_select.default", N, {"c": 1}, {"n": 1})
    picked = Node("picked", "OP", "raw", {}, (("x", 0), ("c_0", 0)), {}, source)
    hashed = {"c_0": matrix_hash("int64", (2,), bytes(16))}
    made = torch_module.build(network(picked, constants=hashed), {}, {"c_0": places})
    x = torch.randn(3, 4)
    assert torch.equal(made(x), x[:, [3, 1]])
    assert made.state_dict() == {}


NAMES = [
    "training",
    "forward.weight",
    "a",
    "a.b",
    "a.b.c",
    "_parameters",
    "_modules.x",
    "type.state_dict",
    "a..b",
    ".x",
    "y.",
    "__class__",
    "_dlv_network",
    "onnx::Conv_12",
    "/layer/Add",
    "",
    "two words",
]


def test_any_name_will_do() -> None:
    """Names of other frameworks, and of attackers, are names and nothing else."""
    slots = [
        node(f"n{place}", "ADD", [f"n{place - 1}" if place else "x"], {"value": name}, shape=[4])
        for place, name in enumerate(NAMES)
    ]
    state = {name: torch.full((4,), float(place)) for place, name in enumerate(NAMES)}
    made = torch_module.build(network(*slots), state, {})
    assert set(made.state_dict()) == set(NAMES)
    total = sum(range(len(NAMES)))
    assert torch.equal(made(torch.zeros(2, 4)), torch.full((2, 4), float(total)))
    for each in (made, copy.deepcopy(made)):
        assert isinstance(each, torch_module.NetworkModule)
        assert each.eval().training is False
        assert torch.equal(each(torch.zeros(1, 4)), torch.full((1, 4), float(total)))
    missing, unexpected = made.load_state_dict(made.state_dict(), strict=False)
    assert not missing
    assert not unexpected


def test_a_constant_by_the_name_of_a_weight() -> None:
    slots = node("n", "ADD", ["x"], {"value": "same"}, shape=[4])
    more = node("m", "ADD", ["n", "same"])
    hashed = {"same": matrix_hash("float32", (4,), bytes(16))}
    given = {"same": torch.ones(4)}
    made = torch_module.build(
        network(slots, more, constants=hashed), given, {"same": torch.ones(4)}
    )
    assert torch.equal(made(torch.zeros(1, 4)), torch.full((1, 4), 2.0))
    assert list(made.state_dict()) == ["same"]


def test_inputs_and_outputs() -> None:
    parts = node("parts", "RESHAPE", ["x"], kind="split", axis=1, sizes=[1, 3])
    rest = node("rest", "INPUT", [], shape=["B", 1])
    total = node("total", "ADD", [("parts", 0), "rest"])
    loss = node("loss", "LOSS", ["total", "label"], name="no such loss")
    inputs = (X, Input("label", ("B",), "int64"))
    made = torch_module.build(
        Network(inputs, (parts, rest, total, loss), (("total", 0), ("parts", 1))), {}, {}
    )
    x, y = torch.randn(2, 4), torch.randn(2, 1)
    for total_found, rest_found in (made(x, None, y), made(rest=y, x=x), made(x, rest=y)):
        assert torch.equal(total_found, x[:, :1] + y)
        assert torch.equal(rest_found, x[:, 1:])
    with pytest.raises(UsageError, match="takes 3 inputs"):
        made(x, y, y, y)
    with pytest.raises(UsageError, match="'rest'"):
        made(x)
    with pytest.raises(UsageError, match="none of the network's") as found:
        made(x, ret=y)
    assert found.value.did_you_mean == ["rest"]
    with pytest.raises(UsageError, match="twice"):
        made(x, x=y)


def test_what_is_missing_is_named() -> None:
    one = linear("fc1", "x", 4)
    with pytest.raises(NotFound, match=r"fc1\.bias, fc1\.weight") as found:
        torch_module.build(network(one), {"fc.bias": torch.ones(4)}, {})
    assert found.value.did_you_mean == ["fc.bias"]
    hashed = {"c": matrix_hash("float32", (4,), bytes(16))}
    add = node("add", "ADD", ["x", "c"])
    with pytest.raises(NotFound, match="constant 'c'"):
        torch_module.build(network(add, constants=hashed), {}, {})
    with pytest.raises(UsageError, match="'a': its input 'b'"):
        torch_module.build(network(node("a", "RELU", ["b"])), {}, {})
    with pytest.raises(UsageError, match="output 'z'"):
        torch_module.build(network(node("a", "RELU", ["x"]), outputs=["z"]), {}, {})
    with pytest.raises(UsageError, match="cycle"):
        torch_module.build(network(node("a", "RELU", ["b"]), node("b", "RELU", ["a"])), {}, {})


def test_errors_of_torch_name_the_node() -> None:
    made = torch_module.build(
        network(linear("fc", "x", 4)), {"fc.weight": torch.ones(4, 9), "fc.bias": torch.ones(4)}, {}
    )
    with pytest.raises(RuntimeError) as found:
        made(torch.ones(2, 4))
    assert any("'fc'" in line for line in found.value.__notes__)


def test_outputs_of_many_kinds() -> None:
    """Positions of a pool, states of a recurrent layer, pieces taken out by getitem."""
    image = Input("x", ("B", 2, 6))
    both = node("pool", "POOL", ["x"], variant="MAX", kernel=[2], stride=[2])
    taken = node("places", "RESHAPE", ["pool"], kind="getitem", index=1)
    made = torch_module.build(
        Network((image,), (both, taken), (("pool", 0), ("places", 0), ("pool", 1))), {}, {}
    )
    x = torch.randn(3, 2, 6)
    wanted, where = torch.nn.functional.max_pool1d(x, 2, return_indices=True)
    values, places, again = made(x)
    assert torch.equal(values, wanted)
    assert torch.equal(places, where)
    assert torch.equal(again, where)


def test_an_edited_network_runs_from_attributes() -> None:
    """An exported node that was changed has lost its source."""
    exported = node(
        *("act", "RELU", ["x"]), source=aten("aten.leaky_relu.default", N, {"c": 0.25}), slope=0.25
    )
    edited = node("act", "RELU", ["x"], slope=0.5)
    x = torch.tensor([[-2.0, 1.0, -4.0, 0.0]])
    for each, wanted in ((exported, [-0.5, 1, -1, 0]), (edited, [-1, 1, -2, 0])):
        made = torch_module.build(network(each), {}, {})
        assert made(x).tolist() == [wanted]
    # The source counts, not the attributes, where it is there.
    odd = node("act", "RELU", ["x"], source=aten("aten.neg.default", N))
    assert torch_module.build(network(odd), {}, {})(x).tolist() == [[2, -1, 4, 0]]


def test_dead_nodes_and_values() -> None:
    """What nothing needs is not run, and what nothing needs any more is let go."""
    nodes = [linear("fc0", "x", 4), node("bad", "LOSS", ["fc0"], name="?")]
    nodes += [node(f"n{i}", "ADD", [f"n{i - 1}" if i else "fc0"], const=1.0) for i in range(5)]
    made = torch_module.plan(network(*nodes, outputs=["n4"]), ["fc0.weight", "fc0.bias"])
    assert [step.node.name for step in made.steps] == ["fc0", "n0", "n1", "n2", "n3", "n4"]
    assert [step.last for step in made.steps] == [("x",), ("fc0",), *[(f"n{i}",) for i in range(4)]]


def test_writes_in_place_stay() -> None:
    """A counter that forward itself keeps: nothing reads the result, and it is not trained."""
    source = aten("aten.add_.Tensor", {"p": "self"}, {"c": 1})
    count = Node("count", "OP", "raw", {}, (), {"self": "calls"}, source)
    for start in (torch.tensor(0), torch.tensor(0.0)):
        made = torch_module.build(network(count, node("relu", "RELU", ["x"])), {"calls": start}, {})
        made(torch.ones(1, 4))
        made(torch.ones(1, 4))
        assert made.calls == 2
        assert not list(made.parameters())


@pytest.mark.parametrize("name", ["lenet", "resnet", "unet", "lstm", "transformer"])
def test_networks_written_by_hand(name: str, plain: Any) -> None:
    """Every network of these tests runs, for two batches, and all its weights get gradients."""
    data, _ = read(plain(name))
    shapes: Any = pytest.importorskip("dlv.network.inference")
    layers: Any = pytest.importorskip("dlv.network.ops.op")
    known = shapes.node_shapes(data)
    state: dict[str, Any] = {}
    for each in data.topological():
        inputs = shapes.input_shapes(each, known)
        for slot, shape in layers.op_of(each).parameter_shapes(each, inputs).items():
            state[each.params[slot]] = torch.rand(shape) * 0.1
    made = torch_module.build(data, state, {})
    for batch in (1, 3):
        given = []
        for item in data.inputs:
            shape = [batch if dim == "B" else dim for dim in item.shape]
            whole = item.dtype == "int64"
            given.append(torch.randint(0, 9, shape) if whole else torch.randn(shape))
        found = made.train(batch > 1)(*given)
        for result in found if isinstance(found, tuple) else (found,):
            assert result.shape[0] == batch or result.shape[1] == batch
    first = found[0] if isinstance(found, tuple) else found
    first.square().sum().backward()
    assert all(tensor.grad is not None for tensor in made.parameters())


def test_it_can_be_exported_again() -> None:
    _, made = block()
    x = torch.randn(3, 4)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(made.eval(), (x,), dynamic_shapes=(({0: batch},),))
    assert torch.equal(program.module()(x[:2]), made(x[:2]))
