"""RNN as ONNX operators; those of a file are kept as they are."""

from __future__ import annotations

from collections.abc import Sequence

from dlv.adapters.onnx.graph import Graph, Item, Value, Writer
from dlv.adapters.onnx.promotion import together
from dlv.network.graph import Node
from dlv.network.sizes import Shape

# Where ONNX has the gates that the stored matrices hold in the order i f g o, and r z n.
_ORDERS = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}


def write_recurrent(g: Graph, node: Node, inputs: Sequence[Item]) -> list[Value]:
    attrs = node.attrs
    # Zeros are what it starts from anyway.
    known = all(isinstance(item, Value) and item.id in g.zeros for item in inputs[1:])
    x, *states = together(g, inputs[:1] if known else inputs)
    if attrs["batch_first"]:
        x = g.transpose(x, (1, 0, 2))
    ways = 2 if attrs["bidirectional"] else 1
    ports = 2 if node.variant == "LSTM" else 1
    last: list[list[Value]] = [[] for _ in range(ports)]
    for layer in range(attrs["layers"]):
        given = [
            state if attrs["layers"] == 1 else g.slice(state, 0, layer * ways, (layer + 1) * ways)
            for state in states
        ]
        x, *ends = _layer(g, node, x, layer, ways, given)
        for kept, end in zip(last, ends, strict=True):
            kept.append(end)
    if attrs["batch_first"]:
        x = g.transpose(x, (1, 0, 2))
    joined = [
        kept[0] if len(kept) == 1 else g.op("Concat", kept, {"axis": 0}, shape=None)
        for kept in last
    ]
    return [x, *joined]


def _layer(
    g: Graph, node: Node, x: Value, layer: int, ways: int, states: Sequence[Value]
) -> list[Value]:
    attrs, kind = node.attrs, node.variant or "LSTM"
    names = [f"_l{layer}{end}" for end in ("", "_reverse")[:ways]]

    def stacked(*slots: str) -> Value:
        """Matrices of every direction, their gates in ONNX's order, behind one another."""
        each = []
        for name in names:
            parts = [_gates(g, kind, g.weight(node, slot + name, x.dtype)) for slot in slots]
            joined = parts[0] if len(parts) == 1 else g.op("Concat", parts, {"axis": 0}, shape=None)
            rank = parts[0].rank
            each.append(g.op("Unsqueeze", [joined, g.ints(0)], shape=(None,) * (rank + 1)))
        return each[0] if len(each) == 1 else g.op("Concat", each, {"axis": 0}, shape=None)

    given: list[Value | None] = [x, stacked("weight_ih"), stacked("weight_hh")]
    given.append(stacked("bias_ih", "bias_hh") if attrs["bias"] else None)
    given += [None, *states]
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
    if ways == 1:
        return [g.squeeze(made, 1), *ends]
    side = g.transpose(made, (0, 2, 1, 3))
    joined = g.op("Reshape", [side, g.ints(0, 0, -1)], shape=(length, batch, ways * hidden))
    return [joined, *ends]


def _gates(g: Graph, kind: str, value: Value) -> Value:
    order = _ORDERS[kind]
    rows = (value.shape or (None,))[0]
    each = rows // len(order) if isinstance(rows, int) else None
    pieces = [(value.dtype, (each, *(value.shape or ())[1:]))] * len(order)
    parts = g.ops("Split", [value], pieces, {"axis": 0, "num_outputs": len(order)})
    return g.op("Concat", [parts[place] for place in order], {"axis": 0}, shape=value.shape)


WRITERS: dict[str, Writer] = {"RNN": write_recurrent}
