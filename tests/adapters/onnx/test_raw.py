"""ONNX files read into networks and written again: the same numbers come out of onnxruntime."""

from __future__ import annotations

import base64
import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

onnx = pytest.importorskip("onnx", reason="the files are made by onnx here")
pytest.importorskip("onnxruntime", reason="onnxruntime runs the files here")
torch = pytest.importorskip("torch", reason="the zoo's models are torch modules")

import dlv.adapters.onnx.files as onnx_files  # noqa: E402
from dlv.adapters.aten.live import trace  # noqa: E402
from dlv.adapters.onnx.writer import save_network  # noqa: E402
from dlv.errors import DlvError, UsageError  # noqa: E402
from dlv.network.graph import Network, Node  # noqa: E402
from tests.onnx_runs import difference, network, session, stored, written  # noqa: E402
from tests.zoo.models import ZOO, build, state  # noqa: E402

TensorProto, helper = onnx.TensorProto, onnx.helper


def numbers(*shape: int, seed: int = 0) -> Any:
    found = np.random.default_rng(seed + sum(shape)).standard_normal(shape)
    return found.astype(np.float32)


def value(name: str, shape: Sequence[int | str] | None, kind: int = 1) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    tensors: dict[str, Any] | None = None,
    *,
    opset: int = 21,
    domains: dict[str, int] | None = None,
) -> Any:
    held = [onnx.numpy_helper.from_array(item, name) for name, item in (tensors or {}).items()]
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), held)
    versions = {"": opset, **(domains or {})}
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(name, number) for name, number in versions.items()],
        ir_version=10,
    )


def again(made: Any, path: Path) -> tuple[Network, bytes]:
    path.write_bytes(made.SerializeToString())
    found = onnx_files.open(str(path))
    try:
        assert found.network is not None
        tensors = {item.name: item for item in [*found.tensors, *found.constants]}
        return found.network, written(found.network, tensors)[0]
    finally:
        found.close()


def check(made: Any, path: Path, *kinds: str, **inputs: Any) -> bytes:
    """The file written again computes what the first one did; `kinds` were kept raw."""
    onnx.checker.check_model(made, full_check=True)
    read, data = again(made, path / "model.onnx")
    kept = {node.source["op"] for node in read.nodes if node.source and node.op == "OP"}
    assert set(kinds) <= kept
    first, second = (session(each) for each in (made.SerializeToString(), data))
    names = [item.name for item in second.get_inputs()]
    assert names == list(inputs)
    for ours, theirs in zip(second.run(None, inputs), first.run(None, inputs), strict=True):
        assert difference(ours, theirs) == 0
    return data


X = numbers(2, 4, 6, 6)


def test_operators_that_the_vocabulary_lacks(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("DepthToSpace", ["x"], ["d"], "d2s", blocksize=2, mode="CRD"),
        helper.make_node("LpPool", ["d"], ["p"], "lp", kernel_shape=[2, 2], p=3),
        helper.make_node("MeanVarianceNormalization", ["p"], ["y"], "mvn", axes=[0, 2, 3]),
    ]
    made = model(nodes, [value("x", ["B", 4, 6, 6])], [value("y", None)])
    made = onnx.shape_inference.infer_shapes(made)
    data = check(made, tmp_path, "DepthToSpace", "LpPool", x=X)
    written_nodes = onnx.load_from_string(data).graph.node
    assert [item.op_type for item in written_nodes] == [item.op_type for item in nodes]
    assert [item.name for item in written_nodes] == ["d2s", "lp", "mvn"]
    assert [sorted(map(str, item.attribute)) for item in written_nodes] == [
        sorted(map(str, item.attribute)) for item in nodes
    ]


def test_a_recurrent_layer_with_its_states(tmp_path: Path) -> None:
    tensors = {"W": numbers(2, 12, 3), "R": numbers(2, 12, 3), "b": numbers(2, 24)}
    lstm = helper.make_node(
        "LSTM",
        ["x", "W", "R", "b"],
        ["y", "", "c"],
        "lstm",
        hidden_size=3,
        direction="bidirectional",
    )
    outputs = [value("y", ["T", 2, "B", 3]), value("c", [2, "B", 3])]
    made = model([lstm], [value("x", ["T", "B", 3])], outputs, tensors)
    data = check(made, tmp_path, "LSTM", x=numbers(5, 2, 3))
    assert [item.name for item in onnx.load_from_string(data).graph.initializer] == ["W", "R", "b"]


