"""ATTENTION: one operator in ONNX since version 23, written as several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlv.adapters.onnx.builder import Cannot
from dlv.adapters.onnx.call import Call, Reader
from dlv.adapters.onnx.graph import Graph, Item, Value, Writer
from dlv.adapters.onnx.promotion import together
from dlv.network.graph import Node
from dlv.network.sizes import Dim, broadcast

# From ONNX


def read_attention(call: Call) -> None:
    """Attention of version 23, as far as it is torch's."""
    call.only_output()
    heads, groups = (call.integer(name, 0) for name in ("q_num_heads", "kv_num_heads"))
    odd = ("softcap", "softmax_precision", "qk_matmul_output_mode")
    if heads != groups or any(call.attribute(name) for name in odd):
        raise Cannot("a special attention")
    if call.dtype() == "bfloat16":
        raise Cannot("three digits, of which each step on the way rounds")
    _check_mask(call)
    if call.rank() != (3 if heads else 4):
        raise Cannot("heads")
    scale = None if call.attribute("scale") is None else call.decimal("scale")
    attrs: dict[str, Any] = {
        "heads": heads or None,
        "causal": call.flag("is_causal", 0),
        "scale": scale,
        "p": 0.0,
    }
    inputs = [call.port(place) for place in range(4 if call.has(3) else 3)]
    call.emit("ATTENTION", attrs, inputs)


def _check_mask(call: Call) -> None:
    """A mask that speaks of every key: ONNX fills a shorter one up, torch stretches it."""
    mask, keys = call.shape(3) if call.has(3) else None, call.shape(1)
    if not call.has(3):
        return
    if mask is None or keys is None or len(mask) < 2 or len(keys) < 3:
        raise Cannot("a mask of unknown shape")
    if mask[-1] is None or mask[-1] != keys[-2]:
        raise Cannot("a mask that is shorter than the keys")


# To ONNX


def write_attention(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    query, key, value = together(g, inputs[:3], fractions=True)
    attrs = node.attrs
    mask = g.value(inputs[3]) if len(inputs) > 3 else None
    heads = attrs["heads"] if query.shape is not None and query.rank == 3 else None
    if heads is not None:
        query, key, value = (_split_heads(g, x, heads) for x in (query, key, value))
    made = attend(g, query, key, value, mask, causal=attrs["causal"], scale=attrs["scale"])
    if heads is not None:
        joined = g.transpose(made, (0, 2, 1, 3))
        width = (joined.shape or (None,))[-1]
        lengths = [g.length(joined, 0), g.length(joined, 1)]
        made = g.reshape(joined, [*lengths, heads * width if isinstance(width, int) else -1])
    return made


def _split_heads(g: Graph, x: Value, heads: int) -> Value:
    """Batch, heads, positions, and each head's part of the width."""
    width = (x.shape or (None,))[-1]
    parts = [g.length(x, 0), g.length(x, 1), heads]
    parts.append(width // heads if isinstance(width, int) else -1)
    return g.transpose(g.reshape(x, parts), (0, 2, 1, 3))


def attend(
    g: Graph,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> Value:
    """softmax(query key^T * scale, masked) value, over the last two axes."""
    key, value = (_repeat_heads(g, x, query) for x in (key, value))
    factor = _factor(g, query, scale)
    rank = key.rank
    turned = g.transpose(key, (*range(rank - 2), rank - 1, rank - 2))
    scores = _product(g, g.binary("Mul", query, factor), turned)
    low = g.constant(float("-inf"), scores.dtype)
    allowed = _causal(g, query, key) if causal else None
    if mask is not None and mask.dtype == "bool":
        allowed = mask if allowed is None else g.binary("And", allowed, mask)
    elif mask is not None:
        scores = g.binary("Add", scores, g.cast(mask, scores.dtype))
    if allowed is not None:
        scores = g.where(allowed, scores, low)
    shares = g.op("Softmax", [scores], {"axis": -1})
    if mask is not None:
        # A query that may look at nothing gets nothing.
        most = g.reduce("ReduceMax", scores, [-1], True)
        shares = g.where(g.binary("Equal", most, low, "bool"), g.constant(0, scores.dtype), shares)
    return _product(g, shares, value)


def _product(g: Graph, a: Value, b: Value) -> Value:
    shape = None
    if a.shape is not None and b.shape is not None:
        shape = (*broadcast([a.shape[:-2], b.shape[:-2]]), a.shape[-2], b.shape[-1])
    return g.op("MatMul", [a, b], shape=shape)


def _factor(g: Graph, query: Value, scale: float | None) -> Value:
    if scale is not None:
        return g.constant(scale, query.dtype)
    width = g.length(query, -1)
    if isinstance(width, int):
        return g.constant(width**-0.5, query.dtype)
    root = g.op("Sqrt", [g.value(width, query.dtype)])
    return g.op("Reciprocal", [root])


def _causal(g: Graph, query: Value, key: Value) -> Value:
    """True where a key is not behind the query; made at run time, it may be large."""
    rows, columns = (
        g.op(
            "Range",
            [g.constant(0, "int64"), g.value(g.length(x, -2)), g.constant(1, "int64")],
            dtype="int64",
            shape=((x.shape or (None, None))[-2],),
        )
        for x in (query, key)
    )
    return g.binary("GreaterOrEqual", g.unsqueeze(rows, 1), columns, "bool")


def _repeat_heads(g: Graph, x: Value, query: Value) -> Value:
    """Keys shared by several heads, once for each of them."""
    if x.shape is None or query.shape is None or len(x.shape) < 4:
        return x
    ours, theirs = query.shape[-3], x.shape[-3]
    if not isinstance(ours, int) or not isinstance(theirs, int) or theirs in (1, ours):
        return x
    times, rank = ours // theirs, x.rank
    ones = [1] * (rank + 1)
    ones[-3] = times
    wide = g.unsqueeze(x, rank - 2)
    dims: list[Dim] = list(wide.shape or ())
    dims[-3] = times
    wide = g.op("Expand", [wide, g.ints(*ones)], shape=tuple(dims))
    leading = [g.length(x, axis) for axis in range(rank - 3)]
    return g.reshape(wide, [*leading, ours, g.length(x, -2), g.length(x, -1)])


READERS: dict[str, Reader] = {"Attention": read_attention}
WRITERS: dict[str, Writer] = {"ATTENTION": write_attention}
