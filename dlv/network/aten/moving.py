"""Calls that move elements: cut, join, turn, pad, look up by place, write into places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlv.kinds import Array
from dlv.network.aten.precision import Function, Operand, Precision, Unknown, axes, sized, whole


def _view(_: Precision, self: Array, size: Any) -> Array:
    return self.reshape(whole(size))


def _bits(_: Precision, self: Array, dtype: str) -> Array:
    raise Unknown(f"the bits of {self.dtype} read as {dtype}")


def _expand(_: Precision, self: Array, size: Any, *, implicit: bool = False) -> Array:
    del implicit
    lengths = whole(size)
    new = len(lengths) - self.ndim
    wanted = [self.shape[at - new] if n == -1 else n for at, n in enumerate(lengths)]
    return np.broadcast_to(self, sized(wanted))


def _squeeze(_: Precision, self: Array, dim: Any = None) -> Array:
    along = axes(dim, self.ndim)
    return self.squeeze(tuple(axis for axis in along if self.ndim and self.shape[axis] == 1))


def _flatten(_: Precision, self: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    if not self.ndim:
        return self.reshape(1)
    start, end = start_dim % self.ndim, end_dim % self.ndim
    return self.reshape(*self.shape[:start], -1, *self.shape[end + 1 :])


def _unflatten(_: Precision, self: Array, dim: int, sizes: Any) -> Array:
    at = dim % self.ndim
    return self.reshape(*self.shape[:at], *whole(sizes), *self.shape[at + 1 :])


def _part(self: Array, dim: int, piece: Any) -> Array:
    return self[(*(slice(None),) * (dim % self.ndim), piece)]


def _slice(
    _: Precision, self: Array, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Array:
    return _part(self, dim, slice(_plain(start), _plain(end), int(step)))


def _plain(number: Any) -> int | None:
    return None if number is None else int(number)


def _split(_: Precision, self: Array, split_size: Any, dim: int = 0) -> tuple[Array, ...]:
    length = self.shape[dim]
    if isinstance(split_size, (list, tuple)):
        sizes = whole(split_size)
    else:
        size = int(split_size)
        sizes = [min(size, length - at) for at in range(0, length, size)] or [0]
    ends = np.cumsum(sizes)
    return tuple(
        _part(self, dim, slice(int(end) - size, int(end)))
        for end, size in zip(ends, sizes, strict=True)
    )


def _chunk(at: Precision, self: Array, chunks: int, dim: int = 0) -> tuple[Array, ...]:
    return _split(at, self, max(-(-self.shape[dim] // int(chunks)), 1), dim)


def _unbind(_: Precision, self: Array, dim: int = 0) -> tuple[Array, ...]:
    return tuple(np.moveaxis(self, dim, 0))


def _cat(at: Precision, tensors: Sequence[Array], dim: int = 0) -> Array:
    parts = [each for each in at.together(*tensors) if each.shape != (0,)] or list(tensors)
    return np.concatenate(parts, dim)


def _stack(at: Precision, tensors: Sequence[Array], dim: int = 0) -> Array:
    return np.stack(at.together(*tensors), dim)


def _repeat(_: Precision, self: Array, repeats: Any) -> Array:
    times = whole(repeats)
    sized([self.size, *times])  # how many elements come out
    return np.tile(self, times)


def _repeat_interleave(
    _: Precision, self: Array, repeats: Any, dim: int | None = None, *, output_size: Any = None
) -> Array:
    del output_size
    return np.repeat(self, repeats, dim)


def _roll(_: Precision, self: Array, shifts: Any, dims: Any = ()) -> Array:
    return (
        np.roll(self, tuple(whole(shifts)), tuple(whole(dims))) if dims else _rolled(self, shifts)
    )


def _rolled(self: Array, shifts: Any) -> Array:
    return np.roll(self.reshape(-1), whole(shifts)[0]).reshape(self.shape)


def _pad(
    at: Precision, self: Array, pad: Any, mode: str = "constant", value: Operand | None = None
) -> Array:
    """Lengths before and behind, the last axis first; negative ones cut."""
    widths = whole(pad)
    pairs = [(0, 0)] * (self.ndim - len(widths) // 2)
    pairs += [(widths[at], widths[at + 1]) for at in range(len(widths) - 2, -1, -2)]
    cut = self[
        tuple(
            slice(max(-before, 0), length - max(-after, 0))
            for length, (before, after) in zip(self.shape, pairs, strict=True)
        )
    ]
    more = [(max(before, 0), max(after, 0)) for before, after in pairs]
    sized([length + sum(added) for length, added in zip(cut.shape, more, strict=True)])
    words = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if mode == "constant":
        fill = np.asarray(0 if value is None else value).astype(self.dtype)
        return np.pad(cut, more, constant_values=fill)
    if mode not in words:
        raise Unknown(f"padding by {mode}")
    del at
    kinds: Any = words[mode]
    return np.pad(cut, more, kinds)


def _padding(mode: str) -> Function:
    return lambda at, self, padding: _pad(at, self, padding, mode)


def _index(_: Precision, self: Array, indices: Sequence[Any]) -> Array:
    return np.asarray(self[_places(indices)])


def _places(indices: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(slice(None) if each is None else each for each in indices)


def _index_put(
    _: Precision, self: Array, indices: Sequence[Any], values: Array, accumulate: bool = False
) -> Array:
    result, places = self.copy(), _places(indices)
    if accumulate:
        np.add.at(result, places, values.astype(self.dtype))
    else:
        result[places] = values
    return result


def _index_select(_: Precision, self: Array, dim: int, index: Array) -> Array:
    return np.take(self, index.reshape(-1), dim) if self.ndim else self


def places_along(self: Array, dim: int, index: Array) -> tuple[Any, ...]:
    """The places that `index` names along one axis, the others being its own."""
    places: list[Any] = list(np.indices(index.shape, sparse=True))
    if ((index < -self.shape[dim]) | (index >= self.shape[dim])).any():
        raise IndexError(f"a place outside the axis of {self.shape[dim]}")
    places[dim] = index
    return tuple(places)


def _gather(
    _: Precision, self: Array, dim: int, index: Array, *, sparse_grad: bool = False
) -> Array:
    del sparse_grad
    return np.asarray(self[places_along(self, dim % self.ndim, index)]) if self.ndim else self


def _source(src: Operand, index: Array) -> Any:
    if isinstance(src, np.ndarray) and src.ndim:
        return src[tuple(slice(length) for length in index.shape)]
    return src


def _scatter(_: Precision, self: Array, dim: int, index: Array, src: Operand) -> Array:
    result = self.copy()
    result[places_along(self, dim % self.ndim, index)] = _source(src, index)
    return result


def _scatter_add(_: Precision, self: Array, dim: int, index: Array, src: Array) -> Array:
    result = self.copy()
    np.add.at(result, places_along(self, dim % self.ndim, index), _source(src, index))
    return result


def _index_add(
    _: Precision, self: Array, dim: int, index: Array, source: Array, *, alpha: Operand = 1
) -> Array:
    result = np.moveaxis(self.copy(), dim, 0)
    np.add.at(result, index, np.moveaxis(source * np.asarray(alpha, self.dtype), dim, 0))
    return np.moveaxis(result, 0, dim)


def _slice_scatter(
    _: Precision,
    self: Array,
    src: Array,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> Array:
    result = self.copy()
    _part(result, dim, slice(_plain(start), _plain(end), int(step)))[...] = src
    return result


def _select_scatter(_: Precision, self: Array, src: Array, dim: int, index: int) -> Array:
    result = self.copy()
    np.moveaxis(result, dim, 0)[int(index)] = src
    return result


def _diagonal(_: Precision, self: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    return self.diagonal(int(offset), dim1, dim2)


def _unfold(_: Precision, self: Array, dimension: int, size: int, step: int) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(self, int(size), dimension)
    return _part(windows, dimension % self.ndim, slice(None, None, int(step)))


def _im2col(
    at: Precision, self: Array, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> Array:
    """The patches under a window that slides over a map, a column each."""
    before = [side for each in reversed(whole(padding)) for side in (each, each)]
    x = _pad(at, self, before)
    reach = [(k - 1) * d + 1 for k, d in zip(whole(kernel_size), whole(dilation), strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(x, reach, (-2, -1))
    (down, right), (low, wide) = whole(stride), whole(dilation)
    windows = windows[..., ::down, ::right, ::low, ::wide]
    *lead, channels, rows, columns, high, broad = windows.shape
    turned = np.moveaxis(windows, (-2, -1), (-4, -3))
    return turned.reshape(*lead, channels * high * broad, rows * columns)


def _diff(
    at: Precision, self: Array, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None
) -> Array:
    parts = [each for each in (prepend, self, append) if each is not None]
    x = _cat(at, parts, dim)
    if x.dtype == bool:
        for _ in range(int(n)):
            x = _slice(at, x, dim, 1) ^ _slice(at, x, dim, 0, -1)
        return x
    return np.diff(x, int(n), dim)


def _pixel_shuffle(_: Precision, self: Array, upscale_factor: int) -> Array:
    *lead, channels, height, width = self.shape
    r = int(upscale_factor)
    x = self.reshape(*lead, channels // (r * r), r, r, height, width)
    at = len(lead)
    x = x.transpose(*range(at), at, at + 3, at + 1, at + 4, at + 2)
    return x.reshape(*lead, channels // (r * r), height * r, width * r)


def _pixel_unshuffle(_: Precision, self: Array, downscale_factor: int) -> Array:
    *lead, channels, height, width = self.shape
    r = int(downscale_factor)
    x = self.reshape(*lead, channels, height // r, r, width // r, r)
    at = len(lead)
    x = x.transpose(*range(at), at, at + 2, at + 4, at + 1, at + 3)
    return x.reshape(*lead, channels * r * r, height // r, width // r)


def _channel_shuffle(_: Precision, self: Array, groups: int) -> Array:
    batch, channels, *rest = self.shape
    x = self.reshape(batch, int(groups), channels // int(groups), *rest)
    return x.swapaxes(1, 2).reshape(self.shape)


def _movedim(_: Precision, self: Array, source: Any, destination: Any) -> Array:
    return np.moveaxis(self, whole(source), whole(destination))


def _select(_: Precision, self: Array, dim: int, index: int) -> Array:
    return np.asarray(_part(self, dim, int(index)))


def _embedding(_: Precision, weight: Array, indices: Array, *__: Any, **___: Any) -> Array:
    return np.asarray(weight[indices])


MOVING: Mapping[str, Function] = {
    **dict.fromkeys(("view", "_unsafe_view", "reshape"), _view),
    "view.dtype": _bits,
    "view_as": lambda _, self, other: self.reshape(other.shape),
    "reshape_as": lambda _, self, other: self.reshape(other.shape),
    "expand": _expand,
    "expand_as": lambda _, self, other: np.broadcast_to(self, other.shape),
    "broadcast_to": _expand,
    "squeeze": _squeeze,
    "unsqueeze": lambda _, self, dim: np.expand_dims(self, dim),
    "flatten": _flatten,
    "unflatten": _unflatten,
    "transpose": lambda _, self, dim0, dim1: self.swapaxes(dim0, dim1) if self.ndim else self,
    "swapaxes": lambda _, self, axis0, axis1: self.swapaxes(axis0, axis1),
    "swapdims": lambda _, self, dim0, dim1: self.swapaxes(dim0, dim1),
    "t": lambda _, self: self.T,
    "numpy_T": lambda _, self: self.T,
    "mT": lambda _, self: self.swapaxes(-1, -2),
    "permute": lambda _, self, dims: self.transpose(whole(dims)),
    "movedim": _movedim,
    "moveaxis": _movedim,
    "select": _select,
    "slice": _slice,
    "narrow": lambda at, self, dim, start, length: _slice(at, self, dim, start, start + length),
    "split": _split,
    "split_with_sizes": _split,
    "unsafe_split": _split,
    "chunk": _chunk,
    "unsafe_chunk": _chunk,
    "unbind": _unbind,
    "cat": _cat,
    "concat": _cat,
    "stack": _stack,
    "repeat": _repeat,
    "tile": _repeat,
    "repeat_interleave": _repeat_interleave,
    "roll": _roll,
    "flip": lambda _, self, dims: np.flip(self, tuple(whole(dims))),
    "pad": _pad,
    "constant_pad_nd": lambda at, self, pad, value=0: _pad(at, self, pad, "constant", value),
    **{f"reflection_pad{n}d": _padding("reflect") for n in (1, 2, 3)},
    **{f"replication_pad{n}d": _padding("replicate") for n in (1, 2, 3)},
    "index": _index,
    "index_put": _index_put,
    "index_select": _index_select,
    "index_add": _index_add,
    "take_along_dim": lambda _, self, indices, dim: np.take_along_axis(self, indices, dim),
    "gather": _gather,
    "scatter": _scatter,
    "scatter.value": lambda at, self, dim, index, value: _scatter(at, self, dim, index, value),
    "scatter_add": _scatter_add,
    "slice_scatter": _slice_scatter,
    "select_scatter": _select_scatter,
    "masked_select": lambda _, self, mask: self[np.broadcast_to(mask, self.shape)],
    "embedding": _embedding,
    "tril": lambda _, self, diagonal=0: np.tril(self, int(diagonal)),
    "triu": lambda _, self, diagonal=0: np.triu(self, int(diagonal)),
    "diagonal": _diagonal,
    "unfold": _unfold,
    "im2col": _im2col,
    "diff": _diff,
    "pixel_shuffle": _pixel_shuffle,
    "pixel_unshuffle": _pixel_unshuffle,
    "channel_shuffle": _channel_shuffle,
    "native_channel_shuffle": _channel_shuffle,
}
