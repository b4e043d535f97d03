"""ADD, MUL and CONCAT, and what torch has for operators on elements.

What the vocabulary lacks and torch has with exactly this meaning becomes OP in the words of
aten, so that it can be run and is the same whichever way a model came in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dlv.adapters.onnx.builder import Cannot
from dlv.adapters.onnx.call import Call, Reader
from dlv.adapters.onnx.graph import Graph, Item, Value, Writer, arithmetic, together
from dlv.adapters.onnx.values import Literal
from dlv.adapters.protobuf import shortest
from dlv.network.graph import Node
from dlv.network.sizes import Shape, ShapeError, broadcast

# From ONNX


def is_float(dtype: str | None) -> bool:
    return (dtype or "").startswith(("float", "bfloat"))


def is_whole(dtype: str | None) -> bool:
    return (dtype or "").startswith(("int", "uint"))


def _number(call: Call, place: int) -> float | None:
    """A number that was written down, if it does not add axes."""
    item = call.known(place)
    if not isinstance(item, Literal) or len(item.values) != 1:
        return None
    other = call.shape(1 - place)
    if item.shape and (other is None or len(item.shape) > len(other)):
        return None
    value = item.values[0]
    return shortest(value) if isinstance(value, float) and item.dtype != "float64" else value


def _of_fractions(call: Call) -> bool:
    return any(is_float(call.dtype(place)) for place in range(2))


def _common(call: Call, places: Sequence[int] = (0, 1)) -> Shape | None:
    shapes = [call.shape(place) for place in places]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return None
    try:
        return broadcast(known)
    except ShapeError:
        raise Cannot("shapes that do not match") from None


def _combine_reader(op: str) -> Reader:
    def rule(call: Call) -> None:
        count = len(call.operator.inputs)
        if count == 2:
            return _pair(call, op)
        if count == 1:
            state = call.builder.states[call.value(0)]
            call.builder.states[call.outputs[0]] = state
            return None
        return call.emit(op, {}, [call.port(place) for place in range(count)])

    return rule


def _aligned(call: Call) -> None:
    """Before version 7 the second tensor could begin at any axis, today at the last ones."""
    if call.version >= 7 or not call.flag("broadcast", 0):
        return
    axis = call.attribute("axis")
    ranks = [len(shape) for shape in (call.shape(0), call.shape(1)) if shape is not None]
    if len(ranks) < 2 or ranks[1] > ranks[0]:
        raise Cannot("broadcasting as before version 7")
    if axis is not None and call.axis(call.integer("axis"), ranks[0]) + ranks[1] != ranks[0]:
        raise Cannot("broadcasting as before version 7")


def _pair(call: Call, op: str) -> None:
    _aligned(call)
    held = [call.held(place) for place in (0, 1)]
    weights = [item is not None and item.trainable and not item.flipped for item in held]
    if any(weights):
        place = weights.index(True)
        item = held[place]
        if all(weights) or item is None:
            raise Cannot("two weights")
        params, x = {"value": call.weight(place)}, call.port(1 - place)
        return call.emit(op, {"shape": item.stored.shape}, (x,), params=params)
    for place in (1, 0):
        number = _number(call, place)
        if number is None or isinstance(call.known(1 - place), Literal):
            continue
        if _of_fractions(call):
            if math.isfinite(number):
                return call.emit(op, {"const": float(number)}, (call.port(1 - place),))
            continue
        tensor, shape = call.argument(1 - place), call.shape(1 - place)
        dtype = call.dtype(1 - place)
        return call.aten(f"{op.lower()}.Tensor", tensor, number, shape=shape, dtype=dtype)
    return call.emit(op, {}, (call.port(0), call.port(1)))


def read_subtract(call: Call) -> None:
    number = _number(call, 1)
    if number is not None and _of_fractions(call) and math.isfinite(number):
        # Adding what is less than nothing gives the same bits.
        return call.emit("ADD", {"const": -float(number)}, (call.port(0),))
    left = _number(call, 0)
    if left is not None and _of_fractions(call):
        shape, dtype = call.shape(1), call.dtype(1)
        return call.aten("rsub.Scalar", call.argument(1), left, shape=shape, dtype=dtype)
    return _binary_reader("sub.Tensor")(call)


def _side(call: Call, place: int) -> dict[str, Any]:
    number = _number(call, place) if place else None
    return call.argument(place) if number is None else {"c": number}


# Of these, torch has a form of its own for a number on the right.
_SCALAR = frozenset(f"{op}.Tensor" for op in ("eq", "lt", "le", "gt", "ge", "remainder", "fmod"))


def _binary_reader(op: str, dtype: str | None = None) -> Reader:
    def rule(call: Call) -> None:
        _aligned(call)
        if len(call.operator.inputs) != 2:
            raise Cannot("other than two inputs")
        args = [_side(call, place) for place in (0, 1)]
        name = op.replace("Tensor", "Scalar") if "c" in args[1] and op in _SCALAR else op
        call.aten(name, *args, shape=_common(call), dtype=dtype or call.dtype())

    return rule


def _two_tensor_reader(op: str, dtype: str | None = None) -> Reader:
    def rule(call: Call) -> None:
        if len(call.operator.inputs) != 2:
            raise Cannot("other than two inputs")
        args = [call.argument(place) for place in (0, 1)]
        call.aten(op, *args, shape=_common(call), dtype=dtype or call.dtype())

    return rule


def read_divide(call: Call) -> None:
    if call.dtype() is None and call.dtype(1) is None:
        raise Cannot("a division of unknown numbers")
    if _of_fractions(call):
        return _binary_reader("div.Tensor")(call)
    args = [_side(call, place) for place in (0, 1)]
    shape, dtype, how = _common(call), call.dtype(), {"rounding_mode": "trunc"}
    return call.aten("div.Tensor_mode", *args, shape=shape, dtype=dtype, keywords=how)


def read_power(call: Call) -> None:
    number = _number(call, 1)
    _aligned(call)
    left, right = call.dtype(), call.dtype(1)
    # What comes out is of the first one's dtype; torch takes the wider one of both.
    if left != right and not (is_float(left) and (number is not None or not is_float(right))):
        raise Cannot("a power of two dtypes")
    if number is None or not _of_fractions(call):
        return _two_tensor_reader("pow.Tensor_Tensor")(call)
    shape, dtype = call.shape(0), call.dtype()
    return call.aten("pow.Tensor_Scalar", call.argument(0), number, shape=shape, dtype=dtype)


def read_modulo(call: Call) -> None:
    if not is_whole(call.dtype()):
        raise Cannot("torch has other rules for zeros and infinities")
    _binary_reader("fmod.Tensor" if call.flag("fmod", 0) else "remainder.Tensor")(call)


def read_where(call: Call) -> None:
    args = [call.argument(place) for place in range(3)]
    call.aten("where.self", *args, shape=_common(call, (0, 1, 2)), dtype=call.dtype(1))


def unary_reader(op: str, dtype: str | None = None, **wanted: float) -> Reader:
    """One tensor in; attributes must be as `wanted`."""

    def rule(call: Call) -> None:
        for name, value in wanted.items():
            told = call.attribute(name)
            found = value if told is None else told
            if not isinstance(found, float) or abs(found - value) > 1e-6:
                raise Cannot(f"another {name}")
        x, shape = call.argument(0), call.shape(0)
        call.aten(op, x, shape=shape, dtype=dtype or call.dtype())

    return rule


def read_concat(call: Call) -> None:
    axis, places = call.integer("axis", 1), range(len(call.operator.inputs))
    held = [call.held(place) for place in places]
    if not any(item is not None and item.trainable for item in held):
        return call.emit("CONCAT", {"axis": axis}, [call.port(place) for place in places])
    return call.aten("cat.default", [call.argument(place) for place in places], axis)


# To ONNX


def write_combine(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    items = list(inputs)
    const = node.attrs["const"]
    if const is not None:
        whole = const.is_integer() and abs(const) < 2**53 and not isinstance(items[0], float)
        floating = isinstance(items[0], Value) and items[0].dtype.startswith("float")
        items.append(int(const) if whole and not floating else const)
    if "value" in node.params:
        items.append(g.tensor(node.params["value"]))
    return arithmetic(g, "Add" if node.op == "ADD" else "Mul", items)


def write_concat(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    return g.op("Concat", together(g, inputs), {"axis": node.attrs["axis"]}, shape=None)


_UNARY = (
    *("Sqrt", "Exp", "Log", "Neg", "Abs", "Reciprocal", "Sin", "Cos", "Tan", "Floor", "Ceil"),
    *("Round", "Sign", "Erf", "Sinh", "Cosh", "Asin", "Acos", "Atan"),
)
_COMPARED = {
    "Equal": "eq",
    "Less": "lt",
    "LessOrEqual": "le",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
}
READERS: dict[str, Reader] = {
    "Add": _combine_reader("ADD"),
    "Mul": _combine_reader("MUL"),
    "Sum": _combine_reader("ADD"),
    "Sub": read_subtract,
    "Div": read_divide,
    "Pow": read_power,
    "Mod": read_modulo,
    "Where": read_where,
    "Concat": read_concat,
    "Max": _two_tensor_reader("maximum.default"),
    "Min": _two_tensor_reader("minimum.default"),
    **{kind: _binary_reader(f"{op}.Tensor", "bool") for kind, op in _COMPARED.items()},
    **{
        kind: _two_tensor_reader(f"logical_{kind.lower()}.default", "bool")
        for kind in ("And", "Or", "Xor")
    },
    "Not": unary_reader("logical_not.default"),
    "IsNaN": unary_reader("isnan.default", "bool"),
    **{kind: unary_reader(f"{kind.lower()}.default") for kind in _UNARY},
}
WRITERS: dict[str, Writer] = {"ADD": write_combine, "MUL": write_combine, "CONCAT": write_concat}
