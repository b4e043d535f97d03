"""ATTENTION and RNN: one operator in ONNX, or several where the version has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dlv.adapters.onnx.builder import Cannot
from dlv.adapters.onnx.call import Call, Reader
from dlv.adapters.onnx.graph import Graph, Item, Value, Writer, together
from dlv.dataclass import dataclass
from dlv.errors import UsageError
from dlv.network.graph import Node
from dlv.network.ops.recurrent import GATES
from dlv.network.sizes import Dim, Shape, broadcast

# Where ONNX has the gates that the stored matrices hold in the order i f g o, and r z n.
_ORDERS = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}


def write_recurrent(g: Graph, node: Node, inputs: Sequence[Item]) -> list[Value]:
    attrs, mask = node.attrs, None
    if attrs["masked"]:
        mask, inputs = g.value(inputs[-1]), inputs[:-1]
        mask = mask if mask.dtype == "bool" else g.cast(mask, "bool")
        mask = mask if attrs["batch_first"] else g.transpose(mask, (1, 0))
    # Zeros are what it starts from anyway.
    known = all(isinstance(item, Value) and item.id in g.zeros for item in inputs[1:])
    x, *states = together(g, inputs[:1] if known else inputs)
    if mask is not None and (states or attrs["layers"] > 1):
        raise UsageError("ONNX takes no mask with start states, or for several layers")
    if attrs["batch_first"]:
        x = g.transpose(x, (1, 0, 2))
    counted = None if mask is None else _Counted.of(g, mask, x.dtype)
    if counted is not None:
        x = counted.first(g, x)
    ways = 2 if attrs["bidirectional"] else 1
    ports = 2 if node.variant == "LSTM" else 1
    last: list[list[Value]] = [[] for _ in range(ports)]
    for layer in range(attrs["layers"]):
        given = [
            state if attrs["layers"] == 1 else g.slice(state, 0, layer * ways, (layer + 1) * ways)
            for state in states
        ]
        x, *ends = _layer(g, node, x, layer, ways, given, counted)
        for kept, end in zip(last, ends, strict=True):
            kept.append(end)
    if attrs["batch_first"]:
        x = g.transpose(x, (1, 0, 2))
    joined = [
        kept[0] if len(kept) == 1 else g.op("Concat", kept, {"axis": 0}, shape=None)
        for kept in last
    ]
    return [x, *joined]


@dataclass(frozen=True)
class _Counted:
    """The steps that count moved to the front, as ONNX takes sequences of several lengths.

    `to`: for each row what step goes where, [batch, place, step]; `back`: where each step finds
    its last state, one way and the other, [batch, step, place].
    """

    lengths: Value
    to: Value
    back: tuple[Value, Value]

    @classmethod
    def of(cls, g: Graph, mask: Value, dtype: str) -> _Counted:
        flat = g.cast(mask, "int64")
        before = g.op("CumSum", [flat, g.constant(1, "int64")])
        ends = [g.constant(0, "int64"), g.value(g.length(mask, 1)), g.constant(1, "int64")]
        places = g.op("Range", ends, dtype="int64", shape=(mask.shape or (None, None))[1:])
        last = g.binary("Sub", before, g.constant(1, "int64"))
        first = g.binary("Sub", before, flat)
        shape = (*(mask.shape or (None, None)), (mask.shape or (None, None))[1])
        found = []
        for at in (last, first):
            hit = g.op("Equal", [g.unsqueeze(at, 2), places], dtype="bool", shape=shape)
            found.append(g.cast(hit, dtype))
        moved = g.transpose(found[0], (0, 2, 1))
        to = g.op("Mul", [moved, g.unsqueeze(g.cast(mask, dtype), 1)], shape=moved.shape)
        lengths = g.cast(g.reduce("ReduceSum", flat, [1], False), "int32")
        return cls(lengths, to, (found[0], found[1]))

    def first(self, g: Graph, x: Value) -> Value:
        """A sequence [step, batch, features] with the steps that count in front."""
        made = g.op("MatMul", [self.to, g.transpose(x, (1, 0, 2))], shape=None)
        return replace(g.transpose(made, (1, 0, 2)), shape=x.shape)

    def again(self, g: Graph, made: Value) -> Value:
        """Results [step, way, batch, hidden] with the last state at steps that do not count."""
        ways = (made.shape or (None, 1))[1]
        turned = g.transpose(made, (1, 2, 0, 3))
        parts = []
        for way in range(ways if isinstance(ways, int) else 1):
            one = g.squeeze(g.slice(turned, 0, way, way + 1), 0)
            found = g.op("MatMul", [self.back[way], one], shape=one.shape)
            parts.append(g.unsqueeze(found, 0))
        joined = parts[0] if len(parts) == 1 else g.op("Concat", parts, {"axis": 0}, shape=None)
        return replace(g.transpose(joined, (2, 0, 1, 3)), shape=made.shape)


def _layer(
    g: Graph,
    node: Node,
    x: Value,
    layer: int,
    ways: int,
    states: Sequence[Value],
    counted: _Counted | None,
) -> list[Value]:
    attrs, kind = node.attrs, node.variant or "LSTM"
    names = [f"_l{layer}{end}" for end in ("", "_reverse")[:ways]]

    def stacked(*slots: str) -> Value:
        """Matrices of every direction, their gates in ONNX's order, behind one another."""
        each = []
        for name in names:
            parts = _parts(g, node, slots, name, x.dtype)
            joined = parts[0] if len(parts) == 1 else g.op("Concat", parts, {"axis": 0}, shape=None)
            rank = parts[0].rank
            each.append(g.op("Unsqueeze", [joined, g.ints(0)], shape=(None,) * (rank + 1)))
        return each[0] if len(each) == 1 else g.op("Concat", each, {"axis": 0}, shape=None)

    given: list[Value | None] = [x, stacked("weight_ih"), stacked("weight_hh")]
    given.append(stacked("bias_ih", "bias_hh") if attrs["bias"] else None)
    given += [None if counted is None else counted.lengths, *states]
    options = {"hidden_size": attrs["hidden"]}
    if ways == 2:
        options["direction"] = "bidirectional"
    if kind == "GRU":
        options["linear_before_reset"] = 1
    length, batch = (x.shape or (None, None))[:2]
    hidden = attrs["hidden"]
    outputs: list[tuple[str, Shape]] = [(x.dtype, (length, ways, batch, hidden))]
    outputs += [(x.dtype, (ways, batch, hidden))] * (2 if kind == "LSTM" else 1)
    made, *ends = g.ops(kind, given, outputs, options)
    made = made if counted is None else counted.again(g, made)
    if ways == 1:
        return [g.squeeze(made, 1), *ends]
    side = g.transpose(made, (0, 2, 1, 3))
    joined = g.op("Reshape", [side, g.ints(0, 0, -1)], shape=(length, batch, ways * hidden))
    return [joined, *ends]


