"""Operators that treat every element alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np

import dlv.network.aten.pointwise as aten
from dlv.dtypes import ONNX_DTYPES
from dlv.kinds import Array
from dlv.network.aten.precision import Function, Precision, Unknown
from dlv.network.ops.activation import gelu, gelu_by_tanh, sigmoid

# Operators without attributes that torch has, too.
_OF_ONE = {
    **{
        name: name.lower()
        for name in (  # noqa: SIM905
            "Abs Neg Sign Ceil Floor Round Exp Log Sqrt Reciprocal Sin Cos Tan Sinh Cosh Asin Acos"
            " Atan Asinh Acosh Atanh Erf Sigmoid Tanh Relu Mish HardSwish IsNaN"
        ).split()
    },
    "Not": "logical_not",
    "BitwiseNot": "bitwise_not",
}
_OF_TWO = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Equal": "eq",
    "Less": "lt",
    "LessOrEqual": "le",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
}


def _one(function: Function) -> Function:
    return lambda at, x: function(at, x)


def _two(function: Function) -> Function:
    return lambda at, a, b: function(at, a, b)


def _floats(function: Callable[..., Any]) -> Function:
    """A function of floats, and of numbers among the attributes."""

    def call(at: Precision, x: Array, **attrs: Any) -> Array:
        result: Array = np.asarray(function(at.floating(x), **attrs))
        return result.astype(at.float, copy=False) if result.dtype.kind == "f" else result

    return call


def _many(function: Any) -> Function:
    def call(at: Precision, *operands: Array) -> Array:
        return np.asarray(reduce(function, at.together(*operands)))

    return call


def _mean(at: Precision, *operands: Array) -> Array:
    return np.asarray(reduce(np.add, at.together(*operands)) / len(operands)).astype(at.float)


def _div(at: Precision, a: Array, b: Array) -> Array:
    """Whole numbers are divided towards zero."""
    first, second = at.together(a, b)
    if first.dtype.kind == "f":
        return np.asarray(first / second)
    if (second == 0).any():
        raise Unknown("a whole number divided by zero")
    quotient = np.abs(first) // np.abs(second)
    return np.asarray(np.where((first < 0) != (second < 0), -quotient, quotient))


def _mod(at: Precision, a: Array, b: Array, *, fmod: int = 0) -> Array:
    first, second = at.together(a, b)
    if first.dtype.kind == "f" and not fmod:
        raise Unknown("a remainder of floats with the sign of the divisor")
    if first.dtype.kind != "f" and (second == 0).any():
        raise Unknown("a whole number divided by zero")
    return np.asarray((np.fmod if fmod else np.remainder)(first, second))


def _pow(at: Precision, base: Array, exponent: Array) -> Array:
    """Of the dtype of the base."""
    if base.dtype.kind == "f":
        return np.asarray(base ** exponent.astype(base.dtype))
    if exponent.dtype.kind == "f":
        return _whole(at.floating(base) ** exponent, base.dtype)
    return np.asarray(base**exponent)


def _whole(x: Array, dtype: np.dtype[Any]) -> Array:
    """Floats as whole numbers, cut towards zero; Unknown where the dtype cannot hold one."""
    limits = np.iinfo(dtype)
    kept = np.trunc(x)
    if not ((kept >= limits.min) & (kept <= limits.max)).all():
        raise Unknown(f"a number that {dtype} cannot hold")
    return kept.astype(dtype)


def _shift(_: Precision, x: Array, y: Array, *, direction: str) -> Array:
    if x.dtype.kind != "u" or direction not in ("LEFT", "RIGHT"):
        raise Unknown(f"bits of {x.dtype} moved {direction}")
    beyond = y >= x.dtype.itemsize * 8
    moved = (np.left_shift if direction == "LEFT" else np.right_shift)(x, np.where(beyond, 0, y))
    return np.where(beyond, 0, moved).astype(x.dtype)


def _cast(at: Precision, x: Array, *, to: int, saturate: int = 1, round_mode: str = "up") -> Array:
    del saturate, round_mode  # of dtypes that are refused
    named = ONNX_DTYPES.get(to)
    if named is None or named.name.startswith(("float8", "complex")):
        raise Unknown(f"numpy has no dtype with ONNX's number {to}")
    return cast(x, at.named(named.name))


def cast(x: Array, dtype: np.dtype[Any]) -> Array:
    """The same numbers in another dtype, as far as it can hold them."""
    return _whole(x, dtype) if x.dtype.kind == "f" and dtype.kind in "iu" else x.astype(dtype)


def _cast_like(_: Precision, x: Array, target: Array, *, saturate: int = 1) -> Array:
    del saturate
    if target.dtype.kind == "f":
        raise Unknown("all floats of a run have one dtype, so the one that is meant is unknown")
    return cast(x, target.dtype)


def _clip(
    _: Precision,
    x: Array,
    low: Array | None = None,
    high: Array | None = None,
    *,
    min: float | None = None,  # noqa: A002 (attributes before opset 11)
    max: float | None = None,  # noqa: A002
) -> Array:
    least, most = low if min is None else min, high if max is None else max
    result = x if least is None else np.maximum(x, np.asarray(least).astype(x.dtype))
    return result if most is None else np.minimum(result, np.asarray(most).astype(x.dtype))


def _is_inf(_: Precision, x: Array, *, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    wanted = (np.isposinf(x) & bool(detect_positive)) | (np.isneginf(x) & bool(detect_negative))
    return np.asarray(wanted)


def _elu(alpha: float, gamma: float, at: Precision, x: Array) -> Array:
    return np.asarray(aten.POINTWISE["elu"](at, x, alpha, gamma))


def _celu(at: Precision, x: Array, *, alpha: float = 1.0) -> Array:
    return np.asarray(aten.POINTWISE["celu"](at, x, alpha))


def _prelu(at: Precision, x: Array, slope: Array) -> Array:
    return np.asarray(np.where(x < 0, at.together(x * slope)[0], x))


def _shrink(x: Array, *, bias: float = 0.0, lambd: float = 0.5) -> Array:
    return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0))


def _gelu(x: Array, *, approximate: str = "none") -> Array:
    return (gelu_by_tanh if approximate == "tanh" else gelu)(x)


def _hard_sigmoid(x: Array, *, alpha: float = 0.2, beta: float = 0.5) -> Array:
    return np.clip(alpha * x + beta, 0, 1)


POINTWISE: Mapping[str, Function] = {
    **{name: _one(aten.POINTWISE[other]) for name, other in _OF_ONE.items()},
    **{name: _two(aten.POINTWISE[other]) for name, other in _OF_TWO.items()},
    "Sum": _many(np.add),
    "Max": _many(np.maximum),
    "Min": _many(np.minimum),
    "Mean": _mean,
    "Div": _div,
    "Mod": _mod,
    "Pow": _pow,
    "BitShift": _shift,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Clip": _clip,
    "IsInf": _is_inf,
    "Where": lambda at, condition, x, y: np.where(condition, *at.together(x, y)),
    "Identity": lambda _, x: x,
    "Softplus": _floats(lambda x: np.logaddexp(x, 0)),
    "Softsign": _floats(lambda x: x / (1 + np.abs(x))),
    "Gelu": _floats(_gelu),
    "Swish": _floats(lambda x, *, alpha=1.0: x * sigmoid(alpha * x)),
    "LeakyRelu": _floats(lambda x, *, alpha=0.01: np.where(x < 0, x * alpha, x)),
    "ThresholdedRelu": _floats(lambda x, *, alpha=1.0: np.where(x > alpha, x, 0)),
    "HardSigmoid": _floats(_hard_sigmoid),
    "Shrink": _floats(_shrink),
    "PRelu": _prelu,
    "Elu": lambda at, x, *, alpha=1.0: _elu(alpha, 1.0, at, x),
    "Selu": lambda at, x, *, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875: _elu(
        alpha, gamma, at, x
    ),
    "Celu": _celu,
}
