"""ONNX operators along axes that torch has under another name: reductions, searches, resizing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlv.adapters.onnx.builder import Cannot
from dlv.adapters.onnx.call import Arguments, Call
from dlv.adapters.onnx.ops import Rule
from dlv.adapters.onnx.ops_elementwise import aten
from dlv.adapters.onnx.ops_shape import reduced_axes
from dlv.adapters.onnx.values import Formula, Length
from dlv.network.sizes import Shape


def _reduced_shape(shape: Shape | None, axes: Sequence[int], keep: bool) -> Shape | None:
    if shape is None:
        return None
    gone = {axis % len(shape) for axis in axes}
    if keep:
        return tuple(1 if place in gone else dim for place, dim in enumerate(shape))
    return tuple(dim for place, dim in enumerate(shape) if place not in gone)


def _reduce(op: str, *before: float) -> Rule:
    def rule(call: Call) -> None:
        axes, keep = reduced_axes(call)
        if axes is None:
            axes = list(range(call.rank()))
        if call.shape(0) is not None:
            axes = [call.axis(axis, call.rank()) for axis in axes]
        given = Arguments(call)
        args = [
            given.tensor(call.value(0)),
            *({"c": value} for value in before),
            {"l": [{"c": axis} for axis in axes]},
            {"c": keep},
        ]
        aten(call, op, given, args, _reduced_shape(call.shape(0), axes, keep), call.dtype())

    return rule


def _extreme(op: str) -> Rule:
    def rule(call: Call) -> None:
        if call.flag("select_last_index", 0):
            raise Cannot("the last of equals")
        axis, keep = call.integer("axis", 0), call.flag("keepdims", 1)
        if call.shape(0) is not None:
            call.axis(axis, call.rank())
        given = Arguments(call)
        args = [given.tensor(call.value(0)), {"c": axis}, {"c": keep}]
        aten(call, op, given, args, _reduced_shape(call.shape(0), [axis], keep), "int64")

    return rule


def _cumulative(call: Call) -> None:
    if call.flag("exclusive", 0) or call.flag("reverse", 0):
        raise Cannot("a special sum")
    given = Arguments(call)
    args = [given.tensor(call.value(0)), {"c": int(call.scalar(1))}]
    aten(call, "cumsum.default", given, args, call.shape(0), call.dtype())


def _tile(call: Call) -> None:
    repeats, given = call.whole(1), Arguments(call)
    args = [given.tensor(call.value(0)), {"l": [{"c": each} for each in repeats]}]
    have = call.shape(0)
    shape: Shape | None = None
    if have is not None and len(have) == len(repeats):
        pairs = zip(have, repeats, strict=True)
        shape = tuple(n * k if isinstance(n, int) else n if k == 1 else None for n, k in pairs)
    aten(call, "repeat.default", given, args, shape, call.dtype())


def _top(call: Call) -> None:
    """The first of what is sorted: of equal ones ONNX wants the earlier, torch's topk any."""
    if call.version < 10:
        raise Cannot("an old form")
    count, axis = int(call.scalar(1)), call.integer("axis", -1)
    if not call.flag("sorted", 1):
        raise Cannot("in any order")
    given, builder = Arguments(call), call.builder
    source = {
        "dialect": "aten",
        "op": "aten.sort.stable",
        "args": [given.tensor(call.value(0))],
        "kwargs": {
            "stable": {"c": True},
            "dim": {"c": axis},
            "descending": {"c": call.flag("largest", 1)},
        },
    }
    made = builder.emit(
        call.label(),
        "OP",
        {},
        given.inputs,
        variant="raw",
        params=given.params,
        source=source,
        out_shape=call.shape(0),
    )
    for place, value in enumerate(call.operator.outputs):
        if value:
            attrs = {"kind": "getitem", "index": place}
            item = builder.emit(f"{made}.{place}", "RESHAPE", attrs, [(made, 0)])
            cut = {"kind": "slice", "axis": axis, "start": 0, "end": count, "step": 1}
            first = builder.emit(f"{made}.{place}.first", "RESHAPE", cut, [(item, 0)])
            builder.bind(value, (first, 0), None, "int64" if place else call.dtype())


def _einsum(call: Call) -> None:
    given = Arguments(call)
    parts = [given.tensor(call.value(place)) for place in range(len(call.operator.inputs))]
    args: list[dict[str, Any]] = [{"c": call.text("equation")}, {"l": parts}]
    aten(call, "einsum.default", given, args, None, call.dtype())


