"""RNN: LSTM and GRU over a sequence; outputs are the sequence and the last states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlv.kinds import Array
from dlv.network.fields import Kind
from dlv.network.ops.axes import Axes, Axis, Part, PortAxes, renamed
from dlv.network.ops.op import BIAS, Attribute, Node, Op, Run, Shapes, Slot, with_rank
from dlv.network.sizes import Dim, Shape, ShapeError, fits, text

_GATES = {"LSTM": 4, "GRU": 3}


class Recurrent(Op):
    name = "RNN"
    inputs = (1, 3)
    variants = ("LSTM", "GRU")
    attributes = (
        Attribute("hidden", Kind.INT, minimum=1),
        Attribute("layers", Kind.INT, 1, minimum=1, maximum=1024),
        Attribute("bidirectional", Kind.BOOL, False),
        Attribute("batch_first", Kind.BOOL, False),
        BIAS,
        Attribute("p", Kind.FLOAT, 0.0, minimum=0, maximum=1),  # dropout between its layers
    )
    makes_features = recurrent = True

    def slots_of(self, variant: str | None, attrs: Mapping[str, Any]) -> tuple[Slot, ...]:
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        ends = ("", "_reverse") if attrs["bidirectional"] else ("",)
        return tuple(
            Slot(f"{kind}_l{layer}{end}", "bias" if kind.startswith("bias") else "always")
            for layer in range(attrs["layers"])
            for end in ends
            for kind in kinds
        )

    def arity(self, node: Node) -> tuple[int, int | None]:
        return (1, 3) if node.variant == "LSTM" else (1, 2)

    def ports(self, node: Node) -> int | None:
        return 3 if node.variant == "LSTM" else 2

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:
        ports = self.ports(node) or 1
        if inputs[0] is None:
            return (None,) * ports
        attrs = node.attrs
        first, second, _ = with_rank(inputs[0], 3, "RNN")
        ways = 2 if attrs["bidirectional"] else 1
        batch = first if attrs["batch_first"] else second
        state: Shape = (attrs["layers"] * ways, batch, attrs["hidden"])
        for given in inputs[1:]:
            if not fits(given, state):
                raise ShapeError(
                    "the start state has another shape", seen=text(given), wanted=text(state)
                )
        return ((first, second, ways * attrs["hidden"]), *(state,) * (ports - 1))

    def parameter_shapes(self, node: Node, inputs: Shapes) -> Mapping[str, Shape | None]:
        attrs = node.attrs
        width: Dim = inputs[0][-1] if inputs and inputs[0] else None
        ways = 2 if attrs["bidirectional"] else 1
        gates = _GATES[node.variant or "LSTM"] * attrs["hidden"]
        result: dict[str, Shape | None] = {}
        for slot in self.node_slots(node) or ():
            if slot.name.startswith("bias"):
                if attrs["bias"]:
                    result[slot.name] = (gates,)
            elif slot.name.startswith("weight_hh"):
                result[slot.name] = (gates, attrs["hidden"])
            else:
                below = width if "_l0" in slot.name else ways * attrs["hidden"]
                result[slot.name] = (gates, below)
        return result

    def output_axes(self, node: Node, port: int, inputs: PortAxes, shape: Shape) -> Axes | None:
        first = inputs[0] if inputs else None
        if first is None or port != 0:
            return None
        ways = 2 if node.attrs["bidirectional"] else 1
        return (*first[:2], (Part("way", ways, True), Part("c", node.attrs["hidden"])))

    def parameter_axes(self, node: Node, inputs: PortAxes, outputs: PortAxes) -> dict[str, Axes]:
        first = inputs[0] if inputs else None
        if first is None:
            return {}
        hidden: Axis = (Part("o.c", node.attrs["hidden"]),)
        ways = 2 if node.attrs["bidirectional"] else 1
        gates: Axis = (Part("gate", 4 if node.variant == "LSTM" else 3, True), *hidden)
        found: dict[str, Axes] = {}
        for slot in node.params:
            if slot.startswith("bias"):
                found[slot] = (gates,)
            elif slot.startswith("weight_hh"):
                found[slot] = (gates, (Part("i.c", node.attrs["hidden"]),))
            elif slot.startswith("weight_ih_l0"):
                found[slot] = (gates, renamed(first[-1], "i."))
            else:
                below = (Part("i.way", ways, True), Part("i.c", node.attrs["hidden"]))
                found[slot] = (gates, below)
        return found

    def adopted(self, node: Node, slot: str, shape: Shape) -> dict[str, Any]:
        return {"hidden": shape[1]} if slot.startswith("weight_hh") else {}

    def flops(self, node: Node, inputs: Shapes, outputs: Shapes) -> int | None:
        shape = inputs[0]
        if shape is None or not isinstance(shape[0], int) or not isinstance(shape[1], int):
            return None
        total = 0
        for slot, wanted in self.parameter_shapes(node, inputs).items():
            if slot.startswith("weight"):
                rows, columns = wanted or (None, None)
                if not isinstance(rows, int) or not isinstance(columns, int):
                    return None
                total += rows * columns
        return 2 * total * shape[0] * shape[1]

    def forward(self, node: Node, run: Run) -> tuple[Array, ...]:
        import dlv.network.ops.recurrence as recurrence

        attrs = node.attrs
        return recurrence.values(
            node.variant == "LSTM",
            attrs["layers"],
            2 if attrs["bidirectional"] else 1,
            attrs["batch_first"],
            attrs["hidden"],
            run,
        )