def test_tensors_as_attributes_and_several_outputs(tmp_path: Path) -> None:
    fill = helper.make_tensor("value", TensorProto.FLOAT, [1], [2.5])
    nodes = [
        helper.make_node("Unique", ["x"], ["u", "", "back"], "unique", axis=0),
        helper.make_node("Shape", ["u"], ["s"], "shape"),
        helper.make_node("ConstantOfShape", ["s"], ["f"], "fill", value=fill),
        helper.make_node("Add", ["f", "u"], ["y"], "sum"),
    ]
    outputs = [value("y", ["U", 2]), value("back", ["B"], TensorProto.INT64)]
    made = model(nodes, [value("x", ["B", 2])], outputs)
    made.graph.value_info.append(value("f", ["U", 2]))
    check(made, tmp_path, "Unique", x=numbers(3, 2)[[0, 1, 0, 2]])


def branches() -> Any:
    """An If whose branches use values of the graph around them."""
    then = helper.make_graph(
        [helper.make_node("Mul", ["h", "scale"], ["t"])], "then", [], [value("t", ["B", 3])]
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["o"])], "other", [], [value("o", ["B", 3])]
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["h"], "act"),
        helper.make_node("If", ["flag"], ["y"], "fork", then_branch=then, else_branch=other),
    ]
    inputs = [value("x", ["B", 3]), value("flag", [], TensorProto.BOOL)]
    return model(nodes, inputs, [value("y", ["B", 3])], {"scale": numbers(3)})


@pytest.mark.parametrize("flag", [True, False])
def test_graphs_within_operators(flag: bool, tmp_path: Path) -> None:
    check(branches(), tmp_path, "If", x=numbers(2, 3), flag=np.array(flag))


def test_operators_of_other_domains(tmp_path: Path) -> None:
    node = helper.make_node("QuickGelu", ["x"], ["y"], "quick", domain="com.microsoft", alpha=1.5)
    made = model(
        [node], [value("x", ["B", 3])], [value("y", ["B", 3])], domains={"com.microsoft": 1}
    )
    data = check(made, tmp_path, "com.microsoft::QuickGelu", x=numbers(2, 3))
    opsets = {item.domain: item.version for item in onnx.load_from_string(data).opset_import}
    assert opsets == {"": 21, "com.microsoft": 1}


def test_operators_of_newer_versions_bring_theirs(tmp_path: Path) -> None:
    node = helper.make_node("Swish", ["x"], ["y"], "swish", alpha=0.7)
    made = model([node], [value("x", ["B", 3])], [value("y", ["B", 3])], opset=24)
    made.ir_version = 12
    _, data = again(made, tmp_path / "model.onnx")
    loaded = onnx.load_from_string(data)
    assert [item.op_type for item in loaded.graph.node] == ["Swish"]
    assert (loaded.opset_import[0].version, loaded.ir_version) == (24, 12)


def raw(op: str, opset: int, **attrs: Any) -> Node:
    kwargs = {name: {"c": item} for name, item in attrs.items()}
    source = {
        "dialect": "onnx",
        "op": op,
        "args": [{"n": 0}],
        "kwargs": kwargs,
        "opset": opset,
        "outputs": 1,
    }
    return Node("n", "OP", "raw", {}, (("x", 0),), {}, source, ("B", 3))


@pytest.mark.parametrize(
    ("op", "opset", "text"),
    [
        ("Softmax", 11, "since opset 13"),
        ("ReduceMean", 17, "since opset 18"),
        ("GridSample", 16, "since opset 20"),
        ("Relu", 99, "opset 99"),
    ],
)
def test_operators_written_in_another_way_are_refused(op: str, opset: int, text: str) -> None:
    with pytest.raises(UsageError, match="node 'n'") as caught:
        written(network([raw(op, opset)], {"x": ("B", 3)}), {})
    assert text in caught.value.message


def test_older_operators_that_stayed_the_same_are_written() -> None:
    data, _ = written(network([raw("Selu", 6, alpha=1.5)], {"x": ("B", 3)}), {})
    assert onnx.load_from_string(data).graph.node[0].attribute[0].f == 1.5


def test_graphs_within_operators_come_under_the_same_rule(tmp_path: Path) -> None:
    made = branches()
    body = helper.make_graph(
        [helper.make_node("Softmax", ["x"], ["t"])], "then", [], [value("t", ["B", 3])]
    )
    source = {
        "dialect": "onnx",
        "op": "If",
        "args": [{"n": 0}],
        "kwargs": {"then_branch": {"graph": base64.b64encode(body.SerializeToString()).decode()}},
        "opset": 11,
        "outputs": 1,
        "captured": {"x": {"n": 1}},
    }
    fork = Node("n", "OP", "raw", {}, (("flag", 0), ("x", 0)), {}, source, ("B", 3))
    with pytest.raises(UsageError, match="Softmax is of opset 11"):
        written(network([fork], {"x": ("B", 3), "flag": ("bool", ())}), {})
    assert made.graph.node[1].op_type == "If"


