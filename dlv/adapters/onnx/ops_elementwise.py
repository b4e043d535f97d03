"""ONNX operators on elements: ADD and MUL, and those that torch has under another name.

What the vocabulary lacks and torch has with exactly this meaning becomes OP in the words of
aten, so that it can be run and is the same whichever way a model came in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dlv.adapters.decimals import shortest
from dlv.adapters.onnx.builder import Cannot
from dlv.adapters.onnx.call import Arguments, Call
from dlv.adapters.onnx.ops import Rule
from dlv.adapters.onnx.values import Literal
from dlv.network.sizes import Shape, ShapeError, broadcast


def aten(
    call: Call,
    op: str,
    given: Arguments,
    args: Sequence[dict[str, Any]],
    shape: Shape | None = None,
    dtype: str | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> None:
    named = dict(kwargs or {})
    source = {"dialect": "aten", "op": f"aten.{op}", "args": list(args), "kwargs": named}
    call.put_raw(source, given, shape, dtype)


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


def is_float(dtype: str | None) -> bool:
    return (dtype or "").startswith(("float", "bfloat"))


def is_whole(dtype: str | None) -> bool:
    return (dtype or "").startswith(("int", "uint"))


def _fractions(call: Call) -> bool:
    return any(is_float(call.dtype(place)) for place in range(2))


def _common(call: Call, places: Sequence[int] = (0, 1)) -> Shape | None:
    shapes = [call.shape(place) for place in places]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return None
    try:
        return broadcast(known)
    except ShapeError:
        raise Cannot("shapes that do not go together") from None


def _combine(op: str) -> Rule:
    def rule(call: Call) -> None:
        count = len(call.operator.inputs)
        if count == 2:
            return _pair(call, op)
        if count == 1:
            state = call.builder.states[call.value(0)]
            call.builder.states[call.outputs[0]] = state
            return None
        return call.put(op, {}, [call.port(place) for place in range(count)])

    return rule


def _aligned(call: Call) -> None:
    """Before version 7 the second tensor could begin at any axis, today at the last ones."""
    if call.version >= 7 or not call.flag("broadcast", 0):
        return
    axis = call.given("axis")
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
        return call.put(op, {"shape": item.stored.shape}, (x,), params=params)
    for place in (1, 0):
        number = _number(call, place)
        if number is None or isinstance(call.known(1 - place), Literal):
            continue
        if _fractions(call):
            if math.isfinite(number):
                return call.put(op, {"const": float(number)}, (call.port(1 - place),))
            continue
        given = Arguments(call)
        args = [given.tensor(call.value(1 - place)), {"c": number}]
        return aten(
            call, f"{op.lower()}.Tensor", given, args, call.shape(1 - place), call.dtype(1 - place)
        )
    return call.put(op, {}, (call.port(0), call.port(1)))


def _subtract(call: Call) -> None:
    number = _number(call, 1)
    if number is not None and _fractions(call) and math.isfinite(number):
        # Adding what is less than nothing gives the same bits.
        return call.put("ADD", {"const": -float(number)}, (call.port(0),))
    left = _number(call, 0)
    if left is not None and _fractions(call):
        given = Arguments(call)
        args = [given.tensor(call.value(1)), {"c": left}]
        return aten(call, "rsub.Scalar", given, args, call.shape(1), call.dtype(1))
    return _binary("sub.Tensor")(call)


def _side(call: Call, given: Arguments, place: int) -> dict[str, Any]:
    number = _number(call, place) if place else None
    return given.tensor(call.value(place)) if number is None else {"c": number}


def _binary(op: str, dtype: str | None = None) -> Rule:
    def rule(call: Call) -> None:
        _aligned(call)
        if len(call.operator.inputs) != 2:
            raise Cannot("other than two inputs")
        given = Arguments(call)
        args = [_side(call, given, place) for place in (0, 1)]
        name = op.replace("Tensor", "Scalar") if "c" in args[1] and op in _SCALAR else op
        aten(call, name, given, args, _common(call), dtype or call.dtype())

    return rule


def _two_tensors(op: str, dtype: str | None = None) -> Rule:
    def rule(call: Call) -> None:
        if len(call.operator.inputs) != 2:
            raise Cannot("other than two inputs")
        given = Arguments(call)
        args = [given.tensor(call.value(place)) for place in (0, 1)]
        aten(call, op, given, args, _common(call), dtype or call.dtype())

    return rule


def _divide(call: Call) -> None:
    if call.dtype() is None and call.dtype(1) is None:
        raise Cannot("a division of unknown numbers")
    if _fractions(call):
        return _binary("div.Tensor")(call)
    given = Arguments(call)
    args = [_side(call, given, place) for place in (0, 1)]
    how = {"rounding_mode": {"c": "trunc"}}
    return aten(call, "div.Tensor_mode", given, args, _common(call), call.dtype(), how)


def _power(call: Call) -> None:
    number, given = _number(call, 1), Arguments(call)
    _aligned(call)
    left, right = call.dtype(), call.dtype(1)
    # What comes out is of the first one's dtype; torch takes the wider one of both.
    if left != right and not (is_float(left) and (number is not None or not is_float(right))):
        raise Cannot("a power of two dtypes")
    if number is None or not _fractions(call):
        return _two_tensors("pow.Tensor_Tensor")(call)
    args = [given.tensor(call.value(0)), {"c": number}]
    return aten(call, "pow.Tensor_Scalar", given, args, call.shape(0), call.dtype())


def _modulo(call: Call) -> None:
    if not is_whole(call.dtype()):
        raise Cannot("torch has other rules for zeros and infinities")
    _binary("fmod.Tensor" if call.flag("fmod", 0) else "remainder.Tensor")(call)


def _where(call: Call) -> None:
    given = Arguments(call)
    args = [given.tensor(call.value(place)) for place in range(3)]
    aten(call, "where.self", given, args, _common(call, (0, 1, 2)), call.dtype(1))


def _unary(op: str, dtype: str | None = None, **wanted: float) -> Rule:
    """One tensor in; attributes must be as `wanted`."""

    def rule(call: Call) -> None:
        for name, value in wanted.items():
            told = call.given(name)
            found = value if told is None else told
            if not isinstance(found, float) or abs(found - value) > 1e-6:
                raise Cannot(f"another {name}")
        given = Arguments(call)
        args = [given.tensor(call.value(0))]
        aten(call, op, given, args, call.shape(0), dtype or call.dtype())

    return rule


def _sloped(op: str, name: str, default: float) -> Rule:
    def rule(call: Call) -> None:
        given = Arguments(call)
        args = [given.tensor(call.value(0)), {"c": call.decimal(name, default)}]
        aten(call, op, given, args, call.shape(0), call.dtype())

    return rule


def _hard_sigmoid(call: Call) -> None:
    if abs(call.decimal("alpha", 0.2) - 1 / 6) > 1e-6:
        raise Cannot("another slope")
    _unary("hardsigmoid.default", beta=0.5)(call)


def _matmul(call: Call) -> None:
    given = Arguments(call)
    args = [given.tensor(call.value(place)) for place in (0, 1)]
    left, right = call.shape(0), call.shape(1)
    shape: Shape | None = None
    if left is not None and right is not None and len(left) > 1 and len(right) > 1:
        shape = (*broadcast([left[:-2], right[:-2]]), left[-2], right[-1])
    aten(call, "matmul.default", given, args, shape, call.dtype())


def _clip(call: Call) -> None:
    given = Arguments(call)
    args = [given.tensor(call.value(0))]
    for place, name in ((1, "min"), (2, "max")):
        if call.version < 11:
            there = call.given(name) is not None
            args.append({"c": call.decimal(name) if there else None})
        else:
            args.append({"c": call.scalar(place) if call.has(place) else None})
    if all(arg == {"c": None} for arg in args[1:]):
        raise Cannot("no limits")
    aten(call, "clamp.default", given, args, call.shape(0), call.dtype())


# Of these, torch has a form of its own for a number on the right.
_SCALAR = frozenset(f"{op}.Tensor" for op in ("eq", "lt", "le", "gt", "ge", "remainder", "fmod"))
_SAME = (
    *("Sqrt", "Exp", "Log", "Neg", "Abs", "Reciprocal", "Sin", "Cos", "Tan", "Floor", "Ceil"),
    *("Round", "Sign", "Erf", "Sinh", "Cosh", "Asin", "Acos", "Atan", "Mish"),
)
_COMPARED = {
    "Equal": "eq",
    "Less": "lt",
    "LessOrEqual": "le",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
}
ELEMENTWISE: dict[str, Rule] = {
    "Add": _combine("ADD"),
    "Mul": _combine("MUL"),
    "Sum": _combine("ADD"),
    "Sub": _subtract,
    "Div": _divide,
    "Pow": _power,
    "Mod": _modulo,
    "Where": _where,
    "Max": _two_tensors("maximum.default"),
    "Min": _two_tensors("minimum.default"),
    **{kind: _binary(f"{op}.Tensor", "bool") for kind, op in _COMPARED.items()},
    **{
        kind: _two_tensors(f"logical_{kind.lower()}.default", "bool")
        for kind in ("And", "Or", "Xor")
    },
    "Not": _unary("logical_not.default"),
    "IsNaN": _unary("isnan.default", "bool"),
    **{kind: _unary(f"{kind.lower()}.default") for kind in _SAME},
    "Selu": _unary("selu.default", alpha=1.6732632, gamma=1.0507010),
    "Elu": _sloped("elu.default", "alpha", 1.0),
    "Celu": _sloped("celu.default", "alpha", 1.0),
    "Softplus": _unary("softplus.default"),
    "HardSwish": _unary("hardswish.default"),
    "HardSigmoid": _hard_sigmoid,
}
# Tried after the rule of the vocabulary found that it does not apply.
SECOND: dict[str, Rule] = {"MatMul": _matmul, "Clip": _clip}
