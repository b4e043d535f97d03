"""Operators that are written back: of the right types, with every attribute, as onnx checks it."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from dlv.adapters.onnx.writer import save_network
from tests.onnx_reading import opened

Node = Any  # of onnx, which has no types here
Info = Any


def tensor(name: str, kind: int, *shape: int | str) -> Info:
    return helper.make_tensor_value_info(name, kind, shape)


def sequence(name: str, kind: int) -> Info:
    return helper.make_tensor_sequence_value_info(name, kind, None)


def optional(name: str, kind: int, *shape: int) -> Info:
    inner = helper.make_tensor_type_proto(kind, shape)
    return helper.make_value_info(name, helper.make_optional_type_proto(inner))


def node(kind: str, inputs: str, outputs: str = "y", **attrs: Any) -> Node:
    names = [[("" if n == "-" else n) for n in side.split()] for side in (inputs, outputs)]
    return helper.make_node(kind, *names, **attrs)


def graph(name: str, *outputs: Info) -> Any:
    """What an If gives: it makes its outputs of the value x around it."""
    if outputs[0].type.HasField("sequence_type"):
        nodes = [node("SequenceConstruct", "x", outputs[0].name)]
    else:
        nodes = [node("Cast", "x", out.name, to=out.type.tensor_type.elem_type) for out in outputs]
    return helper.make_graph(nodes, name, [], list(outputs))


def scan_body() -> Any:
    nodes = [node("Add", "s e", "t"), node("Cast", "t", "o", to=T.DOUBLE)]
    ins = [tensor("s", T.FLOAT, 3), tensor("e", T.FLOAT, 3)]
    return helper.make_graph(
        nodes, "body", ins, [tensor("t", T.FLOAT, 3), tensor("o", T.DOUBLE, 3)]
    )


def map_body() -> Any:
    return helper.make_graph(
        [node("Shape", "e", "d")], "body", [tensor("e", T.FLOAT, 2)], [tensor("d", T.INT64, 1)]
    )


X = [tensor("x", T.FLOAT, 2, 3)]
BYTES = [tensor("a", T.UINT8, 2, 3), tensor("b", T.UINT8, 3, 4)]
N = {"n": np.array(8, np.int64)}
LENGTH = [tensor("k", T.INT64)]

CASES: dict[str, tuple[Sequence[Node], Sequence[Info], Sequence[Info], Mapping[str, Any]]] = {
    "MatMulInteger": ([node("MatMulInteger", "a b")], BYTES, [tensor("y", T.INT32, 2, 4)], {}),
    "ConvInteger": (
        [node("ConvInteger", "a w")],
        [tensor("a", T.UINT8, 1, 1, 4, 4)],
        [tensor("y", T.INT32, 1, 1, 3, 3)],
        {"w": np.ones((1, 1, 2, 2), np.uint8)},
    ),
    "DynamicQuantizeLinear": (
        [node("DynamicQuantizeLinear", "x", "y s z")],
        X,
        [tensor("y", T.UINT8, 2, 3), tensor("s", T.FLOAT), tensor("z", T.UINT8)],
        {},
    ),
    "QuantizeLinear": (
        [node("QuantizeLinear", "x s", output_dtype=T.INT16)],
        X,
        [tensor("y", T.INT16, 2, 3)],
        {"s": np.array(0.5, np.float32)},
    ),
    "DequantizeLinear": (
        [node("DequantizeLinear", "a s")],
        BYTES[:1],
        [tensor("y", T.FLOAT16, 2, 3)],
        {"s": np.array(0.5, np.float16)},
    ),
    "HannWindow": ([node("HannWindow", "k")], LENGTH, [tensor("y", T.FLOAT, "n")], {}),
    "BlackmanWindow": (
        [node("BlackmanWindow", "k", output_datatype=T.DOUBLE)],
        LENGTH,
        [tensor("y", T.DOUBLE, "n")],
        {},
    ),
    "MelWeightMatrix": (
        [node("MelWeightMatrix", "k n n f g")],
        LENGTH,
        [tensor("y", T.FLOAT, "m", "n")],
        {**N, "f": np.array(0.0, np.float32), "g": np.array(4.0, np.float32)},
    ),
    "EyeLike": ([node("EyeLike", "x", dtype=T.INT32)], X, [tensor("y", T.INT32, 2, 3)], {}),
    "NonZero": ([node("NonZero", "x")], X, [tensor("y", T.INT64, 2, "n")], {}),
    "Unique": (
        [node("Unique", "x", "y i")],
        X,
        [tensor("y", T.FLOAT, "n"), tensor("i", T.INT64, "n")],
        {},
    ),
    "IsInf": ([node("IsInf", "x")], X, [tensor("y", T.BOOL, 2, 3)], {}),
    "SplitToSequence": ([node("SplitToSequence", "x")], X, [sequence("y", T.FLOAT)], {}),
    "sequences and back": (
        [
            node("SequenceConstruct", "x x", "s"),
            node("SequenceLength", "s", "l"),
            node("ConcatFromSequence", "s", axis=0),
        ],
        X,
        [tensor("y", T.FLOAT, 4, 3), tensor("l", T.INT64)],
        {},
    ),
    "a sequence comes in": (
        [node("SequenceAt", "s k")],
        [sequence("s", T.DOUBLE), *LENGTH],
        [tensor("y", T.DOUBLE, 2, 3)],
        {},
    ),
    "an optional comes in": (
        [node("OptionalHasElement", "o", "h"), node("OptionalGetElement", "o")],
        [optional("o", T.FLOAT, 2, 3)],
        [tensor("h", T.BOOL), tensor("y", T.FLOAT, 2, 3)],
        {},
    ),
    "If of tensors": (
        [
            node(
                "If",
                "c",
                "y z",
                then_branch=graph("t", tensor("p", T.INT32, 2, 3), tensor("q", T.DOUBLE, 2, 3)),
                else_branch=graph("e", tensor("p", T.INT32, 2, 3), tensor("q", T.DOUBLE, 2, 3)),
            )
        ],
        [tensor("c", T.BOOL), *X],
        [tensor("y", T.INT32, 2, 3), tensor("z", T.DOUBLE, 2, 3)],
        {},
    ),
    "If of sequences": (
        [
            node(
                "If",
                "c",
                then_branch=graph("t", sequence("p", T.FLOAT)),
                else_branch=graph("e", sequence("p", T.FLOAT)),
            )
        ],
        [tensor("c", T.BOOL), *X],
        [sequence("y", T.FLOAT)],
        {},
    ),
    "Scan": (
        [node("Scan", "i x", "y o", body=scan_body(), num_scan_inputs=1)],
        [tensor("i", T.FLOAT, 3), *X],
        [tensor("y", T.FLOAT, 3), tensor("o", T.DOUBLE, 2, 3)],
        {},
    ),
    "SequenceMap": (
        [node("SequenceMap", "s", body=map_body())],
        [sequence("s", T.FLOAT)],
        [sequence("y", T.INT64)],
        {},
    ),
    "texts": (
        [node("StringConcat", "t u")],
        [tensor("t", T.STRING, 2), tensor("u", T.STRING, 2)],
        [tensor("y", T.STRING, 2)],
        {},
    ),
    "a float of eight bits": (
        [node("Cast", "x", "e", to=T.FLOAT8E4M3FN, saturate=0), node("Cast", "e", to=T.FLOAT)],
        X,
        [tensor("y", T.FLOAT, 2, 3), tensor("e", T.FLOAT8E4M3FN, 2, 3)],
        {},
    ),
    "a shape that only the file knows": (
        [node("CastLike", "x k", "l"), node("Compress", "l q", "m"), node("Neg", "m")],
        [*X, tensor("k", T.FLOAT), tensor("q", T.BOOL, 6)],
        [tensor("y", T.FLOAT, "n")],
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_written_back(name: str, tmp_path: Path) -> None:
    nodes, inputs, outputs, stored = CASES[name]
    held = [numpy_helper.from_array(data, key) for key, data in stored.items()]
    made = helper.make_model(
        helper.make_graph(list(nodes), "g", list(inputs), list(outputs), held),
        opset_imports=[helper.make_opsetid("", 22)],
        ir_version=10,
    )
    onnx.checker.check_model(made, full_check=True)
    with opened(made, tmp_path) as checkpoint:
        assert checkpoint.network is not None
        out = io.BytesIO()
        save_network(out, checkpoint.network, checkpoint.tensors, checkpoint.constants)
    written = onnx.load_from_string(out.getvalue())
    onnx.checker.check_model(written, full_check=True)
    assert [kind_of(item) for item in written.graph.output] == [kind_of(item) for item in outputs]
    there = [plain(each) for each in written.graph.node]
    for each in nodes:
        # What became a layer is written as such; the others as they were.
        if each.op_type not in ("Cast", "Neg", "CastLike") or "saturate" in str(each):
            assert plain(each) in there


def kind_of(item: Info) -> Any:
    """The type, of a tensor with its rank."""
    kind = item.type
    if kind.HasField("tensor_type"):
        return kind.tensor_type.elem_type, len(kind.tensor_type.shape.dim)
    return "sequence", kind.sequence_type.elem_type.tensor_type.elem_type


def plain(each: Node) -> Any:
    """An operator without the names of its values."""
    attributes = sorted((item.name, item.SerializeToString()) for item in each.attribute)
    return each.domain, each.op_type, len(each.input), len(each.output), attributes
