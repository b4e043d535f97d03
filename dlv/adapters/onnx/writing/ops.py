"""Vocabulary operations as ONNX operators: dense layers, activations, joins; and the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dlv.adapters.onnx.graph import Graph, Item, Value
from dlv.adapters.onnx.writing.ops_conv import conv, deconv
from dlv.adapters.onnx.writing.ops_norm import norm
from dlv.adapters.onnx.writing.ops_pool import pool
from dlv.adapters.onnx.writing.ops_sequence import attention, recurrent
from dlv.adapters.onnx.writing.ops_shape import reshape
from dlv.adapters.onnx.writing.types import arithmetic, fractions, together
from dlv.network.graph import Node

Results = Item | Sequence[Item]
Writer = Callable[[Graph, Node, Sequence[Item]], Results]


def full(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    x = fractions(g, inputs[0])
    weight = g.weight(node, "weight", x.dtype)
    bias = g.weight(node, "bias", x.dtype) if node.attrs["bias"] else None
    turned = node.attrs["layout"] == "out_in"
    if x.shape is not None and len(x.shape) == 2:
        attrs = {"transB": 1} if turned else {}
        return g.op("Gemm", [x, weight, bias], attrs, shape=(x.shape[0], node.attrs["out"]))
    shape = None if x.shape is None else (*x.shape[:-1], node.attrs["out"])
    product = g.op("MatMul", [x, g.transpose(weight, (1, 0)) if turned else weight], shape=shape)
    return product if bias is None else g.binary("Add", product, bias)


def embed(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    rows = g.value(inputs[0])
    if rows.dtype not in ("int32", "int64"):
        rows = g.cast(rows, "int64")
    weight = g.tensor(node.params["weight"])
    return g.op("Gather", [weight, rows], {"axis": 0}, shape=None)


def relu(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    x, slope = g.value(inputs[0]), node.attrs["slope"]
    if slope == 0:
        return g.op("Relu", [x])
    return g.op("LeakyRelu", [x], {"alpha": float(slope)})


def act(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    x = fractions(g, inputs[0])
    if node.variant == "GELU":
        return g.op("Gelu", [x], {"approximate": node.attrs["approximate"]})
    if node.variant == "SILU":
        return g.op("Mul", [x, g.op("Sigmoid", [x])])
    if node.variant == "RELU6":
        return g.op("Clip", [x, g.constant(0, x.dtype), g.constant(6, x.dtype)])
    return g.op("Tanh" if node.variant == "TANH" else "Sigmoid", [x])


def softmax(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    x = fractions(g, inputs[0])
    kind = "LogSoftmax" if node.attrs["log"] else "Softmax"
    if x.shape == ():
        return g.squeeze(g.op(kind, [g.unsqueeze(x, 0)], {"axis": 0}), 0)
    return g.op(kind, [x], {"axis": node.attrs["axis"]})


def concat(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    return g.op("Concat", together(g, inputs), {"axis": node.attrs["axis"]}, shape=None)


def dropout(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    # In inference it passes on what comes; it is there for whoever reads the file back.
    return g.op("Dropout", [g.value(inputs[0]), g.constant(node.attrs["p"], "float32")])


def combine(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    items = list(inputs)
    const = node.attrs["const"]
    if const is not None:
        whole = const.is_integer() and abs(const) < 2**53 and not isinstance(items[0], float)
        floating = isinstance(items[0], Value) and items[0].dtype.startswith("float")
        items.append(int(const) if whole and not floating else const)
    if "value" in node.params:
        items.append(g.tensor(node.params["value"]))
    return arithmetic(g, "Add" if node.op == "ADD" else "Mul", items)


WRITERS: Mapping[str, Writer] = {
    "CONV": conv,
    "DECONV": deconv,
    "FULL": full,
    "EMBED": embed,
    "POOL": pool,
    "NORM": norm,
    "RELU": relu,
    "ACT": act,
    "SOFTMAX": softmax,
    "CONCAT": concat,
    "DROPOUT": dropout,
    "ADD": combine,
    "MUL": combine,
    "ATTENTION": attention,
    "RNN": recurrent,
    "RESHAPE": reshape,
}
