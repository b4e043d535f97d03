"""Operators along some axes: sums, extremes, ranks, running sums, shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import dlv.network.aten.reducing as aten
from dlv.kinds import Array
from dlv.network.aten.precision import Function, Precision, Unknown
from dlv.network.onnx.moving import whole_of
from dlv.network.ops.activation import log_softmax, softmax


def _reduction(function: Any, *, whole: bool = True, alone: bool = True) -> Function:
    """`whole`: of whole numbers, too. `alone`: a reduction over no axis changes nothing."""

    def call(
        at: Precision,
        x: Array,
        axes: Any = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Array:
        named = [] if axes is None else whole_of(axes)
        if not named and noop_with_empty_axes:
            if not alone:
                raise Unknown("a reduction over no axis")
            return x
        if x.dtype.kind != "f" and not whole:
            raise Unknown(f"a reduction of {x.dtype}")
        along = tuple(named) if named else tuple(range(x.ndim))
        result = np.asarray(function(x, axis=along, keepdims=bool(keepdims)))
        del at
        return result.astype(x.dtype, copy=False)

    return call


def _log_sum_exp(x: Array, axis: Any, keepdims: bool) -> Array:
    at = Precision(x.dtype)
    return np.asarray(aten.REDUCING["logsumexp"](at, x, axis, keepdims))


def _place(function: Any) -> Function:
    def call(
        _: Precision, x: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Array:
        if select_last_index:
            found = x.shape[axis] - 1 - function(np.flip(x, axis), axis=axis, keepdims=True)
        else:
            found = function(x, axis=axis, keepdims=True)
        return np.asarray(found if keepdims else found.squeeze(axis))

    return call


def _running(function: Any, start: int) -> Function:
    def call(_: Precision, x: Array, axis: Array, *, exclusive: int = 0, reverse: int = 0) -> Array:
        [along] = whole_of(axis)
        values = np.flip(x, along) if reverse else x
        result = function(values, axis=along, dtype=x.dtype)
        if exclusive:
            first = np.full_like(np.take(x, [0], along), start)
            rest = np.delete(result, -1, along)
            result = np.concatenate([first, rest], along)
        return np.asarray(np.flip(result, along) if reverse else result)

    return call


def _top_k(
    at: Precision,
    x: Array,
    k: Any,
    *,
    axis: int = -1,
    largest: int = 1,
    sorted: int = 1,  # noqa: A002
) -> tuple[Array, Array]:
    [count] = whole_of(k)
    if not 0 <= count <= x.shape[axis]:
        raise ValueError(f"{count} of an axis of {x.shape[axis]}")
    values, places = aten.REDUCING["topk"](at, x, count, axis, bool(largest), bool(sorted))
    return values, places


def _shares(function: Callable[[Array, int], Array]) -> Function:
    """Along one axis; before opset 13 over all axes from that one on."""

    def call(at: Precision, x: Array, *, axis: int | None = None) -> Array:
        if at.opset >= 13:
            return function(x, -1 if axis is None else axis)
        place = (1 if axis is None else axis) % max(x.ndim, 1)
        rows = x.reshape(math.prod(x.shape[:place]), -1)
        return function(rows, 1).reshape(x.shape)

    return call


def _hardmax(x: Array, axis: int) -> Array:
    result = np.zeros_like(x)
    np.put_along_axis(result, np.argmax(x, axis=axis, keepdims=True), 1, axis)
    return result


def _lp_normalization(at: Precision, x: Array, *, axis: int = -1, p: int = 2) -> Array:
    size = aten.REDUCING["norm"](at, x, p, axis, True)
    return np.asarray(np.where(size == 0, 0, x / np.where(size == 0, 1, size)))


def _mean_variance(_: Precision, x: Array, *, axes: Any = (0, 2, 3)) -> Array:
    along = tuple(whole_of(axes))
    centred = x - x.mean(axis=along, keepdims=True)
    spread = np.sqrt(np.square(centred).mean(axis=along, keepdims=True))
    return np.asarray(centred / (spread + x.dtype.type(1e-9)))


REDUCING: Mapping[str, Function] = {
    "ReduceSum": _reduction(np.sum),
    "ReduceProd": _reduction(np.prod),
    "ReduceMax": _reduction(np.max),
    "ReduceMin": _reduction(np.min),
    "ReduceMean": _reduction(np.mean, whole=False),
    "ReduceL1": _reduction(lambda x, **how: np.abs(x).sum(**how), alone=False),
    "ReduceL2": _reduction(
        lambda x, **how: np.sqrt(np.square(x).sum(**how)), whole=False, alone=False
    ),
    "ReduceSumSquare": _reduction(lambda x, **how: np.square(x).sum(**how), alone=False),
    "ReduceLogSum": _reduction(lambda x, **how: np.log(x.sum(**how)), whole=False, alone=False),
    "ReduceLogSumExp": _reduction(_log_sum_exp, whole=False, alone=False),
    "ArgMax": _place(np.argmax),
    "ArgMin": _place(np.argmin),
    "CumSum": _running(np.cumsum, 0),
    "CumProd": _running(np.cumprod, 1),
    "TopK": _top_k,
    "Softmax": _shares(softmax),
    "LogSoftmax": _shares(log_softmax),
    "Hardmax": _shares(_hardmax),
    "LpNormalization": _lp_normalization,
    "MeanVarianceNormalization": _mean_variance,
}