def _triangle(call: Call) -> None:
    op = "triu.default" if call.flag("upper", 1) else "tril.default"
    given = Arguments(call)
    args = [given.tensor(call.value(0)), {"c": int(call.scalar(1)) if call.has(1) else 0}]
    aten(call, op, given, args, call.shape(0), call.dtype())


def _range(call: Call) -> None:
    """Whole numbers up to a length known at run time."""
    given = Arguments(call)
    args: list[dict[str, Any]] = []
    for place in range(3):
        entries = call.entries(place)
        if len(entries) != 1:
            raise Cannot("no number")
        entry = entries[0]
        if isinstance(entry, (Length, Formula)):
            args.append(given.at(call.builder.number(entry)))
        else:
            args.append({"c": entry})
    dtype = {"dtype": {"dtype": "int64"}}
    aten(call, "arange.start_step", given, args, (None,), "int64", dtype)


def _resize(call: Call) -> None:
    """Whole factors along the two last axes, as torch's upsampling has them."""
    scales = [float(scale) for scale in call.numbers(2)] if call.has(2) else []
    if call.version < 11 or len(scales) != 4 or scales[:2] != [1, 1] or call.has(3):
        raise Cannot("other factors")
    if any(scale != int(scale) or scale < 1 for scale in scales):
        raise Cannot("other factors")
    mode = call.text("mode", "nearest")
    places = call.text("coordinate_transformation_mode", "half_pixel")
    # What other modes than these ask for; exporters write all of it.
    call.idle("cubic_coeff_a", "extrapolation_value", "exclude_outside")
    if mode == "linear":
        call.idle("nearest_mode")
    if call.has(1):
        call.known(1)  # a part of the tensor, which a mode of its own takes
    given = Arguments(call)
    factors: dict[str, Any] = {"l": [{"c": scale} for scale in scales[2:]]}
    args: list[dict[str, Any]] = [given.tensor(call.value(0)), {"c": None}]
    more: list[dict[str, Any]]
    if mode == "nearest" and places == "asymmetric":
        if call.text("nearest_mode", "round_prefer_floor") != "floor":
            raise Cannot("another rounding")
        op, more = "upsample_nearest2d.vec", [factors]
    elif mode == "linear" and places in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        corners = places == "align_corners"
        op, more = "upsample_bilinear2d.vec", [{"c": corners}, factors]
    else:
        raise Cannot("another mode")
    shape = call.shape(0)
    if shape is not None:
        lengths = zip(shape[2:], scales[2:], strict=False)
        larger = (n * int(k) if isinstance(n, int) else None for n, k in lengths)
        shape = (*shape[:2], *larger)
    aten(call, op, given, [*args, *more], shape, call.dtype())


def _pick(call: Call) -> None:
    """Gather of places that are written down; torch does not count them from the end."""
    axis, places = call.integer("axis", 0), call.whole(1)
    if call.builder.shape(call.value(1)) != (len(places),) or any(at < 0 for at in places):
        raise Cannot("places of another form")
    shape = call.shape(0)
    if shape is not None:
        at = call.axis(axis, len(shape))
        shape = (*shape[:at], len(places), *shape[at + 1 :])
    given = Arguments(call)
    data = given.tensor(call.value(0))
    args = [data, {"c": axis}, given.tensor(call.value(1))]
    aten(call, "index_select.default", given, args, shape, call.dtype())


REDUCTIONS: dict[str, Rule] = {
    "ReduceSum": _reduce("sum.dim_IntList"),
    "ReduceMax": _reduce("amax.default"),
    "ReduceMin": _reduce("amin.default"),
    "ReduceL2": _reduce("linalg_vector_norm.default", 2),
    "ReduceLogSumExp": _reduce("logsumexp.default"),
    "ArgMax": _extreme("argmax.default"),
    "ArgMin": _extreme("argmin.default"),
    "CumSum": _cumulative,
    "Tile": _tile,
    "TopK": _top,
    "Einsum": _einsum,
    "Trilu": _triangle,
    "Range": _range,
    "Resize": _resize,
}
# Tried after the rule of the vocabulary found that it does not apply.
PICKS: dict[str, Rule] = {"Gather": _pick}
