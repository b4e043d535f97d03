"""RELU, ACT, SOFTMAX and DROPOUT, and activations that only torch has."""

from __future__ import annotations

from collections.abc import Sequence

from dlv.adapters.onnx.builder import Cannot
from dlv.adapters.onnx.call import Call, Reader
from dlv.adapters.onnx.graph import Graph, Item, Value, Writer, fractions
from dlv.adapters.onnx.rules.combine import unary_reader
from dlv.network.graph import Node

# From ONNX


def _act_reader(variant: str) -> Reader:
    def rule(call: Call) -> None:
        call.emit("ACT", {}, (call.port(0),), variant=variant)

    return rule


def read_gelu(call: Call) -> None:
    how = {"approximate": call.text("approximate", "none")}
    call.emit("ACT", how, (call.port(0),), variant="GELU")


def read_swish(call: Call) -> None:
    if call.decimal("alpha", 1.0) != 1:
        raise Cannot("a slope")
    call.emit("ACT", {}, (call.port(0),), variant="SILU")


def read_clip(call: Call) -> None:
    least = _limit(call, "min", 1, float("-inf"))
    most = _limit(call, "max", 2, float("inf"))
    if least == 0 and most == 6:
        call.emit("ACT", {}, (call.port(0),), variant="RELU6")
    elif least == 0 and most > 3e38:
        call.emit("RELU", {"slope": 0.0}, (call.port(0),))
    else:
        raise Cannot("other limits")


def _limit(call: Call, name: str, place: int, default: float) -> float:
    if call.version < 11:
        return call.decimal(name, default)
    return float(call.scalar(place)) if call.has(place) else default


def read_clamp(call: Call) -> None:
    x, limits = call.argument(0), []
    for place, name in ((1, "min"), (2, "max")):
        if call.version < 11:
            limits.append(call.decimal(name) if call.attribute(name) is not None else None)
        else:
            limits.append(call.scalar(place) if call.has(place) else None)
    if limits == [None, None]:
        raise Cannot("no limits")
    call.aten("clamp.default", x, *limits, shape=call.shape(0), dtype=call.dtype())


def _sloped_reader(op: str, name: str, default: float) -> Reader:
    def rule(call: Call) -> None:
        slope = call.decimal(name, default)
        call.aten(op, call.argument(0), slope, shape=call.shape(0), dtype=call.dtype())

    return rule


def read_hard_sigmoid(call: Call) -> None:
    if abs(call.decimal("alpha", 0.2) - 1 / 6) > 1e-6:
        raise Cannot("another slope")
    unary_reader("hardsigmoid.default", beta=0.5)(call)


def _softmax_reader(log: bool) -> Reader:
    def rule(call: Call) -> None:
        if call.version >= 13:
            axis = call.integer("axis", -1)
        else:
            # Until version 13 all axes from this one on were one.
            axis, rank = call.integer("axis", 1), call.rank()
            if call.axis(axis, rank) != rank - 1:
                raise Cannot("a softmax over several axes")
        call.emit("SOFTMAX", {"axis": axis, "log": log}, (call.port(0),))

    return rule


def read_dropout(call: Call) -> None:
    call.only_output()
    call.idle("seed")
    if call.version < 7 and not call.flag("is_test", 0):
        raise Cannot("a dropout in training")
    if call.has(2) and any(call.numbers(2)):
        raise Cannot("a dropout in training")
    if call.version >= 12:
        p = float(call.scalar(1)) if call.has(1) else 0.5
    else:
        p = call.decimal("ratio", 0.5)
    call.emit("DROPOUT", {"p": p}, (call.port(0),))


# To ONNX


def write_relu(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    x, slope = g.value(inputs[0]), node.attrs["slope"]
    if node.params:
        return g.op("PRelu", [x, g.weight(node, "slope", x.dtype)])
    if slope == 0:
        return g.op("Relu", [x])
    return g.op("LeakyRelu", [x], {"alpha": float(slope)})


def write_act(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    x = fractions(g, inputs[0])
    if node.variant == "GELU":
        return g.op("Gelu", [x], {"approximate": node.attrs["approximate"]})
    if node.variant == "SILU":
        return g.op("Mul", [x, g.op("Sigmoid", [x])])
    if node.variant == "RELU6":
        return g.op("Clip", [x, g.constant(0, x.dtype), g.constant(6, x.dtype)])
    return g.op("Tanh" if node.variant == "TANH" else "Sigmoid", [x])


def write_softmax(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    x = fractions(g, inputs[0])
    kind = "LogSoftmax" if node.attrs["log"] else "Softmax"
    if x.shape == ():
        return g.squeeze(g.op(kind, [g.unsqueeze(x, 0)], {"axis": 0}), 0)
    return g.op(kind, [x], {"axis": node.attrs["axis"]})


def write_dropout(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    # Dropout does nothing in inference; it is written for programs that read the file back.
    return g.op("Dropout", [g.value(inputs[0]), g.constant(node.attrs["p"], "float32")])


READERS: dict[str, Reader] = {
    "Relu": lambda call: call.emit("RELU", {"slope": 0.0}, (call.port(0),)),
    "LeakyRelu": lambda call: call.emit(
        "RELU", {"slope": call.decimal("alpha", 0.01)}, (call.port(0),)
    ),
    "Sigmoid": _act_reader("SIGMOID"),
    "Tanh": _act_reader("TANH"),
    "Gelu": read_gelu,
    "Swish": read_swish,
    "Clip": read_clip,
    "Softmax": _softmax_reader(False),
    "LogSoftmax": _softmax_reader(True),
    "Dropout": read_dropout,
    "Mish": unary_reader("mish.default"),
    "Selu": unary_reader("selu.default", alpha=1.6732632, gamma=1.0507010),
    "Elu": _sloped_reader("elu.default", "alpha", 1.0),
    "Celu": _sloped_reader("celu.default", "alpha", 1.0),
    "Softplus": unary_reader("softplus.default"),
    "HardSwish": unary_reader("hardswish.default"),
    "HardSigmoid": read_hard_sigmoid,
}
# Tried after the rule of the vocabulary found that it does not apply.
SECOND: dict[str, Reader] = {"Clip": read_clamp}
WRITERS: dict[str, Writer] = {
    "RELU": write_relu,
    "ACT": write_act,
    "SOFTMAX": write_softmax,
    "DROPOUT": write_dropout,
}
