"""aten operations that are activation functions."""

from __future__ import annotations

from dlv.adapters.onnx.graph import Graph, Item, Value
from dlv.adapters.onnx.promotion import arithmetic, fractions, together
from dlv.adapters.onnx.recorded import Rule, table
from dlv.adapters.onnx.rules.movement import split
from dlv.adapters.onnx.writing.aten_math import clamp, scaled, where
from dlv.errors import UsageError
from dlv.network.sizes import axis_of

ACTS: dict[str, Rule] = {}
_rule = table(ACTS)


@_rule("gelu")
def gelu(g: Graph, x: Item, approximate: str = "none") -> Value:
    return g.op("Gelu", [fractions(g, x)], {"approximate": approximate})


@_rule("silu")
def silu(g: Graph, x: Item) -> Value:
    value = fractions(g, x)
    return g.op("Mul", [value, g.op("Sigmoid", [value])])


@_rule("hardswish")
def hardswish(g: Graph, x: Item) -> Value:
    return g.op("HardSwish", [g.value(x)])


@_rule("hardsigmoid")
def hardsigmoid(g: Graph, x: Item) -> Value:
    return g.op("HardSigmoid", [g.value(x)], {"alpha": 1 / 6, "beta": 0.5})


@_rule("elu")
def elu(
    g: Graph, x: Item, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Value:
    inner = g.value(scaled(g, g.value(x), input_scale))
    made = g.op("Elu", [inner], {"alpha": float(alpha)})
    if input_scale != 1:
        # What is positive is not scaled before.
        made = where(g, g.binary("Greater", inner, g.constant(0, inner.dtype), "bool"), x, made)
    return g.value(scaled(g, made, scale))


@_rule("selu")
def selu(g: Graph, x: Item) -> Value:
    return g.op("Selu", [g.value(x)])


@_rule("celu")
def celu(g: Graph, x: Item, alpha: float = 1.0) -> Value:
    value = g.value(x)
    made = g.op("Celu", [g.cast(value, "float32")], {"alpha": float(alpha)})
    return g.cast(made, value.dtype)  # the operator is there for float32 alone


@_rule("mish")
def mish(g: Graph, x: Item) -> Value:
    return g.op("Mish", [g.value(x)])


@_rule("relu6")
def relu6(g: Graph, x: Item) -> Value:
    return clamp(g, x, 0, 6)


@_rule("hardtanh")
def hardtanh(g: Graph, x: Item, min_val: float = -1, max_val: float = 1) -> Value:
    return clamp(g, x, min_val, max_val)


@_rule("leaky_relu")
def leaky_relu(g: Graph, x: Item, negative_slope: float = 0.01) -> Value:
    return g.op("LeakyRelu", [g.value(x)], {"alpha": float(negative_slope)})


@_rule("prelu", "_prelu_kernel")
def prelu(g: Graph, x: Item, weight: Item) -> Value:
    value, slope = together(g, [x, weight])
    if slope.shape is not None and slope.rank == 1 and value.rank != 2:
        slope = g.reshape(slope, [1] if value.rank < 2 else [-1, *[1] * (value.rank - 2)])
    return g.op("PRelu", [value, slope])


@_rule("softplus")
def softplus(g: Graph, x: Item, beta: float = 1, threshold: float = 20) -> Value:
    value = fractions(g, x)
    if beta == 1 and threshold == 20:
        return g.op("Softplus", [value])
    inner = g.value(scaled(g, value, float(beta)))
    made = arithmetic(g, "Div", [g.op("Softplus", [inner]), float(beta)])
    far = g.binary("Greater", inner, g.constant(threshold, inner.dtype), "bool")
    return g.where(far, value, made)


@_rule("log_sigmoid", "log_sigmoid_forward")
def log_sigmoid(g: Graph, x: Item) -> Value:
    value = fractions(g, x)
    return g.op("Neg", [g.op("Softplus", [g.op("Neg", [value])])])


@_rule("glu")
def glu(g: Graph, x: Item, dim: int = -1) -> Value:
    value = g.value(x)
    axis = axis_of(dim, value.rank, "axis")
    length = g.length(value, axis)
    if not isinstance(length, int):
        raise UsageError("glu takes an axis of a fixed length")
    left, right = split(g, value, axis, [length // 2] * 2)
    return g.op("Mul", [left, g.op("Sigmoid", [right])])


@_rule("threshold")
def threshold(g: Graph, x: Item, threshold: float, value: Item) -> Value:
    data = g.value(x)
    above = g.binary("Greater", data, g.constant(threshold, data.dtype), "bool")
    return where(g, above, data, g.value(value, data.dtype))


def _shrink(soft: bool) -> Rule:
    def rule(g: Graph, x: Item, lambd: float = 0.5) -> Value:
        return g.op("Shrink", [g.value(x)], {"lambd": lambd, "bias": lambd if soft else 0.0})

    return rule


ACTS["softshrink"], ACTS["hardshrink"] = _shrink(True), _shrink(False)
