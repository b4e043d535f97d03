"""Operators on numbers of eight bits and their scales."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dlv.dtypes import ONNX_DTYPES
from dlv.kinds import Array
from dlv.network.aten.precision import Function, Precision, Unknown
from dlv.network.onnx.layers import convolution


def _wide(values: Array, x: Array, axis: int, block: int = 0) -> Array:
    """A number for all of x, for each place of one axis, or for each block of it."""
    if values.size == 1:
        return values.reshape(())
    if block:
        times = np.repeat(values, block, axis)
        return times[(*(slice(None),) * (axis % x.ndim), slice(x.shape[axis]))]
    shape = [1] * x.ndim
    shape[axis] = -1
    return values.reshape(shape)


def _quantize(
    at: Precision,
    x: Array,
    scale: Array,
    zero: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    saturate: int = 1,
    precision: int = 0,
) -> Array:
    del saturate, precision
    named = ONNX_DTYPES.get(output_dtype or 2)
    dtype = zero.dtype if zero is not None else np.dtype(named.numpy if named else None)
    if dtype.kind not in "iu" or x.dtype.kind != "f":
        raise Unknown(f"{x.dtype} quantized to {dtype}")
    del at
    # In float32, as files mean it: what lies between two steps may go to either in float64.
    narrow = x.astype(np.float32) / _wide(scale, x, axis, block_size).astype(np.float32)
    steps = np.rint(narrow)
    return _rounded(steps, 0 if zero is None else _wide(zero, x, axis, block_size), dtype)


def _rounded(steps: Array, zero: Any, dtype: np.dtype[Any]) -> Array:
    limits = np.iinfo(dtype)
    moved = steps.astype(np.float64) + zero
    if np.isnan(moved).any():
        raise Unknown("a NaN to quantize")
    return np.asarray(np.clip(moved, limits.min, limits.max).astype(dtype))


def _dequantize(
    at: Precision,
    x: Array,
    scale: Array,
    zero: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Array:
    del output_dtype  # all floats are those of the run
    steps = x.astype(at.float)
    if zero is not None:
        steps = steps - _wide(zero, x, axis, block_size).astype(at.float)
    return np.asarray(steps * _wide(scale, x, axis, block_size), at.float)


def _by_range(at: Precision, x: Array) -> tuple[Array, Array, Array]:
    """Eight bits over the range of x itself, the scale in float32 as it is stored."""
    low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
    scale = np.float32((np.float32(high) - np.float32(low)) / np.float32(255))
    if scale == 0:
        raise Unknown("numbers without a range")
    zero = np.clip(np.rint(-np.float32(low) / scale), 0, 255).astype(np.uint8)
    steps = np.rint(x.astype(np.float32) / scale)
    return _rounded(steps, zero, np.dtype(np.uint8)), np.asarray(scale, at.float), zero


def _less(x: Array, zero: Array | None, axis: int) -> Array:
    """Steps from zero, exactly, as floats which products are fast of."""
    steps = x.astype(np.float64)
    return steps if zero is None else steps - _wide(zero, x, axis).astype(np.float64)


def _matmul_integer(
    _: Precision, a: Array, b: Array, zero_a: Array | None = None, zero_b: Array | None = None
) -> Array:
    product = np.matmul(_less(a, zero_a, -2), _less(b, zero_b, -1))
    return np.asarray(product.astype(np.int64).astype(np.int32))


def _conv_integer(
    at: Precision,
    x: Array,
    weight: Array,
    zero_x: Array | None = None,
    zero_weight: Array | None = None,
    **how: Any,
) -> Array:
    result = convolution(at, _less(x, zero_x, 1), _less(weight, zero_weight, 0), None, **how)
    return result.astype(np.int64).astype(np.int32)


def _linear_matmul(
    _: Precision,
    a: Array,
    a_scale: Array,
    a_zero: Array,
    b: Array,
    b_scale: Array,
    b_zero: Array,
    y_scale: Array,
    y_zero: Array,
) -> Array:
    product = np.matmul(_less(a, a_zero, -2), _less(b, b_zero, -1))
    share = _wide(a_scale, product, -2) * _wide(b_scale, product, -1) / y_scale
    return _rounded(np.rint(product * share), y_zero, y_zero.dtype)


def _linear_conv(
    at: Precision,
    x: Array,
    x_scale: Array,
    x_zero: Array,
    weight: Array,
    weight_scale: Array,
    weight_zero: Array,
    y_scale: Array,
    y_zero: Array,
    bias: Array | None = None,
    **how: Any,
) -> Array:
    offset = None if bias is None else bias.astype(np.float64)
    steps = convolution(at, _less(x, x_zero, 1), _less(weight, weight_zero, 0), offset, **how)
    share = x_scale * _wide(weight_scale, steps, 1) / y_scale
    return _rounded(np.rint(steps * share), y_zero, y_zero.dtype)


QUANTIZED: Mapping[str, Function] = {
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _by_range,
    "MatMulInteger": _matmul_integer,
    "ConvInteger": _conv_integer,
    "QLinearMatMul": _linear_matmul,
    "QLinearConv": _linear_conv,
}
