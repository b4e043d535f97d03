"""RNN: LSTM and GRU over a sequence; outputs are the sequence and the last states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlv.kinds import Array
from dlv.network.fields import Kind
from dlv.network.ops.axes import Axes, Axis, Part, PortAxes, renamed
from dlv.network.ops.op import BIAS, Attribute, Node, Op, Run, Shapes, Slot, with_rank
from dlv.network.sizes import Dim, Shape, ShapeError, fits, text


def values(
    lstm: bool, layers: int, ways: int, batch_first: bool, hidden: int, run: Run
) -> tuple[Array, ...]:
    """The sequence of the last layer, and the last states of all."""
    import numpy as np

    x, *given = run.inputs
    if batch_first:
        x = x.swapaxes(0, 1)
    count = 2 if lstm else 1
    while len(given) < count:
        given.append(np.zeros((layers * ways, x.shape[1], hidden), x.dtype))
    given = [state.astype(x.dtype, copy=False) for state in given]
    ends: list[list[Array]] = [[] for _ in range(count)]
    for layer in range(layers):
        outputs = []
        for way in range(ways):
            place = layer * ways + way
            suffix = f"_l{layer}" + ("_reverse" if way else "")
            start = [state[place] for state in given]
            made, last = _one(lstm, x[::-1] if way else x, start, run.params, suffix)
            outputs.append(made[::-1] if way else made)
            for end, state in zip(ends, last, strict=True):
                end.append(state)
        x = np.concatenate(outputs, axis=-1) if ways > 1 else outputs[0]
    if batch_first:
        x = x.swapaxes(0, 1)
    return (x, *(np.stack(end) for end in ends))


def _one(
    lstm: bool, x: Array, start: list[Array], params: Mapping[str, Array], suffix: str
) -> tuple[Array, list[Array]]:
    """One layer one way: all its outputs, and its last states."""
    import numpy as np

    inner, outer = params[f"weight_hh{suffix}"].T, params[f"weight_ih{suffix}"].T
    first = params.get(f"bias_ih{suffix}")
    second = params.get(f"bias_hh{suffix}")
    given = x @ outer if first is None else x @ outer + first
    result = np.empty((*x.shape[:2], inner.shape[0]), x.dtype)
    states = start
    for step in range(len(x)):
        kept = states[0] @ inner if second is None else states[0] @ inner + second
        states = _lstm(given[step] + kept, states) if lstm else _gru(given[step], kept, states)
        result[step] = states[0]
    return result, states


def _lstm(gates: Array, states: list[Array]) -> list[Array]:
    import numpy as np

    enter, forget, new, show = np.split(gates, 4, axis=-1)
    cell = _sigmoid(forget) * states[1] + _sigmoid(enter) * np.tanh(new)
    return [_sigmoid(show) * np.tanh(cell), cell]


def _gru(given: Array, kept: Array, states: list[Array]) -> list[Array]:
    import numpy as np

    ours, theirs = np.split(given, 3, axis=-1), np.split(kept, 3, axis=-1)
    reset, update = (_sigmoid(a + b) for a, b in zip(ours[:2], theirs[:2], strict=True))
    new = np.tanh(ours[2] + reset * theirs[2])
    return [(1 - update) * new + update * states[0]]


def _sigmoid(x: Array) -> Array:
    import numpy as np

    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)), x.dtype)


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

        attrs = node.attrs
        return values(
            node.variant == "LSTM",
            attrs["layers"],
            2 if attrs["bidirectional"] else 1,
            attrs["batch_first"],
            attrs["hidden"],
            run,
        )