def _parts(g: Graph, node: Node, slots: Sequence[str], name: str, dtype: str) -> list[Value]:
    """The matrices in these slots, gates in front in ONNX's order; of both biases both."""
    kind = node.variant or "LSTM"
    if node.attrs["layout"] == "torch":
        return [_gates(g, _ORDERS[kind], g.weight(node, slot + name, dtype)) for slot in slots]
    order = tuple(GATES[kind][place] for place in _ORDERS[kind])
    value = g.weight(node, slots[0] + name, dtype)
    if slots[0].startswith("weight"):
        return [_gates(g, order, g.transpose(value, (1, 0)))]
    if kind == "GRU":
        rows = [g.squeeze(g.slice(value, 0, row, row + 1), 0) for row in (0, 1)]
        return [_gates(g, order, row) for row in rows]
    # ONNX adds a second bias.
    return [_gates(g, order, value), g.binary("Mul", value, g.constant(0, dtype))]


def _gates(g: Graph, order: Sequence[int], value: Value) -> Value:
    rows = (value.shape or (None,))[0]
    each = rows // len(order) if isinstance(rows, int) else None
    pieces = [(value.dtype, (each, *(value.shape or ())[1:]))] * len(order)
    parts = g.ops("Split", [value], pieces, {"axis": 0, "num_outputs": len(order)})
    return g.op("Concat", [parts[place] for place in order], {"axis": 0}, shape=value.shape)


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
WRITERS: dict[str, Writer] = {"ATTENTION": write_attention, "RNN": write_recurrent}
