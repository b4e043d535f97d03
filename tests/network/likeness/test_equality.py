"""One LeNet in the forms that four frameworks give it; and every way to be another network."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlv.network.graph import Network
from dlv.network.json_form import read
from dlv.network.likeness.equality import Equality, Normal, equality

Json = dict[str, Any]


def _weights(name: str) -> dict[str, str]:
    return {slot: f"{name}.{slot}" for slot in ("weight", "bias")}


def _node(name: str, op: str, source: Any, variant: str | None = None, **attrs: Any) -> Json:
    made: Json = {"name": name, "op": op, "attrs": attrs}
    made["inputs"] = source if isinstance(source, list) else [source]
    if op in ("CONV", "FULL"):
        made["params"] = _weights(name)
    return made if variant is None else {**made, "variant": variant}


def _form(shape: list[Any], nodes: list[Json], name: str = "x", output: str = "") -> Json:
    inputs = [{"name": name, "shape": shape}]
    outputs = [output or nodes[-1]["name"]]
    return {"dlv_network": 1, "inputs": inputs, "nodes": nodes, "outputs": outputs}


def torch_lenet() -> Json:
    """As exported: functional relu and pool, `view` to flatten, dropout in training."""
    return _form(
        ["B", 1, 28, 28],
        [
            _node("conv1", "CONV", "x", out=20, kernel=[5, 5]),
            _node("relu", "RELU", "conv1"),
            _node("max_pool2d", "POOL", "relu", "MAX", kernel=[2, 2], stride=[2, 2]),
            _node("conv2", "CONV", "max_pool2d", out=50, kernel=[5, 5]),
            _node("relu_1", "RELU", "conv2"),
            _node("max_pool2d_1", "POOL", "relu_1", "MAX", kernel=[2, 2], stride=[2, 2]),
            _node("view", "RESHAPE", "max_pool2d_1", kind="view", size=["B", 800]),
            _node("fc1", "FULL", "view", out=500),
            _node("relu_2", "RELU", "fc1"),
            _node("dropout", "DROPOUT", "relu_2", p=0.5),
            _node("fc2", "FULL", "dropout", out=10),
        ],
    )


def keras_lenet() -> Json:
    """Channels last, kernels (kh, kw, in, out), dense (in, out), a softmax at the end."""
    conv: Json = {"layout": "kernel_first", "channels": "last", "kernel": [5, 5]}
    pool: Json = {"channels": "last", "kernel": [2, 2], "stride": [2, 2]}
    return _form(
        ["batch", 28, 28, 1],
        [
            _node("conv2d", "CONV", "input_layer", out=20, **conv),
            _node("conv2d.relu", "RELU", "conv2d"),
            _node("max_pooling2d", "POOL", "conv2d.relu", "MAX", **pool),
            _node("conv2d_1", "CONV", "max_pooling2d", out=50, **conv),
            _node("conv2d_1.relu", "RELU", "conv2d_1"),
            _node("max_pooling2d_1", "POOL", "conv2d_1.relu", "MAX", **pool),
            _node("flatten", "RESHAPE", "max_pooling2d_1", kind="flatten"),
            _node("dense", "FULL", "flatten", out=500, layout="in_out"),
            _node("dense.relu", "RELU", "dense"),
            _node("dropout", "DROPOUT", "dense.relu", p=0.5),
            _node("dense_1", "FULL", "dropout", out=10, layout="in_out"),
            _node("dense_1.softmax", "SOFTMAX", "dense_1"),
        ],
        name="input_layer",
    )


def onnx_lenet() -> Json:
    """Without the dropout, with a fixed batch, flattened by a reshape."""
    return _form(
        [1, 1, 28, 28],
        [
            _node("/conv1/Conv", "CONV", "input.1", out=20, kernel=[5, 5]),
            _node("/Relu", "RELU", "/conv1/Conv"),
            _node("/MaxPool", "POOL", "/Relu", "MAX", kernel=[2, 2], stride=[2, 2]),
            _node("/conv2/Conv", "CONV", "/MaxPool", out=50, kernel=[5, 5]),
            _node("/Relu_1", "RELU", "/conv2/Conv"),
            _node("/MaxPool_1", "POOL", "/Relu_1", "MAX", kernel=[2, 2], stride=[2, 2]),
            _node("/Reshape", "RESHAPE", "/MaxPool_1", kind="reshape", size=[-1, 800]),
            _node("/fc1/Gemm", "FULL", "/Reshape", out=500),
            _node("/Relu_2", "RELU", "/fc1/Gemm"),
            _node("/fc2/Gemm", "FULL", "/Relu_2", out=10),
        ],
        name="input.1",
    )


def caffe_lenet() -> Json:
    """Pools that round up, where nothing is left over; relu in place; names of people."""
    pool: Json = {"kernel": [2, 2], "stride": [2, 2], "ceil": True}
    return _form(
        [64, 1, 28, 28],
        [
            _node("conv1", "CONV", "data", out=20, kernel=[5, 5]),
            _node("relu1", "RELU", "conv1"),
            _node("pool1", "POOL", "relu1", "MAX", **pool),
            _node("conv2", "CONV", "pool1", out=50, kernel=[5, 5]),
            _node("relu2", "RELU", "conv2"),
            _node("pool2", "POOL", "relu2", "MAX", **pool),
            _node("ip1.flatten", "RESHAPE", "pool2", kind="flatten"),
            _node("ip1", "FULL", "ip1.flatten", out=500),
            _node("relu3", "RELU", "ip1"),
            _node("ip2", "FULL", "relu3", out=10),
            _node("prob", "SOFTMAX", "ip2", axis=1),
        ],
        name="data",
    )


FORMS: dict[str, Callable[[], Json]] = {
    "torch": torch_lenet,
    "keras": keras_lenet,
    "onnx": onnx_lenet,
    "caffe": caffe_lenet,
}
LAYERS = ["conv1", "relu", "pool1", "conv2", "relu", "pool2", "fc1", "relu", "fc2"]


def _network(form: Json) -> Network:
    return read(form)[0]


def _equality(old: Json, new: Json) -> Equality | None:
    return equality(Normal(_network(old)), Normal(_network(new)))


def _layers(form: Json) -> list[str]:
    return [
        node["name"]
        for node in form["nodes"]
        if node["op"] not in ("RESHAPE", "DROPOUT", "SOFTMAX")
    ]


@pytest.mark.parametrize("new", FORMS)
@pytest.mark.parametrize("old", FORMS)
def test_four_lenets(old: str, new: str) -> None:
    a, b = FORMS[old](), FORMS[new]()
    found = _equality(a, b)
    assert found is not None
    pairs = [(x.name, y.name) for x, y in found.pairs if x.op not in ("DROPOUT", "SOFTMAX")]
    assert pairs == list(zip(_layers(a), _layers(b), strict=True))
    special = {"torch": {"DROPOUT"}, "keras": {"DROPOUT", "SOFTMAX"}, "onnx": set()}
    special["caffe"] = {"SOFTMAX"}
    assert {node.op for node in found.only_old} == special[old] - special[new]
    assert {node.op for node in found.only_new} == special[new] - special[old]


def _changed(change: Callable[[Json], object]) -> Json:
    form = keras_lenet()
    change(form)
    return form


def _attr(place: int, **attrs: Any) -> Callable[[Json], object]:
    return lambda form: form["nodes"][place]["attrs"].update(attrs)


def _insert(place: int, node: Json) -> Callable[[Json], object]:
    def change(form: Json) -> None:
        before, after = form["nodes"][place - 1]["name"], form["nodes"][place]
        form["nodes"].insert(place, {**node, "inputs": [before]})
        after["inputs"] = [node["name"]]

    return change


def _remove(place: int) -> Callable[[Json], object]:
    def change(form: Json) -> None:
        gone = form["nodes"].pop(place)
        form["nodes"][place]["inputs"] = gone["inputs"]

    return change


DIFFERENT: dict[str, Callable[[Json], object]] = {
    "out": _attr(0, out=24),
    "kernel": _attr(3, kernel=[3, 3]),
    "stride": _attr(0, stride=[2, 2]),
    "pad": _attr(0, pad=1),
    "dilation": _attr(0, dilation=[2, 2]),
    "groups": _attr(3, groups=10),
    "bias": lambda f: f["nodes"][0].update(params={"weight": "w"}),
    "slope": _attr(1, slope=0.1),
    "pool kernel": _attr(2, kernel=[3, 3]),
    "pool stride": _attr(2, stride=[1, 1]),
    "pool dilation": _attr(2, dilation=[2, 2]),
    "average": lambda f: f["nodes"][2].update(variant="AVG"),
    "full out": _attr(7, out=400),
    "dropout p": _attr(9, p=0.4),
    "tanh": lambda f: f["nodes"][1].update(op="ACT", variant="TANH"),
    "another relu": _insert(3, _node("more", "RELU", "")),
    "no relu": _remove(8),
    "a norm": _insert(3, _node("bn", "NORM", "", "BATCH", axis=3)),
    "softmax in between": _insert(7, _node("soft", "SOFTMAX", "", axis=1)),
    "log softmax in between": _insert(8, _node("soft", "SOFTMAX", "", log=True)),
    "input size": lambda f: f["inputs"][0].update(shape=["batch", 32, 32, 1]),
    "input depth": lambda f: f["inputs"][0].update(shape=["batch", 28, 28, 3]),
    "input dtype": lambda f: f["inputs"][0].update(dtype="float64"),
    "another output": lambda f: f.update(outputs=["dense"]),
    "more outputs": lambda f: f.update(outputs=["dense_1", "dense"]),
    "places turned": _insert(4, _node("t", "RESHAPE", "", kind="transpose", axes=[1, 2])),
    "one row": _insert(4, _node("t", "RESHAPE", "", kind="slice", axis=1, start=1)),
    "something beside": lambda f: f["nodes"].append(_node("beside", "RELU", "conv2d")),
}  # fmt: skip


@pytest.mark.parametrize("what", DIFFERENT)
@pytest.mark.parametrize("other", FORMS)
def test_a_real_difference_is_never_hidden(other: str, what: str) -> None:
    if what == "dropout p" and other in ("onnx", "caffe"):
        pytest.skip("no dropout there")
    changed = _changed(DIFFERENT[what])
    assert _equality(changed, FORMS[other]()) is None
    assert _equality(FORMS[other](), changed) is None


def _chain(*nodes: Json, shape: list[Any] | None = None) -> Json:
    before = "x"
    for node in nodes:
        node["inputs"] = [before]
        before = node["name"]
    return _form(shape or ["B", 3, 8, 8], list(nodes))


def _conv(name: str = "c", **attrs: Any) -> Json:
    return _node(name, "CONV", "x", **{"out": 4, "kernel": [3, 3], **attrs})


def _flat_full() -> list[Json]:
    return [_node("flat", "RESHAPE", "", kind="flatten"), _node("fc", "FULL", "", out=2)]


def _turn(kind: str, axes: list[int]) -> Json:
    return _node("turn", "RESHAPE", "", kind=kind, axes=axes)


SAME: list[tuple[str, Json, Json]] = [
    (
        "global means",
        _chain(_conv(), _node("p", "POOL", "", "AVG", size=[1, 1]), *_flat_full()),
        _chain(_conv(), _node("p", "POOL", "", "MEAN", axis=[-1, -2]), _flat_full()[1]),
    ),
    (
        "a mean of a window as large as the map",
        _chain(_conv(), _node("p", "POOL", "", "AVG", kernel=[6, 6], stride=[6, 6]), *_flat_full()),
        _chain(_conv(), _node("p", "POOL", "", "MEAN", axis=[2, 3], keep=True), *_flat_full()),
    ),
    (
        "adaptive pools",
        _chain(_conv(), _node("p", "POOL", "", "MAX", size=[3, 2]), *_flat_full()),
        _chain(_conv(), _node("p", "POOL", "", "MAX", kernel=[2, 3], stride=[2, 3]), *_flat_full()),
    ),
    (
        "the step of a single window",
        _chain(_conv(), _node("p", "POOL", "", "MAX", kernel=[6, 6], stride=[6, 6])),
        _chain(_conv(), _node("p", "POOL", "", "MAX", kernel=[6, 6])),
    ),
    (
        "padding that is not counted where there is none",
        _chain(_conv(), _node("p", "POOL", "", "AVG", kernel=[2, 2], count_pad=True)),
        _chain(_conv(), _node("p", "POOL", "", "AVG", kernel=[2, 2], count_pad=False)),
    ),
    (
        "a dilated kernel of one",
        _chain(_conv(kernel=[1, 1], dilation=[2, 2])),
        _chain(_conv(kernel=[1, 1])),
    ),
    (
        "plumbing that does nothing",
        _chain(_conv(), *_flat_full()),
        _chain(
            _conv(),
            _node("a", "RESHAPE", "", kind="contiguous"),
            _node("b", "RESHAPE", "", kind="unsqueeze", axis=1),
            _node("d", "RESHAPE", "", kind="view", size=["B", 4, 36]),
            *_flat_full(),
        ),
    ),
    (
        "a batch that is written down",
        _chain(_conv(), *_flat_full()),
        _chain(_conv(), *_flat_full(), shape=[7, 3, 8, 8]),
    ),
    (
        "there and back",
        _chain(_conv(), *_flat_full()),
        _chain(
            _conv(),
            _node("a", "RESHAPE", "", kind="permute", axes=[0, 2, 3, 1]),
            _node("b", "RESHAPE", "", kind="permute", axes=[0, 3, 1, 2]),
            *_flat_full(),
        ),
    ),
    (
        "a flatten in another order, which the weights behind it can undo",
        _chain(_conv(), *_flat_full()),
        _chain(_conv(), _turn("permute", [0, 2, 3, 1]), *_flat_full()),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), [each[1:] for each in SAME], ids=[s[0] for s in SAME])
def test_forms_of_the_same(old: Json, new: Json) -> None:
    assert _equality(old, new) is not None
    assert _equality(new, old) is not None


OTHER: list[tuple[str, Json, Json]] = [
    (
        "ceil with something left over",
        _chain(_conv(), _node("p", "POOL", "", "MAX", kernel=[4, 4], stride=[4, 4], ceil=True)),
        _chain(_conv(), _node("p", "POOL", "", "MAX", kernel=[4, 4], stride=[4, 4])),
    ),
    (
        "padding that is counted",
        _chain(_conv(), _node("p", "POOL", "", "AVG", kernel=[2, 2], pad=1)),
        _chain(_conv(), _node("p", "POOL", "", "AVG", kernel=[2, 2], pad=1, count_pad=False)),
    ),
    (
        "adaptive windows of several sizes",
        _chain(_conv(), _node("p", "POOL", "", "MAX", size=[4, 4])),
        _chain(_conv(), _node("p", "POOL", "", "MAX", kernel=[3, 3])),
    ),
    (
        "an adaptive mean that is not global",
        _chain(_conv(), _node("p", "POOL", "", "AVG", size=[2, 2])),
        _chain(_conv(), _node("p", "POOL", "", "MEAN", axis=[2, 3], keep=True)),
    ),
    (
        "the first row or the last",
        _chain(_conv(), _node("s", "RESHAPE", "", kind="select", axis=2, index=0), *_flat_full()),
        _chain(_conv(), _node("s", "RESHAPE", "", kind="select", axis=2, index=-1), *_flat_full()),
    ),
    (
        "a row or a column",
        _chain(_conv(), _node("s", "RESHAPE", "", kind="select", axis=2, index=0), *_flat_full()),
        _chain(_conv(), _node("s", "RESHAPE", "", kind="select", axis=3, index=0), *_flat_full()),
    ),
    (
        "an output that is turned",
        _chain(_conv(), _node("r", "RELU", "")),
        _chain(_conv(), _node("r", "RELU", ""), _turn("transpose", [2, 3])),
    ),
    (
        "an epsilon",
        _chain(_node("n", "NORM", "", "BATCH")),
        _chain(_node("n", "NORM", "", "BATCH", eps=1e-3)),
    ),
    (
        "the axis of a softmax",
        _chain(_conv(), _node("s", "SOFTMAX", "", axis=1), _node("r", "RELU", "")),
        _chain(_conv(), _node("s", "SOFTMAX", "", axis=2), _node("r", "RELU", "")),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), [each[1:] for each in OTHER], ids=[s[0] for s in OTHER])
def test_others(old: Json, new: Json) -> None:
    assert _equality(old, new) is None
    assert _equality(new, old) is None


class TestBranches:
    def test_the_sides_of_a_sum_may_change_places(self, plain: Callable[[str], Json]) -> None:
        form = plain("resnet")
        form["nodes"][7]["inputs"] = ["a.down", "a.bn2"]
        found = _equality(plain("resnet"), form)
        assert found is not None
        assert all(a.name == b.name for a, b in found.pairs)

    def test_those_of_a_join_may_not(self, plain: Callable[[str], Json]) -> None:
        form = plain("unet")
        form["nodes"][9]["inputs"] = ["down1", "up1"]
        assert _equality(plain("unet"), form) is None

    def test_two_sides_that_compute_the_same(self) -> None:
        """Which is which is told by who else reads them."""
        nodes = [
            _node("a", "RELU", "x"),
            _node("b", "RELU", "x"),
            _node("sum", "ADD", ["a", "b"]),
            _node("again", "ADD", ["sum", "b"]),
        ]
        swapped = [dict(node) for node in nodes]
        swapped[2]["inputs"] = ["b", "a"]
        found = _equality(_form(["B", 4], nodes), _form(["B", 4], swapped))
        assert found is not None
        assert [(a.name, b.name) for a, b in found.pairs][-2:] == [
            *(("sum", "sum"), ("again", "again"))
        ]

    def test_joined_twice_in_another_order(self) -> None:
        def form(*second: str) -> Json:
            nodes = [_conv("a"), _conv("b"), _node("one", "CONCAT", ["a", "b"])]
            nodes += [_node("two", "CONCAT", list(second)), _node("s", "ADD", ["one", "two"])]
            return _form(["B", 3, 8, 8], nodes)

        assert _equality(form("a", "b"), form("a", "b")) is not None
        assert _equality(form("a", "b"), form("b", "a")) is None

    def test_a_sum_with_something_turned(self) -> None:
        turned = _node("t", "RESHAPE", "c", kind="transpose", axes=[2, 3])
        first = [_conv(), turned, _node("sum", "ADD", ["c", "t"])]
        second = [_conv(), _node("sum", "ADD", ["c", "c"])]
        shape = ["B", 3, 8, 8]
        assert _equality(_form(shape, first), _form(shape, second)) is None

    def test_computed_once_or_twice(self) -> None:
        once = [_node("a", "RELU", "x"), _node("sum", "ADD", ["a", "a"])]
        twice = [_node("a", "RELU", "x"), _node("b", "RELU", "x"), _node("sum", "ADD", ["a", "b"])]
        assert _equality(_form(["B", 4], once), _form(["B", 4], twice)) is None
        assert _equality(_form(["B", 4], twice), _form(["B", 4], once)) is None

    def test_shared_weights(self) -> None:
        def form(second: str) -> Json:
            nodes = [_node("a", "FULL", "x", out=4), _node("b", "FULL", "a", out=4)]
            nodes[1]["params"] = _weights(second)
            return _form(["B", 4], nodes)

        assert _equality(form("a"), form("b")) is None
        assert _equality(form("b"), form("a")) is None
        assert _equality(form("a"), form("a")) is not None
        tied = {**form("b"), "aliases": {"b.weight": "a.weight", "b.bias": "a.bias"}}
        assert _equality(form("a"), tied) is not None

    def test_an_unknown_operation_with_other_arguments(self) -> None:
        def form(shift: int) -> Json:
            source = {"dialect": "aten", "op": "aten.roll", "args": [{"c": shift}], "kwargs": {}}
            node = _node("odd", "OP", "x", "raw") | {"source": source, "out_shape": ["B", 4]}
            return _form(["B", 4], [node])

        assert _equality(form(1), form(1)) is not None
        assert _equality(form(1), form(2)) is None


@pytest.mark.parametrize("other", ["lenet", "resnet", "unet", "lstm", "transformer"])
def test_networks_equal_themselves_alone(
    named: str, other: str, plain: Callable[[str], Json]
) -> None:
    found = _equality(plain(named), plain(other))
    assert (found is not None) == (named == other)
    if found is not None:
        assert all(a.name == b.name for a, b in found.pairs)


def _renamed(form: Json, order: list[int]) -> Json:
    names = {node["name"]: f"n{place}" for place, node in zip(order, form["nodes"], strict=True)}
    for node in form["nodes"]:
        node["inputs"] = [[names.get(name, name), port] for name, port in node["inputs"]]
        node["params"] = {s: f"{names[node['name']]}.{s}" for s in node.get("params", {})}
        node["name"] = names[node["name"]]
    form["outputs"] = [[names.get(name, name), port] for name, port in form["outputs"]]
    return form


def _ports(form: Json) -> Json:
    """References written out."""
    network = _network(form)
    for node, made in zip(form["nodes"], network.nodes, strict=True):
        node["inputs"] = [list(port) for port in made.inputs]
    form["outputs"] = [list(port) for port in network.outputs]
    return form


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_network_renamed_equals_itself(
    data: st.DataObject, random_network: st.SearchStrategy[Json]
) -> None:
    form = _ports(data.draw(random_network))
    alive = {node.name for node in _network(form).nodes}
    read_by = {name for node in form["nodes"] for name, _ in node["inputs"]}
    ends = [name for name in alive if name not in read_by]
    form["outputs"] = [[name, 0] for name in sorted(ends)]
    order = data.draw(st.permutations(range(len(form["nodes"]))))
    other = _renamed(deepcopy(form), list(order))
    other["nodes"] = data.draw(st.permutations(other["nodes"]))
    found = _equality(form, other)
    assert found is not None
    assert len(found.pairs) == sum(node["op"] != "RESHAPE" for node in form["nodes"])
