"""RNN: LSTM and GRU over a sequence; outputs are the sequence and the last states.

A step that the mask does not count leaves the states as they are, and gives the last one again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlv.kinds import Array
from dlv.network.fields import Kind
from dlv.network.ops.axes import Axes, Axis, Part, PortAxes, renamed
from dlv.network.ops.op import BIAS, Attribute, Node, Op, Run, Shapes, Slot, with_rank
from dlv.network.sizes import Dim, Shape, ShapeError, fits, text


def values(node: Node, run: Run) -> tuple[Array, ...]:
    """The sequence of the last layer, and the last states of all."""
    import numpy as np

    attrs, lstm = node.attrs, node.variant == "LSTM"
    layers, hidden, batch_first = attrs["layers"], attrs["hidden"], attrs["batch_first"]
    ways = 2 if attrs["bidirectional"] else 1
    params = as_torch(node, run.params) if attrs["layout"] == "keras" else run.params
    x, *given = run.inputs
    counts = given.pop() != 0 if attrs["masked"] else None
    if batch_first:
        x = x.swapaxes(0, 1)
        counts = None if counts is None else counts.swapaxes(0, 1)
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
            turned = slice(None, None, -1 if way else 1)
            kept = None if counts is None else counts[turned]
            made, last = _one(lstm, x[turned], start, params, suffix, kept)
            outputs.append(made[::-1] if way else made)
            for end, state in zip(ends, last, strict=True):
                end.append(state)
        x = np.concatenate(outputs, axis=-1) if ways > 1 else outputs[0]
    if batch_first:
        x = x.swapaxes(0, 1)
    return (x, *(np.stack(end) for end in ends))


def _one(
    lstm: bool,
    x: Array,
    start: list[Array],
    params: Mapping[str, Array],
    suffix: str,
    counts: Array | None,
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
        new = _lstm(given[step] + kept, states) if lstm else _gru(given[step], kept, states)
        if counts is not None:
            pairs = zip(new, states, strict=True)
            new = [np.where(counts[step][:, None], after, before) for after, before in pairs]
        states = new
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
# Where Keras has the gates that torch holds as i f g o, and as r z n; and the other way round.
GATES = {"LSTM": (0, 1, 2, 3), "GRU": (1, 0, 2)}


def as_torch(node: Node, params: Mapping[str, Array]) -> dict[str, Array]:
    """Tensors of the layout `keras` as torch has them: gates first, those of GRU as r z n.

    A bias of GRU has two rows there, of the input's side and of the state's.
    """
    import numpy as np

    order, found = GATES[node.variant or "LSTM"], {}
    for slot, value in params.items():
        gates = np.split(value, len(order), axis=-1)
        joined = np.concatenate([gates[place] for place in order], axis=-1)
        found[slot] = joined.T if slot.startswith("weight") else joined
        if slot.startswith("bias") and node.variant == "GRU":
            found[slot], found[slot.replace("_ih", "_hh")] = joined
    return found


class Recurrent(Op):
    name = "RNN"
    inputs = (1, 4)
    variants = ("LSTM", "GRU")
    attributes = (
        Attribute("hidden", Kind.INT, minimum=1),
        Attribute("layers", Kind.INT, 1, minimum=1, maximum=1024),
        Attribute("bidirectional", Kind.BOOL, False),
        Attribute("batch_first", Kind.BOOL, False),
        BIAS,
        Attribute("p", Kind.FLOAT, 0.0, minimum=0, maximum=1),  # dropout between its layers
        # keras: inputs first, one bias in the slot bias_ih, gates of GRU as z r n.
        Attribute("layout", Kind.TEXT, "torch", choices=("torch", "keras"), silent=True),
        Attribute("masked", Kind.BOOL, False, silent=True),  # the last input says what counts
    )
    makes_features = recurrent = True

    def slots_of(self, variant: str | None, attrs: Mapping[str, Any]) -> tuple[Slot, ...]:
        kinds: tuple[str, ...] = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        kinds = kinds[:3] if attrs.get("layout") == "keras" else kinds
        ends = ("", "_reverse") if attrs["bidirectional"] else ("",)
        return tuple(
            Slot(f"{kind}_l{layer}{end}", "bias" if kind.startswith("bias") else "always")
            for layer in range(attrs["layers"])
            for end in ends
            for kind in kinds
        )

    def arity(self, node: Node) -> tuple[int, int | None]:
        more = 1 if node.attrs["masked"] else 0
        return 1 + more, (3 if node.variant == "LSTM" else 2) + more

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
        states = inputs[1:-1] if attrs["masked"] else inputs[1:]
        if attrs["masked"] and not fits(inputs[-1], (first, second)):
            raise ShapeError(
                "the mask has another shape", seen=text(inputs[-1]), wanted=text((first, second))
            )
        for given in states:
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
        keras = attrs["layout"] == "keras"
        for slot in self.node_slots(node) or ():
            if slot.name.startswith("bias"):
                if attrs["bias"]:
                    rows = (2,) if keras and node.variant == "GRU" else ()
                    result[slot.name] = (*rows, gates)
                continue
            below: Dim = attrs["hidden"]
            if slot.name.startswith("weight_ih"):
                below = width if "_l0" in slot.name else ways * attrs["hidden"]
            result[slot.name] = (below, gates) if keras else (gates, below)
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
        keras = node.attrs["layout"] == "keras"
        hidden: Axis = (Part("o.c", node.attrs["hidden"]),)
        ways = 2 if node.attrs["bidirectional"] else 1
        order = "gate zrn" if keras and node.variant == "GRU" else "gate"
        gates: Axis = (Part(order, 4 if node.variant == "LSTM" else 3, True), *hidden)
        found: dict[str, Axes] = {}
        for slot in node.params:
            if slot.startswith("bias"):
                rows = ((Part("side", 2, True),),) if order != "gate" else ()
                found[slot] = (*rows, gates)
            elif slot.startswith("weight_hh"):
                found[slot] = (gates, (Part("i.c", node.attrs["hidden"]),))
            elif slot.startswith("weight_ih_l0"):
                found[slot] = (gates, renamed(first[-1], "i."))
            else:
                below = (Part("i.way", ways, True), Part("i.c", node.attrs["hidden"]))
                found[slot] = (gates, below)
            if keras and slot.startswith("weight"):
                found[slot] = found[slot][::-1]
        return found

    def adopted(self, node: Node, slot: str, shape: Shape) -> dict[str, Any]:
        place = 0 if node.attrs["layout"] == "keras" else 1
        return {"hidden": shape[place]} if slot.startswith("weight_hh") else {}

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
        return values(node, run)
