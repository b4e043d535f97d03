"""aten operations that sum up, search and order along axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
from dlv.adapters.onnx.rules.movement import calculate, converted
from dlv.errors import UsageError
from dlv.network.sizes import Dim, axis_of

REDUCTIONS = Rules()

Axes = int | Sequence[int] | None


def axes_of(dim: Axes) -> list[int] | None:
    """None, or an empty list: all."""
    if dim is None or dim == []:
        return None
    return [dim] if isinstance(dim, int) else list(dim)


def _cast(g: Graph, x: Item, dtype: Type | None) -> Value:
    return converted(g, g.value(x), dtype_name(dtype))


def _total(kind: str) -> Rule:
    def rule(
        g: Graph, x: Item, dim: Axes = None, keepdim: bool = False, dtype: Type | None = None
    ) -> Value:
        return g.reduce(kind, _summable(g, x, dtype), axes_of(dim), keepdim)

    return rule


def _summable(g: Graph, x: Item, dtype: Type | None) -> Value:
    """The tensor in the dtype that is asked for, else whole numbers with 64 bits."""
    value = _cast(g, x, dtype)
    return g.cast(value, "int64") if dtype is None and category(value.dtype) < 2 else value


REDUCTIONS["sum"], REDUCTIONS["prod"] = _total("ReduceSum"), _total("ReduceProd")


@REDUCTIONS.enter("mean")
def mean(
    g: Graph, x: Item, dim: Axes = None, keepdim: bool = False, dtype: Type | None = None
) -> Value:
    return g.reduce("ReduceMean", _cast(g, x, dtype), axes_of(dim), keepdim)


def _extreme(kind: str) -> Rule:
    def rule(g: Graph, x: Item, dim: Axes = None, keepdim: bool = False) -> Value:
        return g.reduce(kind, g.value(x), axes_of(dim), keepdim)

    return rule


REDUCTIONS["amax"] = REDUCTIONS["max.default"] = _extreme("ReduceMax")
REDUCTIONS["amin"] = REDUCTIONS["min.default"] = _extreme("ReduceMin")


def _best_and_place(kind: str) -> Rule:
    def rule(g: Graph, x: Item, dim: int, keepdim: bool = False) -> list[Value]:
        value = g.value(x)
        best = g.reduce(f"Reduce{kind}", value, [dim], keepdim)
        return [best, _place(g, f"Arg{kind}", value, dim, keepdim)]

    return rule


REDUCTIONS["max.dim"], REDUCTIONS["min.dim"] = _best_and_place("Max"), _best_and_place("Min")


def _place(g: Graph, kind: str, x: Value, dim: int, keepdim: bool) -> Value:
    axis = axis_of(dim, x.rank, "axis")
    dims = enumerate(x.shape or ())
    shape = tuple(1 if at == axis else n for at, n in dims if keepdim or at != axis)
    attrs = {"axis": axis, "keepdims": int(keepdim)}
    return g.op(kind, [x], attrs, dtype="int64", shape=shape)


def _position(kind: str) -> Rule:
    def rule(g: Graph, x: Item, dim: int | None = None, keepdim: bool = False) -> Value:
        value = g.value(x)
        if dim is not None:
            return _place(g, kind, value, dim, keepdim)
        made = _place(g, kind, g.reshape(value, [-1]), 0, False)
        return g.reshape(made, [1] * value.rank) if keepdim else made

    return rule


REDUCTIONS["argmax"], REDUCTIONS["argmin"] = _position("ArgMax"), _position("ArgMin")


def _truth(kind: str) -> Rule:
    def rule(g: Graph, x: Item, dim: Axes = None, keepdim: bool = False) -> Value:
        value = g.cast(g.value(x, "bool"), "int32")
        return g.cast(g.reduce(kind, value, axes_of(dim), keepdim), "bool")

    return rule


REDUCTIONS["any"], REDUCTIONS["all"] = _truth("ReduceMax"), _truth("ReduceMin")


@REDUCTIONS.enter("logsumexp")
def logsumexp(g: Graph, x: Item, dim: Axes, keepdim: bool = False) -> Value:
    return g.reduce("ReduceLogSumExp", fractions(g, x), axes_of(dim), keepdim)


def _count(g: Graph, x: Value, axes: list[int] | None) -> Item:
    """How many elements are summed up."""
    total: Item = 1
    for axis in range(x.rank) if axes is None else axes:
        length = g.length(x, axis)
        if isinstance(total, int) and isinstance(length, int):
            total *= length
        else:
            total = calculate(g, "mul", [total, length])
    return total


def moments(g: Graph, x: Item, dim: Axes, correction: float, keepdim: bool) -> tuple[Value, Value]:
    """Variance and mean."""
    value, axes = fractions(g, x), axes_of(dim)
    center = g.reduce("ReduceMean", value, axes, True)
    off = g.binary("Sub", value, center)
    squares = g.reduce("ReduceSum", g.op("Mul", [off, off]), axes, keepdim)
    count = _count(g, value, axes)
    if isinstance(count, (int, float)):
        rest: Item = max(0.0, count - correction)
    else:
        less = g.cast(g.value(count), value.dtype)
        left = arithmetic(g, "Sub", [less, correction])
        one, other = together(g, [left, 0.0])
        rest = g.binary("Max", one, other)
    variance = g.binary("Div", squares, g.value(rest, value.dtype))
    plain = center if keepdim else g.reduce("ReduceMean", value, axes, False)
    return variance, plain


def _spread(root: bool, both: bool) -> Rule:
    def rule(
        g: Graph,
        x: Item,
        dim: Any = None,
        unbiased: bool = True,
        keepdim: bool = False,
        correction: float | None = -1.0,
    ) -> Item | list[Value]:
        if isinstance(dim, bool):
            dim, unbiased = None, dim  # the overload without axes
        less = float(unbiased) if correction == -1.0 else 1.0 if correction is None else correction
        variance, center = moments(g, x, dim, less, keepdim)
        made = g.op("Sqrt", [variance]) if root else variance
        return [made, center] if both else made

    return rule


for _name, _root in (("var", False), ("std", True)):
    REDUCTIONS[_name], REDUCTIONS[f"{_name}_mean"] = _spread(_root, False), _spread(_root, True)


@REDUCTIONS.enter("linalg_vector_norm", "norm")
def norm(
    g: Graph,
    x: Item,
    ord: Any = 2,  # noqa: A002
    dim: Axes = None,
    keepdim: bool = False,
    dtype: Type | None = None,
    p: Any = None,
) -> Value:
    ord = 2 if ord is None else ord if p is None else p  # noqa: A001
    value = fractions(g, _cast(g, x, dtype))
    axes = axes_of(dim)
    if ord in (1, 2):
        return g.reduce(f"ReduceL{int(ord)}", value, axes, keepdim)
    size = g.op("Abs", [value])
    if ord in (math.inf, -math.inf):
        return g.reduce("ReduceMax" if ord > 0 else "ReduceMin", size, axes, keepdim)
    if ord == 0:
        raise UsageError("the norm of order 0 cannot be exported")
    powers = g.op("Pow", [size, g.constant(ord, value.dtype)])
    total = g.reduce("ReduceSum", powers, axes, keepdim)
    return g.op("Pow", [total, g.constant(1 / ord, value.dtype)])


@REDUCTIONS.enter("_weight_norm")
def weight_norm(g: Graph, v: Item, lengths: Item, dim: int = 0) -> Value:
    """A weight as its direction times a length for each place of one axis."""
    value = g.value(v)
    axes = [axis for axis in range(value.rank) if axis != dim % value.rank]
    size = g.reduce("ReduceL2", value, axes, True)
    return arithmetic(g, "Mul", [value, arithmetic(g, "Div", [lengths, size])])


@REDUCTIONS.enter("cumsum")
def cumsum(g: Graph, x: Item, dim: int, dtype: Type | None = None) -> Value:
    return g.op("CumSum", [_summable(g, x, dtype), g.constant(dim, "int64")])


@REDUCTIONS.enter("topk")
def topk(
    g: Graph,
    x: Item,
    k: int | Value,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,  # noqa: A002
) -> list[Value]:
    value = g.value(x)
    axis = axis_of(dim, value.rank, "axis")
    shape: list[Dim] = list(value.shape or ())
    shape[axis] = k if isinstance(k, int) else k.symbol
    attrs = {"axis": axis, "largest": int(largest), "sorted": int(sorted)}
    outputs = [(value.dtype, tuple(shape)), ("int64", tuple(shape))]
    return g.ops("TopK", [value, g.vector([k])], outputs, attrs)


@REDUCTIONS.enter("sort.default")
def sort(g: Graph, x: Item, dim: int = -1, descending: bool = False) -> list[Value]:
    value = g.value(x)
    found = topk(g, value, g.length(value, dim), dim, descending)
    assert isinstance(found, list)
    return found


@REDUCTIONS.enter("sort.stable")
def sort_stable(
    g: Graph,
    x: Item,
    stable: bool | None = None,  # noqa: ARG001
    dim: int = -1,
    descending: bool = False,
) -> list[Value]:
    return sort(g, x, dim, descending)


@REDUCTIONS.enter("argsort.default")
def argsort(g: Graph, x: Item, dim: int = -1, descending: bool = False) -> Value:
    return sort(g, x, dim, descending)[1]


def _softmax(kind: str) -> Rule:
    def rule(g: Graph, x: Item, dim: int, dtype: Any = None) -> Value:
        given = dtype if isinstance(dtype, Type) else None
        return g.op(kind, [fractions(g, _cast(g, x, given))], {"axis": dim})

    return rule


for _name, _kind in (("softmax", "Softmax"), ("log_softmax", "LogSoftmax")):
    REDUCTIONS[_name] = REDUCTIONS[f"_{_name}"] = _softmax(_kind)
REDUCTIONS["special_softmax"], REDUCTIONS["_safe_softmax"] = (REDUCTIONS["softmax"],) * 2


@REDUCTIONS.enter("cosine_similarity")
def cosine_similarity(g: Graph, x1: Item, x2: Item, dim: int = 1, eps: float = 1e-8) -> Value:
    a, b = together(g, [x1, x2], fractions=True)
    product = g.reduce("ReduceSum", g.binary("Mul", a, b), [dim], False)
    least = g.constant(eps, a.dtype)
    one, two = (g.binary("Max", g.reduce("ReduceL2", each, [dim], False), least) for each in (a, b))
    return g.binary("Div", product, g.binary("Mul", one, two))
