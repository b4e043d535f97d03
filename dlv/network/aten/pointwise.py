"""Calls that treat every element alike: arithmetic, comparisons, functions of one number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dlv.kinds import Array
from dlv.network.aten.precision import Function, Operand, Precision, Unknown
from dlv.network.ops.activation import erf, gelu, gelu_by_tanh, log_softmax, sigmoid, softmax


def _of_one(function: Callable[[Array], Any], *, floats: bool = True) -> Function:
    """A function of one number; of floats it makes floats, whatever comes in."""

    def call(at: Precision, self: Array, **_: Any) -> Array:
        return np.asarray(function(at.floating(self) if floats else np.asarray(self)))

    return call


def _of_two(function: Callable[[Array, Array], Any], *, floats: bool = False) -> Function:
    def call(at: Precision, self: Operand, other: Operand) -> Array:
        first, second = at.together(self, other)
        if floats:
            first, second = at.floating(first), at.floating(second)
        return np.asarray(function(first, second))

    return call


def _sign(x: Array) -> Array:
    return ((x > 0).astype(np.int8) - (x < 0).astype(np.int8)).astype(x.dtype)


def _add(at: Precision, self: Operand, other: Operand, alpha: Operand = 1) -> Array:
    first, second = at.together(self, other)
    if first.dtype == bool:
        return np.logical_or(first, second)
    return first + (second if alpha == 1 else second * first.dtype.type(alpha))


def _sub(at: Precision, self: Operand, other: Operand, alpha: Operand = 1) -> Array:
    first, second = at.together(self, other)
    return np.asarray(first - (second if alpha == 1 else second * first.dtype.type(alpha)))


def _rsub(at: Precision, self: Operand, other: Operand, alpha: Operand = 1) -> Array:
    return _sub(at, other, self if alpha == 1 else _mul(at, self, alpha))


def _mul(at: Precision, self: Operand, other: Operand) -> Array:
    first, second = at.together(self, other)
    return np.asarray(first * second)


def _div(at: Precision, self: Operand, other: Operand, rounding_mode: str | None = None) -> Array:
    first, second = at.together(self, other)
    if rounding_mode == "floor":
        return np.asarray(np.floor_divide(first, second))
    result = at.floating(first) / at.floating(second)
    if rounding_mode == "trunc":
        return np.asarray(np.trunc(result)).astype(first.dtype)
    return np.asarray(result)


def _pow(at: Precision, self: Operand, exponent: Operand) -> Array:
    first, second = at.together(self, exponent)
    return np.asarray(first**second)


def _clamp(at: Precision, self: Array, min: Any = None, max: Any = None) -> Array:  # noqa: A002
    limits = [each for each in (min, max) if each is not None]
    x = at.together(self, *limits)[0]
    low = x if min is None else np.maximum(x, np.asarray(min).astype(x.dtype))
    return np.asarray(low if max is None else np.minimum(low, np.asarray(max).astype(x.dtype)))


def _at_most(at: Precision, self: Array, max: Any) -> Array:  # noqa: A002
    return _clamp(at, self, None, max)


def _where(at: Precision, condition: Array, self: Operand, other: Operand) -> Array:
    return np.where(condition, *at.together(self, other))


def _masked_fill(_: Precision, self: Array, mask: Array, value: Operand) -> Array:
    return np.where(mask, np.asarray(value).astype(self.dtype), self)


def _gelu(at: Precision, self: Array, approximate: str = "none") -> Array:
    return (gelu_by_tanh if approximate == "tanh" else gelu)(at.floating(self))


def _softplus(x: Array, beta: float = 1, threshold: float = 20) -> Array:
    scaled = x * x.dtype.type(beta)
    smooth = np.logaddexp(scaled, scaled.dtype.type(0)) / x.dtype.type(beta)
    return np.where(scaled > threshold, x, smooth)


def _elu(
    at: Precision, self: Array, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> Array:
    x = at.floating(self)
    one = x.dtype.type
    below = np.expm1(np.minimum(x, 0) * one(input_scale)) * one(alpha * scale)
    return np.asarray(np.where(x > 0, x * one(scale), below))


def _hardsigmoid(x: Array) -> Array:
    return np.asarray(np.clip(x + x.dtype.type(3), 0, 6) / x.dtype.type(6))


def _leaky(at: Precision, self: Array, negative_slope: float = 0.01) -> Array:
    x = at.floating(self)
    return np.where(x > 0, x, x * x.dtype.type(negative_slope))


def _prelu(at: Precision, self: Array, weight: Array) -> Array:
    x, slope = at.floating(self), np.asarray(weight)
    if slope.size > 1 and x.ndim > 1:
        slope = slope.reshape(1, -1, *(1,) * (x.ndim - 2))
    return np.where(x > 0, x, x * slope)


def _hardtanh(at: Precision, self: Array, min_val: float = -1, max_val: float = 1) -> Array:
    return _clamp(at, self, min_val, max_val)


def _threshold(_: Precision, self: Array, threshold: float, value: float) -> Array:
    return np.where(self > threshold, self, self.dtype.type(value))


def _glu(at: Precision, self: Array, dim: int = -1) -> Array:
    kept, gate = np.split(at.floating(self), 2, axis=dim)
    return np.asarray(kept * sigmoid(gate))


def _softmax(function: Callable[[Array, int], Array]) -> Function:
    def call(at: Precision, self: Array, dim: int, dtype: Any = None) -> Array:
        # The inner form has a flag in place of the dtype, which only matters to halves.
        x = at.floating(at.of(self, dtype if isinstance(dtype, str) else None))
        return function(x, dim) if x.ndim else function(x[None], 0)[0]

    return call


def _lerp(_: Precision, self: Array, end: Array, weight: Operand) -> Array:
    return np.asarray(self + np.asarray(weight).astype(self.dtype) * (end - self))


def _addcmul(at: Precision, self: Array, tensor1: Array, tensor2: Array, value: float = 1) -> Array:
    return _add(at, self, _mul(at, tensor1, tensor2), value)


def _addcdiv(at: Precision, self: Array, tensor1: Array, tensor2: Array, value: float = 1) -> Array:
    return _add(at, self, _div(at, tensor1, tensor2), value)


def _round(_: Precision, self: Array, decimals: int = 0) -> Array:
    return np.asarray(np.round(self, decimals))


def _nan_to_num(
    _: Precision, self: Array, nan: Any = None, posinf: Any = None, neginf: Any = None
) -> Array:
    return np.nan_to_num(self, nan=0.0 if nan is None else nan, posinf=posinf, neginf=neginf)


def _logit(at: Precision, self: Array, eps: float | None = None) -> Array:
    x = at.floating(self)
    if eps is not None:
        x = np.clip(x, eps, 1 - eps)
    return np.asarray(np.log(x / (1 - x)))


def _bits(on_flags: Any, on_numbers: Any) -> Function:
    def call(at: Precision, self: Operand, other: Operand) -> Array:
        first, second = at.together(self, other)
        if first.dtype.kind == "f":
            raise Unknown("floats have no bits to combine")
        return np.asarray((on_flags if first.dtype == bool else on_numbers)(first, second))

    return call


def _flags(function: Any) -> Function:
    def call(_: Precision, self: Operand, other: Operand) -> Array:
        return np.asarray(function(np.asarray(self) != 0, np.asarray(other) != 0))

    return call


def _not(_: Precision, self: Array) -> Array:
    return np.asarray(~self if self.dtype.kind in "biu" else self == 0)


_AND = _bits(np.logical_and, np.bitwise_and)
_OR = _bits(np.logical_or, np.bitwise_or)
_XOR = _bits(np.logical_xor, np.bitwise_xor)
_EQUAL, _DIVIDE = _of_two(np.equal), _of_two(np.floor_divide)

POINTWISE: Mapping[str, Function] = {
    **{
        name: _of_one(getattr(np, name))
        for name in (
            *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt"),
            *("sin", "cos", "tan", "sinh", "cosh", "tanh"),
        )
    },
    "asin": _of_one(np.arcsin),
    "acos": _of_one(np.arccos),
    "atan": _of_one(np.arctan),
    "asinh": _of_one(np.arcsinh),
    "acosh": _of_one(np.arccosh),
    "atanh": _of_one(np.arctanh),
    "rsqrt": _of_one(lambda x: 1 / np.sqrt(x)),
    "reciprocal": _of_one(lambda x: 1 / x),
    "erf": _of_one(erf),
    "sigmoid": _of_one(sigmoid),
    "silu": _of_one(lambda x: x * sigmoid(x)),
    "log_sigmoid": _of_one(lambda x: -np.logaddexp(-x, x.dtype.type(0))),
    "mish": _of_one(lambda x: x * np.tanh(_softplus(x))),
    "hardsigmoid": _of_one(_hardsigmoid),
    "hardswish": _of_one(lambda x: x * _hardsigmoid(x)),
    "selu": lambda at, self: _elu(at, self, 1.6732632423543772, 1.0507009873554805),
    "elu": _elu,
    "celu": lambda at, self, alpha=1.0: _elu(at, self, alpha, 1, 1 / alpha),
    "gelu": _gelu,
    "glu": _glu,
    "leaky_relu": _leaky,
    "prelu": _prelu,
    "relu": _of_one(lambda x: np.maximum(x, 0), floats=False),
    "relu6": _of_one(lambda x: np.clip(x, 0, 6), floats=False),
    "hardtanh": _hardtanh,
    "threshold": _threshold,
    "softplus": lambda at, self, beta=1, threshold=20: _softplus(
        at.floating(self), beta, threshold
    ),
    "softmax": _softmax(softmax),
    "_softmax": _softmax(softmax),
    "log_softmax": _softmax(log_softmax),
    "_log_softmax": _softmax(log_softmax),
    "abs": _of_one(np.abs, floats=False),
    "neg": _of_one(np.negative, floats=False),
    "square": _of_one(np.square, floats=False),
    "sign": _of_one(_sign, floats=False),
    "sgn": _of_one(_sign, floats=False),
    **{name: _of_one(getattr(np, name), floats=False) for name in ("floor", "ceil", "trunc")},
    "frac": _of_one(lambda x: x - np.trunc(x)),
    "round": _round,
    **{name: _of_one(getattr(np, name), floats=False) for name in ("isnan", "isinf", "isfinite")},
    "nan_to_num": _nan_to_num,
    "logit": _logit,
    "add": _add,
    "sub": _sub,
    "rsub": _rsub,
    "mul": _mul,
    "div": _div,
    "multiply": _mul,
    "subtract": _sub,
    "divide": _div,
    "true_divide": _div,
    "floor_divide": _DIVIDE,
    "remainder": _of_two(np.remainder),
    "fmod": _of_two(np.fmod),
    "pow": _pow,
    "minimum": _of_two(np.minimum),
    "maximum": _of_two(np.maximum),
    "fmin": _of_two(np.fmin),
    "fmax": _of_two(np.fmax),
    "min.other": _of_two(np.minimum),
    "max.other": _of_two(np.maximum),
    "atan2": _of_two(np.arctan2, floats=True),
    "hypot": _of_two(np.hypot),
    "logaddexp": _of_two(np.logaddexp, floats=True),
    "eq": _EQUAL,
    "ne": _of_two(np.not_equal),
    "lt": _of_two(np.less),
    "le": _of_two(np.less_equal),
    "gt": _of_two(np.greater),
    "ge": _of_two(np.greater_equal),
    "logical_and": _flags(np.logical_and),
    "logical_or": _flags(np.logical_or),
    "logical_xor": _flags(np.logical_xor),
    "logical_not": _of_one(lambda x: x == 0, floats=False),
    "bitwise_and": _AND,
    "bitwise_or": _OR,
    "bitwise_xor": _XOR,
    "bitwise_not": _not,
    "__and__": _AND,
    "__or__": _OR,
    "__xor__": _XOR,
    "where": _where,
    "masked_fill": _masked_fill,
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": _at_most,
    "clip": _clamp,
    "lerp": _lerp,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
}
