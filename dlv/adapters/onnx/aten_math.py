"""aten operations element by element: arithmetic, comparisons, conversions, activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dlv.adapters.onnx.graph import (
    Graph,
    Item,
    Rule,
    Rules,
    Type,
    Value,
    arithmetic,
    category,
    dtype_name,
    fractions,
    together,
)
from dlv.adapters.onnx.rules.movement import converted, split
from dlv.errors import UsageError
from dlv.network.sizes import axis_of

MATH = Rules()

_FRACTIONS = {
    "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "erf": "Erf", "sin": "Sin", "cos": "Cos",
    "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh",
    "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh",
    "reciprocal": "Reciprocal", "sigmoid": "Sigmoid", "tanh": "Tanh",
}  # fmt: skip
_SAME = {
    "neg": "Neg", "abs": "Abs", "sign": "Sign", "sgn": "Sign", "relu": "Relu",
    "hardswish": "HardSwish", "selu": "Selu", "mish": "Mish",
}  # fmt: skip
_ROUNDING = {"floor": "Floor", "ceil": "Ceil", "round": "Round"}
_COMPARISONS = {
    "eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual",
}  # fmt: skip

_LARGEST = {"float16": 65504.0, "float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308}


def _round(kind: str) -> Rule:
    def rule(g: Graph, x: Item) -> Value:
        value = g.value(x)
        return value if category(value.dtype) < 2 else g.op(kind, [value])

    return rule


def compare(g: Graph, kind: str, x: Item, other: Item) -> Value:
    a, b = together(g, [x, other])
    if a.dtype == "bool" and kind != "Equal":
        a, b = g.cast(a, "int32"), g.cast(b, "int32")
    return g.binary(kind, a, b, "bool")


def scaled(g: Graph, x: Item, factor: Item) -> Item:
    if isinstance(factor, (int, float)) and factor == 1:
        return x
    if not isinstance(x, Value) and not isinstance(factor, Value):
        return x * factor
    return arithmetic(g, "Mul", [x, factor])


def isnan(g: Graph, x: Item) -> Value:
    return g.op("IsNaN", [fractions(g, x)], dtype="bool")


def isinf(g: Graph, x: Item) -> Value:
    return g.op("IsInf", [fractions(g, x)], dtype="bool")


# What has no operator of its own, of a tensor of fractions.
_WRITTEN_OUT: Mapping[str, Callable[[Graph, Value], Value]] = {
    "rsqrt": lambda g, x: g.op("Reciprocal", [g.op("Sqrt", [x])]),
    "exp2": lambda g, x: power(g, 2.0, x),
    "expm1": lambda g, x: arithmetic(g, "Sub", [g.op("Exp", [x]), 1]),
    "log1p": lambda g, x: g.op("Log", [arithmetic(g, "Add", [x, 1])]),
    "log2": lambda g, x: arithmetic(g, "Div", [g.op("Log", [x]), math.log(2)]),
    "log10": lambda g, x: arithmetic(g, "Div", [g.op("Log", [x]), math.log(10)]),
    "silu": lambda g, x: g.op("Mul", [x, g.op("Sigmoid", [x])]),
    "log_sigmoid": lambda g, x: g.op("Neg", [g.op("Softplus", [g.op("Neg", [x])])]),
}


def _of_fractions(write: Callable[[Graph, Value], Value]) -> Rule:
    return lambda g, x: write(g, fractions(g, x))


def _of_two(kind: str) -> Rule:
    def rule(g: Graph, x: Item, other: Item) -> Value:
        a, b = together(g, [x, other])
        return g.binary(kind, a, b)

    return rule


def _operator(kind: str) -> Rule:
    return lambda g, x: g.op(kind, [g.value(x)])


def _fraction(kind: str) -> Rule:
    return lambda g, x: g.op(kind, [fractions(g, x)])


def _comparison(kind: str) -> Rule:
    return lambda g, x, other: compare(g, kind, x, other)


MATH.update({name: _fraction(kind) for name, kind in _FRACTIONS.items()})
MATH.update({name: _operator(kind) for name, kind in _SAME.items()})
MATH.update({name: _round(kind) for name, kind in _ROUNDING.items()})
MATH.update({name: _comparison(kind) for name, kind in _COMPARISONS.items()})
MATH.update({name: _of_fractions(write) for name, write in _WRITTEN_OUT.items()})
MATH.update(dict.fromkeys(("maximum", "max.other", "fmax"), _of_two("Max")))
MATH.update(dict.fromkeys(("minimum", "min.other", "fmin"), _of_two("Min")))
MATH.update(
    {
        "isnan": isnan,
        "isinf": isinf,
        "ne": lambda g, x, other: g.op("Not", [compare(g, "Equal", x, other)]),
        "log_sigmoid_forward": MATH["log_sigmoid"],
        "mul": lambda g, x, other: arithmetic(g, "Mul", [x, other]),
        "add": lambda g, x, other, alpha=1: arithmetic(g, "Add", [x, scaled(g, other, alpha)]),
        "sub": lambda g, x, other, alpha=1: arithmetic(g, "Sub", [x, scaled(g, other, alpha)]),
        "rsub": lambda g, x, other, alpha=1: arithmetic(g, "Sub", [other, scaled(g, x, alpha)]),
        "logical_not": lambda g, x: g.op("Not", [g.value(x, "bool")]),
        "isfinite": lambda g, x: g.op("Not", [g.binary("Or", isnan(g, x), isinf(g, x))]),
        "addcmul": lambda g, x, a, b, value=1: arithmetic(
            g, "Add", [x, scaled(g, arithmetic(g, "Mul", [a, b]), value)]
        ),
        "lerp": lambda g, x, end, weight: arithmetic(
            g, "Add", [x, arithmetic(g, "Mul", [arithmetic(g, "Sub", [end, x]), weight])]
        ),
        "gelu": lambda g, x, approximate="none": g.op(
            "Gelu", [fractions(g, x)], {"approximate": approximate}
        ),
        "hardsigmoid": lambda g, x: g.op(
            "HardSigmoid", [g.value(x)], {"alpha": 1 / 6, "beta": 0.5}
        ),
        "leaky_relu": lambda g, x, negative_slope=0.01: g.op(
            "LeakyRelu", [g.value(x)], {"alpha": float(negative_slope)}
        ),
    }
)
MATH["multiply"], MATH["subtract"] = MATH["mul"], MATH["sub"]


@MATH.enter("square")
def square(g: Graph, x: Item) -> Value:
    return arithmetic(g, "Mul", [x, x])


@MATH.enter("trunc", "fix")
def trunc(g: Graph, x: Item) -> Value:
    value = g.value(x)
    if category(value.dtype) < 2:
        return value
    return g.op("Mul", [g.op("Sign", [value]), g.op("Floor", [g.op("Abs", [value])])])


@MATH.enter("nan_to_num")
def nan_to_num(
    g: Graph,
    x: Item,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Value:
    value = g.value(x)
    if category(value.dtype) < 2:
        return value
    largest = _LARGEST[value.dtype]
    wanted = (
        (isnan(g, value), 0.0 if nan is None else nan),
        (compare(g, "Equal", value, math.inf), largest if posinf is None else posinf),
        (compare(g, "Equal", value, -math.inf), -largest if neginf is None else neginf),
    )
    for found, number in wanted:
        value = g.where(found, g.constant(number, value.dtype), value)
    return value


@MATH.enter("div", "true_divide", "divide")
def div(g: Graph, x: Item, other: Item, rounding_mode: str | None = None) -> Value:
    a, b = together(g, [x, other], fractions=rounding_mode is None)
    if category(a.dtype) < 2:
        return floor_of(g, a, b) if rounding_mode == "floor" else g.binary("Div", a, b)
    made = g.binary("Div", a, b)
    if rounding_mode == "trunc":
        return trunc(g, made)
    return g.op("Floor", [made]) if rounding_mode == "floor" else made


MATH["floor_divide"] = lambda g, x, other: div(g, x, other, "floor")


def floor_of(g: Graph, a: Value, b: Value) -> Value:
    """Of whole numbers: less what remains, the division is exact."""
    rest = g.binary("Mod", a, b)
    return g.binary("Div", g.binary("Sub", a, rest), b)


@MATH.enter("remainder")
def remainder(g: Graph, x: Item, other: Item) -> Value:
    a, b = together(g, [x, other])
    if category(a.dtype) < 2:
        return g.binary("Mod", a, b)
    whole = g.op("Floor", [g.binary("Div", a, b)])
    return g.binary("Sub", a, g.binary("Mul", whole, b))


@MATH.enter("fmod")
def fmod(g: Graph, x: Item, other: Item) -> Value:
    a, b = together(g, [x, other])
    made = g.binary("Mod", a, b)
    g.steps[-1].attrs = {"fmod": 1}
    return made


def power(g: Graph, x: Item, exponent: Item) -> Value:
    a, b = together(g, [x, exponent])
    return g.binary("Pow", a, b)


@MATH.enter("pow")
def pow_(g: Graph, x: Item, exponent: Item) -> Value:
    if isinstance(exponent, (int, float)) and exponent == 2:
        return square(g, x)
    return power(g, x, exponent)


@MATH.enter("clamp", "clip")
def clamp(g: Graph, x: Item, min: Item | None = None, max: Item | None = None) -> Value:  # noqa: A002
    given = [item for item in (x, min, max) if item is not None]
    values = together(g, given)
    value = values.pop(0)
    if min is not None:
        value = g.binary("Max", value, values.pop(0))
    return value if max is None else g.binary("Min", value, values.pop(0))


MATH["relu6"] = lambda g, x: clamp(g, x, 0, 6)
MATH["hardtanh"] = lambda g, x, min_val=-1, max_val=1: clamp(g, x, min_val, max_val)
MATH["clamp_min"] = lambda g, x, min: clamp(g, x, min)  # noqa: A006
MATH["clamp_max"] = lambda g, x, max: clamp(g, x, None, max)  # noqa: A006


@MATH.enter("where")
def where(g: Graph, condition: Item, x: Item, other: Item) -> Value:
    chosen = g.value(condition, "bool")
    yes, no = together(g, [x, other])
    if yes.dtype == "bool":
        either = g.binary("And", chosen, yes)
        return g.binary("Or", either, g.binary("And", g.op("Not", [chosen]), no))
    return g.where(chosen, yes, no)


@MATH.enter("masked_fill")
def masked_fill(g: Graph, x: Item, mask: Item, value: Item) -> Value:
    data = g.value(x)
    return where(g, mask, g.value(value, data.dtype), data)


@MATH.enter("addcdiv")
def addcdiv(g: Graph, x: Item, a: Item, b: Item, value: Item = 1) -> Value:
    over, under = together(g, [a, b], fractions=True)
    return arithmetic(g, "Add", [x, scaled(g, g.binary("Div", over, under), value)])


_WORDS = {"and": "And", "or": "Or", "xor": "Xor"}


def _logical(kind: str) -> Rule:
    return lambda g, x, other: g.binary(kind, g.value(x, "bool"), g.value(other, "bool"))


def _bitwise(kind: str) -> Rule:
    def rule(g: Graph, x: Item, other: Item) -> Value:
        a, b = together(g, [x, other])
        return g.binary(kind if a.dtype == "bool" else f"Bitwise{kind}", a, b)

    return rule


for _word, _kind in _WORDS.items():
    MATH[f"logical_{_word}"] = _logical(_kind)
    MATH[f"bitwise_{_word}"] = MATH[f"__{_word}__"] = _bitwise(_kind)


@MATH.enter("bitwise_not")
def bitwise_not(g: Graph, x: Item) -> Value:
    value = g.value(x)
    return g.op("Not" if value.dtype == "bool" else "BitwiseNot", [value])


@MATH.enter("to", "_to_copy", "type_as", "to_dtype")
def to(g: Graph, x: Item, *args: Any, dtype: Type | None = None) -> Value:
    value = g.value(x)
    for item in args:
        if isinstance(item, Type):
            dtype = item
        elif isinstance(item, Value):
            return g.cast(value, item.dtype)
    return converted(g, value, dtype_name(dtype))


def _identity(g: Graph, x: Item, *_: Any, **__: Any) -> Item:  # noqa: ARG001
    return x


MATH.update(
    dict.fromkeys(
        (
            *("clone", "alias", "detach", "detach_", "lift_fresh_copy", "lift_fresh"),
            *("contiguous", "positive", "dropout", "feature_dropout", "alpha_dropout"),
            *("feature_alpha_dropout", "native_dropout"),
        ),
        _identity,
    )
)


@MATH.enter("bernoulli", "rand", "randn", "rand_like", "randn_like", "randint", "multinomial")
def random(g: Graph, *_: Any, **__: Any) -> Sequence[Item]:  # noqa: ARG001
    raise UsageError(
        "numbers drawn at random are not exported",
        hint="let forward draw them in training only, or hand them in as an input",
    )


@MATH.enter("elu")
def elu(
    g: Graph, x: Item, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Value:
    inner = g.value(scaled(g, g.value(x), input_scale))
    made = g.op("Elu", [inner], {"alpha": float(alpha)})
    if input_scale != 1:
        # What is positive is not scaled before.
        made = where(g, g.binary("Greater", inner, g.constant(0, inner.dtype), "bool"), x, made)
    return g.value(scaled(g, made, scale))


@MATH.enter("celu")
def celu(g: Graph, x: Item, alpha: float = 1.0) -> Value:
    value = g.value(x)
    made = g.op("Celu", [g.cast(value, "float32")], {"alpha": float(alpha)})
    return g.cast(made, value.dtype)  # the operator is there for float32 alone


@MATH.enter("prelu", "_prelu_kernel")
def prelu(g: Graph, x: Item, weight: Item) -> Value:
    value, slope = together(g, [x, weight])
    if slope.shape is not None and slope.rank == 1 and value.rank != 2:
        slope = g.reshape(slope, [1] if value.rank < 2 else [-1, *[1] * (value.rank - 2)])
    return g.op("PRelu", [value, slope])


@MATH.enter("softplus")
def softplus(g: Graph, x: Item, beta: float = 1, threshold: float = 20) -> Value:
    value = fractions(g, x)
    if beta == 1 and threshold == 20:
        return g.op("Softplus", [value])
    inner = g.value(scaled(g, value, float(beta)))
    made = arithmetic(g, "Div", [g.op("Softplus", [inner]), float(beta)])
    far = g.binary("Greater", inner, g.constant(threshold, inner.dtype), "bool")
    return g.where(far, value, made)


@MATH.enter("glu")
def glu(g: Graph, x: Item, dim: int = -1) -> Value:
    value = g.value(x)
    axis = axis_of(dim, value.rank, "axis")
    length = g.length(value, axis)
    if not isinstance(length, int):
        raise UsageError("glu takes an axis of a fixed length")
    left, right = split(g, value, axis, [length // 2] * 2)
    return g.op("Mul", [left, g.op("Sigmoid", [right])])


@MATH.enter("threshold")
def threshold(g: Graph, x: Item, threshold: float, value: Item) -> Value:
    data = g.value(x)
    above = g.binary("Greater", data, g.constant(threshold, data.dtype), "bool")
    return where(g, above, data, g.value(value, data.dtype))


def _shrink(soft: bool) -> Rule:
    def rule(g: Graph, x: Item, lambd: float = 0.5) -> Value:
        return g.op("Shrink", [g.value(x)], {"lambd": lambd, "bias": lambd if soft else 0.0})

    return rule


MATH["softshrink"], MATH["hardshrink"] = _shrink(True), _shrink(False)
