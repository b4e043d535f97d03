"""Operators that move elements, or make tensors of sizes: cut, join, look up, write into places."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import dlv.network.aten.moving as aten
from dlv.dtypes import ONNX_DTYPES
from dlv.kinds import Array
from dlv.network.aten.precision import Function, Precision, Unknown, sized, whole


def _gather(_: Precision, x: Array, indices: Array, *, axis: int = 0) -> Array:
    sized([*x.shape[:axis], *indices.shape, *x.shape[axis % x.ndim + 1 :]])
    return np.take(x, indices, axis)


def _gather_elements(at: Precision, x: Array, indices: Array, *, axis: int = 0) -> Array:
    return np.asarray(aten.MOVING["gather"](at, x, axis, indices))


def _gather_nd(_: Precision, x: Array, indices: Array, *, batch_dims: int = 0) -> Array:
    """Parts of x by the first numbers of their places, for each entry of the batch apart."""
    lead, count = x.shape[:batch_dims], math.prod(x.shape[:batch_dims])
    if indices.shape[:batch_dims] != lead:
        raise ValueError("indices of another batch")
    places = indices.reshape(count, *indices.shape[batch_dims:])
    entry = np.arange(count).reshape(count, *(1,) * (places.ndim - 2))
    rows = x.reshape(count, *x.shape[batch_dims:])
    found = rows[(entry, *np.moveaxis(places, -1, 0))]
    return np.asarray(found.reshape(*lead, *found.shape[1:]))


_REDUCTIONS: Mapping[str, Any] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def _written(x: Array, places: tuple[Any, ...], updates: Array, reduction: str) -> Array:
    result = x.copy()
    if reduction == "none":
        result[places] = updates
    elif reduction in _REDUCTIONS:
        _REDUCTIONS[reduction].at(result, places, updates)
    else:
        raise Unknown(f"elements combined by {reduction}")
    return result


def _scatter_elements(
    _: Precision,
    x: Array,
    indices: Array,
    updates: Array,
    *,
    axis: int = 0,
    reduction: str = "none",
) -> Array:
    if updates.shape != indices.shape:
        raise ValueError("updates of another shape than their places")
    return _written(x, aten.places_along(x, axis % x.ndim, indices), updates, reduction)


def _scatter_nd(
    _: Precision, x: Array, indices: Array, updates: Array, *, reduction: str = "none"
) -> Array:
    depth = indices.shape[-1]
    if updates.shape != (*indices.shape[:-1], *x.shape[depth:]):
        raise ValueError("updates of another shape than their places")
    return _written(x, tuple(np.moveaxis(indices, -1, 0)), updates, reduction)


def _slice(
    _: Precision, x: Array, starts: Any, ends: Any, axes: Any = None, steps: Any = None
) -> Array:
    along = range(len(starts)) if axes is None else whole_of(axes)
    taken = [1] * len(starts) if steps is None else whole_of(steps)
    pieces = [slice(None)] * x.ndim
    for axis, start, end, step in zip(along, whole_of(starts), whole_of(ends), taken, strict=True):
        pieces[axis] = _piece(start, end, step, x.shape[axis])
    return x[tuple(pieces)]


def _piece(start: int, end: int, step: int, length: int) -> slice:
    """Ends beyond the axis are moved onto it, also where Python would take nothing."""
    first, last = (n + length if n < 0 else n for n in (start, end))
    if step > 0:
        return slice(min(max(first, 0), length), min(max(last, 0), length), step)
    last = min(max(last, -1), length - 1)
    return slice(min(max(first, 0), length - 1), None if last < 0 else last, step)


def whole_of(values: Any) -> list[int]:
    """Lengths, places or axes, from an input or an attribute."""
    return whole(list(np.asarray(values).reshape(-1)))


def _expand(_: Precision, x: Array, shape: Array) -> Array:
    lengths = whole_of(shape)
    sized(lengths)
    return np.broadcast_to(x, sized(np.broadcast_shapes(x.shape, tuple(lengths))))


def _reshape(_: Precision, x: Array, shape: Any, *, allowzero: int = 0) -> Array:
    lengths = whole_of(shape)
    if not allowzero:
        lengths = [x.shape[at] if n == 0 else n for at, n in enumerate(lengths)]
    return x.reshape(lengths)


def _flatten(_: Precision, x: Array, *, axis: int = 1) -> Array:
    at = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:at]), math.prod(x.shape[at:]))


def _squeeze(_: Precision, x: Array, axes: Any = None) -> Array:
    return x.squeeze(None if axes is None else tuple(whole_of(axes)))


def _unsqueeze(_: Precision, x: Array, axes: Any) -> Array:
    return np.expand_dims(x, tuple(whole_of(axes)))


def _concat(at: Precision, *parts: Array, axis: int) -> Array:
    return np.concatenate(at.together(*parts), axis)


_MOST_PARTS = 4096


def _split(
    at: Precision, x: Array, split: Any = None, *, axis: int = 0, num_outputs: int | None = None
) -> tuple[Array, ...]:
    length = x.shape[axis]
    if split is not None:
        lengths = whole_of(split)
    else:
        count = num_outputs or at.outputs
        if not 0 < count <= _MOST_PARTS:
            raise Unknown(f"an axis split into {count}")
        each = -(-length // count)
        lengths = [each] * (count - 1) + [length - each * (count - 1)]
    if sum(lengths) != length or min(lengths) < 0:
        raise ValueError(f"an axis of {length} split into {lengths}")
    return tuple(np.split(x, np.cumsum(lengths)[:-1], axis))


def _tile(_: Precision, x: Array, repeats: Array) -> Array:
    times = whole_of(repeats)
    if len(times) != x.ndim:
        raise ValueError(f"{len(times)} repeats for {x.ndim} axes")
    sized([x.size, *times])  # how many elements come out
    return np.tile(x, times)


_PADDING = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def _pad(
    at: Precision,
    x: Array,
    pads: Any,
    value: Any = None,
    axes: Any = None,
    *,
    mode: str = "constant",
) -> Array:
    widths = whole_of(pads)
    along = [axis % x.ndim for axis in (range(x.ndim) if axes is None else whole_of(axes))]
    if len(widths) != 2 * len(along) or (mode != "constant" and min(widths) < 0):
        raise Unknown(f"padding {widths} by {mode}")
    pairs = [[0, 0] for _ in range(x.ndim)]
    for at_axis, before, after in zip(
        along, widths[: len(along)], widths[len(along) :], strict=True
    ):
        pairs[at_axis] = [before, after]
    flat = [width for pair in reversed(pairs) for width in pair]
    fill = None if value is None or np.size(value) == 0 else np.asarray(value).reshape(-1)[0]
    return np.asarray(aten.MOVING["pad"](at, x, flat, _PADDING.get(mode, mode), fill))


def _range(at: Precision, start: Array, limit: Array, delta: Array) -> Array:
    first, last, step = (x.reshape(()) for x in at.together(start, limit, delta))
    if first.dtype.kind == "f":
        count = math.ceil((float(last) - float(first)) / float(step))
    else:
        count = -(-(int(last) - int(first)) // int(step))
    [count] = sized([max(count, 0)])
    return np.asarray(first + np.arange(count).astype(first.dtype) * step, first.dtype)


def _constant_of_shape(at: Precision, shape: Array, *, value: Array | None = None) -> Array:
    fill = np.zeros(1, at.float) if value is None else value
    return np.full(sized(whole_of(shape)), fill.reshape(()), fill.dtype)


def _eye_like(at: Precision, x: Array, *, dtype: int | None = None, k: int = 0) -> Array:
    kind = x.dtype if dtype is None else at.named(ONNX_DTYPES[dtype].name)
    rows, columns = x.shape
    return np.eye(rows, columns, k, dtype=kind)


def _one_hot(_: Precision, indices: Array, depth: Array, values: Array, *, axis: int = -1) -> Array:
    [count] = whole_of(depth)
    off, on = values
    sized([*indices.shape, count])
    places = np.where(indices < 0, indices + count, indices)
    at = axis % (indices.ndim + 1)
    shape = [1] * (indices.ndim + 1)
    shape[at] = count
    hit = np.expand_dims(places, at) == np.arange(count).reshape(shape)
    return np.asarray(np.where(hit, on, off))


def _trilu(_: Precision, x: Array, k: Any = None, *, upper: int = 1) -> Array:
    [diagonal] = [0] if k is None else whole_of(k)
    return (np.triu if upper else np.tril)(x, diagonal)


def _shape(_: Precision, x: Array, *, start: int = 0, end: int | None = None) -> Array:
    return np.asarray(x.shape[start:end], np.int64)


def _compress(_: Precision, x: Array, condition: Array, *, axis: int | None = None) -> Array:
    return np.compress(condition, x, axis)


def _unique(
    _: Precision,
    x: Array,
    *,
    axis: int | None = None,
    sorted: int = 1,  # noqa: A002
) -> tuple[Array, ...]:
    values, first, back, counts = np.unique(x, True, True, True, axis=axis)
    back = back.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        values = np.take(values, order, 0 if axis is None else axis)
        first, counts, back = first[order], counts[order], np.argsort(order)[back]
    return values, first, back, counts


def _reverse_sequence(
    _: Precision, x: Array, sequence_lens: Array, *, batch_axis: int = 1, time_axis: int = 0
) -> Array:
    rows = np.moveaxis(x, (batch_axis, time_axis), (0, 1))
    lengths, steps = sequence_lens.reshape(-1, 1), np.arange(rows.shape[1])
    if (lengths < 0).any() or (lengths > rows.shape[1]).any():
        raise ValueError("a sequence longer than its axis")
    source = np.where(steps < lengths, lengths - 1 - steps, steps)
    turned = rows[np.arange(len(rows))[:, None], source]
    return np.moveaxis(turned, (0, 1), (batch_axis, time_axis))


def _depth_to_space(_: Precision, x: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    batch, depth, height, width = x.shape
    b = blocksize
    if mode not in ("DCR", "CRD"):
        raise Unknown(f"depth to space by {mode}")
    parts = (b, b, depth // b**2) if mode == "DCR" else (depth // b**2, b, b)
    order = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    moved = x.reshape(batch, *parts, height, width).transpose(order)
    return moved.reshape(batch, depth // b**2, height * b, width * b)


def _space_to_depth(_: Precision, x: Array, *, blocksize: int) -> Array:
    batch, depth, height, width = x.shape
    b = blocksize
    parts = x.reshape(batch, depth, height // b, b, width // b, b).transpose(0, 3, 5, 1, 2, 4)
    return parts.reshape(batch, depth * b**2, height // b, width // b)


def _dropout(
    at: Precision,
    x: Array,
    ratio: Any = None,
    training_mode: Any = None,
    *,
    is_test: int | None = None,
    seed: int = 0,
) -> tuple[Array, Array]:
    del ratio, seed
    if np.any(training_mode) or (at.opset < 7 and not is_test):
        raise Unknown("elements dropped at random, as in training")
    return x, np.ones(x.shape, bool)


def _transpose(_: Precision, x: Array, *, perm: Sequence[int] | None = None) -> Array:
    return x.transpose(perm)


MOVING: Mapping[str, Function] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElements": _scatter_elements,
    "Scatter": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Slice": _slice,
    "Expand": _expand,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Concat": _concat,
    "Split": _split,
    "Tile": _tile,
    "Pad": _pad,
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "EyeLike": _eye_like,
    "OneHot": _one_hot,
    "Trilu": _trilu,
    "Shape": _shape,
    "Size": lambda _, x: np.asarray(x.size, np.int64),
    "NonZero": lambda _, x: np.asarray(np.nonzero(x), np.int64),
    "Compress": _compress,
    "Unique": _unique,
    "ReverseSequence": _reverse_sequence,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Dropout": _dropout,
}