@pytest.mark.parametrize(
    "attribute",
    [
        {"graph": None, "bytes": 100_000, "blake3": "0" * 64},
        {"unread": "strings", "bytes": 5},
        {"tensor": {"dtype": "float32", "shape": [5000]}},
        {"tensor": {"dtype": "float32", "shape": [2], "elements": "AAAA"}},
        {"tensor": {"dtype": "float32", "shape": ["B"], "elements": "AAAA"}},
        {"bytes": "not base 64"},
        {"odd": 1},
        7,
    ],
)
def test_what_the_network_did_not_keep_is_told(attribute: Any) -> None:
    odd = raw("Relu", 21)
    source = {**(odd.source or {}), "kwargs": {"body": attribute}}
    odd = Node("n", "OP", "raw", {}, odd.inputs, {}, source, odd.out_shape)
    with pytest.raises(UsageError, match="node 'n'"):
        written(network([odd], {"x": ("B", 3)}), {})


@pytest.mark.parametrize("count", [0, 10**9, "two"])
def test_odd_numbers_of_outputs_are_refused(count: Any) -> None:
    odd = raw("Relu", 21)
    source = {**(odd.source or {}), "outputs": count}
    odd = Node("n", "OP", "raw", {}, odd.inputs, {}, source, odd.out_shape)
    with pytest.raises(UsageError, match="node 'n'"):
        written(network([odd], {"x": ("B", 3)}), {})


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_sources_that_nobody_recorded_end_in_a_word(data: st.DataObject) -> None:
    plain = st.none() | st.integers() | st.text(max_size=3) | st.floats(allow_nan=False)
    odd = st.recursive(
        plain | st.sampled_from(({"n": 0}, {"c": 1}, {"graph": "AAAA"}, {"p": "x"})),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(("l", "c", "n", "graph", "tensor")), inner, max_size=2
            )
        ),
        max_leaves=5,
    )
    kinds = st.sampled_from(("Relu", "If", "Split", "LSTM", "Cast", "odd::Op", "ConstantOfShape"))
    source = {
        "dialect": "onnx",
        "op": data.draw(kinds | odd),
        "args": data.draw(st.lists(odd, max_size=3) | odd),
        "kwargs": data.draw(st.dictionaries(st.sampled_from(("axis", "to", "b")), odd) | odd),
        "opset": data.draw(st.sampled_from((21, 11, 24, 1)) | odd),
        "outputs": data.draw(st.sampled_from((1, 2, 3)) | odd),
        "captured": data.draw(odd),
    }
    node = Node("n", "OP", "raw", {}, (("x", 0),), {}, source, ("B", 3))
    with contextlib.suppress(DlvError):
        save_network(io.BytesIO(), network([node], {"x": ("B", 3)}), [], [])


def test_a_network_of_unknown_ranks_says_so() -> None:
    odd = raw("Selu", 21)
    odd = Node("n", "OP", "raw", {}, odd.inputs, {}, odd.source)
    out = io.BytesIO()
    notes = save_network(out, network([odd], {"x": ("B", 3)}), [], [])
    assert "rank of the output 'n' is unknown" in notes[0]
    x = numbers(2, 3)
    assert session(out.getvalue()).run(None, {"x": x})[0].shape == (2, 3)


@pytest.mark.quick("gpt", "functional", "lstm", "norms", "rolled")
@pytest.mark.parametrize("name", sorted(ZOO))
def test_the_zoo_comes_through_a_second_time(name: str, tmp_path: Path) -> None:
    """Written, read, and written again: what was read computes the same."""
    torch.set_num_threads(1)
    module, inputs = build(name)
    found = trace(module, inputs)
    assert found.network is not None
    tensors: dict[str, Any] = {
        key: stored(key, item.numpy()) for key, item in state(module).items()
    }
    tensors |= {item.name: item for item in found.constants}
    data, _ = written(found.network, tensors)
    _, second = again(onnx.load_from_string(data), tmp_path / "model.onnx")
    ran = [session(each) for each in (data, second)]
    names = [item.name for item in ran[0].get_inputs()]
    given = {key: item.numpy() for key, item in zip(names, inputs, strict=True)}
    first, other = (each.run(None, given) for each in ran)
    for ours, theirs in zip(first, other, strict=True):
        assert difference(ours, theirs) <= 1e-5
