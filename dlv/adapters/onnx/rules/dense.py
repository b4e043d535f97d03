"""FULL and EMBED, and products of matrices that are no layers."""

from __future__ import annotations

from collections.abc import Sequence

from dlv.adapters.onnx.builder import Cannot, Held
from dlv.adapters.onnx.call import Call, Reader
from dlv.adapters.onnx.graph import Graph, Item, Value, Writer, fractions
from dlv.network.graph import Node, Port
from dlv.network.sizes import Shape, broadcast

# From ONNX


def emit_full(
    call: Call, x: Port, weight: str, shape: Shape, layout: str, bias: str | None
) -> None:
    """FULL of a stored matrix; `shape` is that of the matrix as it is stored."""
    params = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    out = shape[0] if layout == "out_in" else shape[1]
    call.emit("FULL", {"out": out, "layout": layout}, (x,), params=params)


def read_gemm(call: Call) -> None:
    broadcast = call.flag("broadcast", int(call.version >= 7))
    if call.flag("transA", 0) or call.decimal("alpha", 1.0) != 1:
        raise Cannot("Gemm with a scale")
    flip = call.flag("transB", 0)
    held = call.held(1)
    if held is None or len(held.stored.shape) != 2:
        raise Cannot("no tensor")
    weight, shape = call.weight(1, flipped=held.flipped), held.stored.shape
    layout = "out_in" if bool(flip) != held.flipped else "in_out"
    out = shape[0] if layout == "out_in" else shape[1]
    if not call.has(2):
        return emit_full(call, call.port(0), weight, shape, layout, None)
    if call.decimal("beta", 1.0) != 1:
        raise Cannot("Gemm with a scale")
    if not broadcast and call.shape(2) == (out,):
        raise Cannot("a row that is not broadcast")
    if broadcast and call.version < 7 and call.shape(2) != (out,):
        raise Cannot("broadcasting as before version 7")
    if call.shape(2) == (out,) and call.held(2) is not None:
        return emit_full(call, call.port(0), weight, shape, layout, call.weight(2))
    # The third input is not a plain bias, so a node of its own adds it.
    attrs, third = {"out": out, "layout": layout}, call.held(2)
    if third is None:
        added = call.port(2)
        x = call.before("FULL", attrs, (call.port(0),), params={"weight": weight})
        return call.emit("ADD", {}, (x, added))
    x = call.before("FULL", attrs, (call.port(0),), params={"weight": weight})
    params = {"value": call.weight(2)}
    return call.emit("ADD", {"shape": third.stored.shape}, (x,), params=params)


def read_matmul(call: Call) -> None:
    held = call.held(1)
    if held is None or len(held.stored.shape) != 2 or call.held(0) is not None:
        raise Cannot("no layer")
    layout = "out_in" if held.flipped else "in_out"
    weight = call.weight(1, flipped=held.flipped)
    emit_full(call, call.port(0), weight, held.stored.shape, layout, None)


def read_matmul_as_aten(call: Call) -> None:
    args = [call.argument(place) for place in (0, 1)]
    left, right = call.shape(0), call.shape(1)
    shape: Shape | None = None
    if left is not None and right is not None and len(left) > 1 and len(right) > 1:
        shape = (*broadcast([left[:-2], right[:-2]]), left[-2], right[-1])
    call.aten("matmul.default", *args, shape=shape, dtype=call.dtype())


def read_einsum(call: Call) -> None:
    parts = [call.argument(place) for place in range(len(call.operator.inputs))]
    call.aten("einsum.default", call.text("equation"), parts, dtype=call.dtype())


def read_embed(call: Call, table: Held) -> None:
    """Rows of a stored table, by number."""
    shape = table.stored.shape
    if call.integer("axis", 0) or len(shape) != 2:
        raise Cannot("no table of rows")
    size = {"rows": shape[0], "out": shape[1]}
    params, dtype = {"weight": call.weight(0)}, table.stored.dtype
    call.emit("EMBED", size, (call.port(1),), params=params, dtype=dtype)


# To ONNX


def write_full(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    x = fractions(g, inputs[0])
    weight = g.weight(node, "weight", x.dtype)
    bias = g.weight(node, "bias", x.dtype) if node.attrs["bias"] else None
    layout, out = node.attrs["layout"], node.attrs["out"]
    turned = layout == "out_in"
    if layout in ("in_heads", "heads_in"):
        depth = x.shape[-1] if x.shape and isinstance(x.shape[-1], int) else -1
        weight = g.reshape(weight, [depth, out])
        bias = None if bias is None else g.reshape(bias, [out])
    if x.shape is not None and len(x.shape) == 2:
        attrs = {"transB": 1} if turned else {}
        return g.op("Gemm", [x, weight, bias], attrs, shape=(x.shape[0], node.attrs["out"]))
    shape = None if x.shape is None else (*x.shape[:-1], node.attrs["out"])
    product = g.op("MatMul", [x, g.transpose(weight, (1, 0)) if turned else weight], shape=shape)
    return product if bias is None else g.binary("Add", product, bias)


def write_embed(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    rows = g.value(inputs[0])
    if rows.dtype not in ("int32", "int64"):
        rows = g.cast(rows, "int64")
    weight = g.tensor(node.params["weight"])
    return g.op("Gather", [weight, rows], {"axis": 0}, shape=None)


READERS: dict[str, Reader] = {"Gemm": read_gemm, "MatMul": read_matmul, "Einsum": read_einsum}
# Tried after the rule of the vocabulary found that it does not apply.
SECOND: dict[str, Reader] = {"MatMul": read_matmul_as_aten}
WRITERS: dict[str, Writer] = {"FULL": write_full, "EMBED": write_embed}
