"""Sums, searches and orders along axes, which are OPs in the words of aten."""

from __future__ import annotations

from collections.abc import Sequence

from dlv.adapters.onnx.builder import Cannot
from dlv.adapters.onnx.call import Call, Reader, aten_source
from dlv.network.sizes import Shape


def _reduced_shape(shape: Shape | None, axes: Sequence[int], keep: bool) -> Shape | None:
    if shape is None:
        return None
    gone = {axis % len(shape) for axis in axes}
    if keep:
        return tuple(1 if place in gone else dim for place, dim in enumerate(shape))
    return tuple(dim for place, dim in enumerate(shape) if place not in gone)


def _reduction_reader(op: str, *before: float) -> Reader:
    def rule(call: Call) -> None:
        axes, keep = call.reduced_axes()
        if axes is None:
            axes = list(range(call.rank()))
        if call.shape(0) is not None:
            axes = [call.axis(axis, call.rank()) for axis in axes]
        x, shape = call.argument(0), _reduced_shape(call.shape(0), axes, keep)
        call.aten(op, x, *before, axes, keep, shape=shape, dtype=call.dtype())

    return rule


def _extreme_reader(op: str) -> Reader:
    def rule(call: Call) -> None:
        if call.flag("select_last_index", 0):
            raise Cannot("the last of equals")
        axis, keep = call.integer("axis", 0), call.flag("keepdims", 1)
        if call.shape(0) is not None:
            call.axis(axis, call.rank())
        x, shape = call.argument(0), _reduced_shape(call.shape(0), [axis], keep)
        call.aten(op, x, axis, keep, shape=shape, dtype="int64")

    return rule


def read_cumulative(call: Call) -> None:
    if call.flag("exclusive", 0) or call.flag("reverse", 0):
        raise Cannot("a special sum")
    axis = int(call.scalar(1))
    call.aten("cumsum.default", call.argument(0), axis, shape=call.shape(0), dtype=call.dtype())


def read_top(call: Call) -> None:
    """The first of what is sorted: of equal ones ONNX wants the earlier, torch's topk any."""
    if call.version < 10:
        raise Cannot("an old form")
    count, axis = int(call.scalar(1)), call.integer("axis", -1)
    if not call.flag("sorted", 1):
        raise Cannot("in any order")
    x, builder, largest = call.argument(0), call.builder, call.flag("largest", 1)
    source = aten_source("sort.stable", x, stable=True, dim=axis, descending=largest)
    made = call.call_node(source, call.shape(0))
    for place, value in enumerate(call.operator.outputs):
        if value:
            attrs = {"kind": "getitem", "index": place}
            item = builder.emit(f"{made}.{place}", "RESHAPE", attrs, [(made, 0)])
            cut = {"kind": "slice", "axis": axis, "start": 0, "end": count, "step": 1}
            first = builder.emit(f"{made}.{place}.first", "RESHAPE", cut, [(item, 0)])
            builder.bind(value, (first, 0), None, "int64" if place else call.dtype())


READERS: dict[str, Reader] = {
    "ReduceSum": _reduction_reader("sum.dim_IntList"),
    "ReduceMax": _reduction_reader("amax.default"),
    "ReduceMin": _reduction_reader("amin.default"),
    "ReduceL2": _reduction_reader("linalg_vector_norm.default", 2),
    "ReduceLogSumExp": _reduction_reader("logsumexp.default"),
    "ArgMax": _extreme_reader("argmax.default"),
    "ArgMin": _extreme_reader("argmin.default"),
    "CumSum": read_cumulative,
    "TopK": read_top,
}
