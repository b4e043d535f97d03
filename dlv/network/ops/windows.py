"""Windows that slide over any number of axes: which places they hold, products with weights, and
the largest and mean values in them.

Arrays here have their channels last: (batch, *lengths, channels).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

from dlv.dataclass import dataclass
from dlv.kinds import Array
from dlv.network.sizes import transposed, window

# Patches are copied and multiplied a few rows at a time: what fits into a processor's cache is
# not written to memory and read back. Below so many patches at once the product itself is slow.
_CACHE = 2_000_000
_PATCHES = 256


@dataclass(frozen=True)
class Axis:
    """Windows along one axis: window `o` holds the places `o * stride + t * dilation - before`."""

    length: int
    kernel: int
    stride: int
    before: int
    dilation: int
    count: int

    def taps(self) -> Iterator[tuple[int, slice, slice]]:
        """For each t: the windows whose place t lies inside the axis, and those places."""
        for t in range(self.kernel):
            first = t * self.dilation - self.before
            low = max(0, -(first // self.stride))
            high = min(self.count, (self.length - 1 - first) // self.stride + 1)
            if low < high:
                last = first + (high - 1) * self.stride
                places = slice(first + low * self.stride, last + 1, self.stride)
                yield t, slice(low, high), places

    @property
    def reach(self) -> int:
        """How far the windows go, counted from the first place of the first one."""
        return (self.count - 1) * self.stride + self.dilation * (self.kernel - 1) + 1

    @property
    def inside(self) -> bool:
        """Whether no window holds a place outside the axis."""
        return self.before == 0 and self.reach <= self.length


@dataclass(frozen=True)
class Parts:
    """Windows of different sizes that share an axis out among `count` outputs."""

    length: int
    count: int

    def taps(self) -> Iterator[tuple[int, slice, slice]]:
        for o in range(self.count):
            start, stop = o * self.length // self.count, -(-(o + 1) * self.length // self.count)
            for t in range(stop - start):
                yield t, slice(o, o + 1), slice(start + t, start + t + 1)


Axes = tuple[Axis, ...]
Window = Axis | Parts


@lru_cache(maxsize=256)
def multiplicity(axis: Window) -> Array:
    """How many windows hold each place."""
    import numpy as np

    found = np.zeros(axis.length, np.int64)
    for _, _, places in axis.taps():
        found[places] += 1
    return found


def overlap(axes: Sequence[Window]) -> int:
    """The most windows that hold one place."""
    return prod(int(multiplicity(axis).max(initial=0)) for axis in axes)


def sliding(attrs: Mapping[str, Any], lengths: Sequence[int], *, ceil: bool = False) -> Axes:
    """The windows of a convolution or pool over a map of these lengths; ShapeError."""
    rows = zip(
        lengths, attrs["kernel"], attrs["stride"], attrs["pad"], attrs["dilation"], strict=True
    )
    return tuple(
        Axis(length, kernel, stride, pad[0], dilation, _known(count))
        for length, kernel, stride, pad, dilation in rows
        for count in [window(length, kernel, stride, pad, dilation, ceil)]
    )


def spreading(attrs: Mapping[str, Any], lengths: Sequence[int]) -> Axes:
    """The windows that a transposed convolution fills: its output is the map, its input them."""
    names = ("kernel", "stride", "pad", "dilation", "output_pad")
    rows = zip(lengths, *(attrs[name] for name in names), strict=True)
    return tuple(
        Axis(_known(length), kernel, stride, pad[0], dilation, count)
        for count, kernel, stride, pad, dilation, extra in rows
        for length in [transposed(count, kernel, stride, pad, dilation, extra)]
    )


def _known(length: object) -> int:
    assert isinstance(length, int)
    return length


def channels_last(x: Array, channels: str) -> Array:
    import numpy as np

    return np.moveaxis(x, 1, -1) if channels == "first" else x


def channels_back(x: Array, channels: str) -> Array:
    import numpy as np

    return np.moveaxis(x, -1, 1) if channels == "first" else x


def kernel_first(layout: str, weight: Array) -> Array:
    """A weight as (*kernel, in / groups, out); of DECONV as (*kernel, out / groups, in)."""
    if layout == "depthwise":
        return weight.reshape(*weight.shape[:-2], 1, -1)
    if layout == "kernel_first":
        return weight
    import numpy as np

    return np.moveaxis(weight, (0, 1), (-1, -2))


def convolve(x: Array, weight: Array, axes: Axes, groups: int) -> Array:
    """(batch, *lengths, in) and (*kernel, in / groups, out): (batch, *counts, out)."""
    rows, depth, out = len(x), x.shape[-1], weight.shape[-1]
    counts = tuple(axis.count for axis in axes)
    if depth != weight.shape[-2] * groups:
        raise ValueError(f"{depth} channels for a weight of {weight.shape[-2] * groups}")
    x = x.astype(weight.dtype, copy=False)
    if groups > 1 and depth == groups:
        return _each_channel(x, weight, axes)
    import numpy as np

    matrix = np.moveaxis(weight.reshape(-1, groups, out // groups), 1, 0)
    result = np.empty((rows, *counts, out), weight.dtype)
    patch, places = matrix.shape[1], prod(counts)
    at_once = max(_CACHE // max(patch * groups * places * weight.itemsize, 1), 1)
    at_once = min(max(at_once, -(-_PATCHES // max(places, 1))), max(rows, 1))
    patches = _Patches(x, weight.shape[:-2], axes, groups, at_once)
    for start in range(0, rows, at_once):
        into = result[start : start + at_once]
        if groups == 1:
            np.matmul(patches.of(start), matrix, out=into.reshape(1, -1, out))
        else:
            found = np.matmul(patches.of(start), matrix)
            into[...] = np.moveaxis(found, 0, 1).reshape(into.shape)
    return result


class _Patches:
    """What the windows hold, row by row, in buffers that are used again."""

    def __init__(
        self, x: Array, kernel: tuple[int, ...], axes: Axes, groups: int, at_once: int
    ) -> None:
        self.x, self.axes, self.groups, self.at_once = x, axes, groups, at_once
        depth = x.shape[-1]
        self.plain = prod(kernel) == 1 and all(axis.inside for axis in axes)
        self.padded: Array | None = None
        if self.plain:
            return
        import numpy as np

        if not all(axis.inside for axis in axes):
            self.padded = np.zeros((at_once, *(axis.reach for axis in axes), depth), x.dtype)
        counts = (axis.count for axis in axes)
        self.buffer = np.empty((groups, at_once, *counts, *kernel, depth // groups), x.dtype)

    def of(self, start: int) -> Array:
        """(groups, patches, in / groups * kernel) of the next rows."""
        x = self.x[start : start + self.at_once]
        rows, each = len(x), x.shape[-1] // self.groups
        if self.plain:
            import numpy as np

            steps = tuple(slice(0, axis.reach, axis.stride) for axis in self.axes)
            return np.moveaxis(x[:, *steps].reshape(-1, self.groups, each), 1, 0)
        from numpy.lib import stride_tricks

        if self.padded is not None:
            room = [max(min(axis.length, axis.reach - axis.before), 0) for axis in self.axes]
            pairs = zip(self.axes, room, strict=True)
            into = tuple(slice(axis.before, axis.before + length) for axis, length in pairs)
            self.padded[:rows, *into] = x[:, *(slice(length) for length in room)]
            x = self.padded[:rows]
        row, *strides, channel = x.strides
        moves = [stride * axis.stride for stride, axis in zip(strides, self.axes, strict=True)]
        taps = [stride * axis.dilation for stride, axis in zip(strides, self.axes, strict=True)]
        counts = [axis.count for axis in self.axes]
        kernel = [axis.kernel for axis in self.axes]
        view = stride_tricks.as_strided(
            x,
            (self.groups, rows, *counts, *kernel, each),
            (each * channel, row, *moves, *taps, channel),
            writeable=False,
        )
        buffer = self.buffer[:, :rows]
        buffer[...] = view
        return buffer.reshape(self.groups, rows * prod(counts), -1)


def _each_channel(x: Array, weight: Array, axes: Axes) -> Array:
    """One group per channel: products by element, tap by tap."""
    import numpy as np

    rows, depth = len(x), x.shape[-1]
    counts = (axis.count for axis in axes)
    result = np.zeros((rows, *counts, depth, weight.shape[-1] // depth), weight.dtype)
    taps = weight.reshape(*weight.shape[:-2], depth, -1)
    for place in product(*(axis.taps() for axis in axes)):
        windows = tuple(each for _, each, _ in place)
        places = tuple(each for _, _, each in place)
        part = x[:, *places, :, None] * taps[tuple(t for t, _, _ in place)]
        result[:, *windows] += part
    return result.reshape(*result.shape[:-2], -1)


def spread(x: Array, weight: Array, axes: Axes, groups: int) -> Array:
    """The transpose: (batch, *counts, in), (*kernel, out / groups, in): (batch, *lengths, out)."""
    rows, depth = len(x), x.shape[-1]
    if depth != weight.shape[-1]:
        raise ValueError(f"{depth} channels for a weight of {weight.shape[-1]}")
    import numpy as np

    x = x.astype(weight.dtype, copy=False)
    kernel, each = weight.shape[:-2], weight.shape[-2]
    # (groups, in / groups, kernel * out / groups)
    matrix = np.moveaxis(weight.reshape(-1, groups, depth // groups), 0, -1)
    lengths = tuple(axis.length for axis in axes)
    result = np.zeros((rows, *lengths, groups, each), weight.dtype)
    size = prod(x.shape[1:-1]) * matrix.shape[-1] * groups * weight.itemsize
    at_once = max(_CACHE // max(size, 1), 1)
    for start in range(0, rows, at_once):
        some = x[start : start + at_once]
        parts = np.matmul(np.moveaxis(some.reshape(-1, groups, depth // groups), 1, 0), matrix)
        parts = np.moveaxis(parts.reshape(groups, *some.shape[:-1], *kernel, each), 0, -2)
        into = result[start : start + at_once]
        for place in product(*(axis.taps() for axis in axes)):
            windows = tuple(one for _, one, _ in place)
            places = tuple(one for _, _, one in place)
            taps = tuple(t for t, _, _ in place)
            into[:, *places] += parts[:, *windows, *taps]
    return result.reshape(rows, *lengths, -1)


# Above so many entries the norm of an axis of means is bounded, not computed.
_MATRIX = 1 << 20


def adaptive(length: int, count: int) -> Window:
    """The windows of a pool that is told how many outputs it has."""
    if count and length % count == 0:
        return Axis(length, length // count, length // count, 0, 1, count)
    return Parts(length, count)


def _along(rank: int, axis: int, part: slice) -> tuple[slice, ...]:
    return tuple(part if place == axis else slice(None) for place in range(rank))


def _lowest(dtype: Any) -> Any:
    import numpy as np

    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _start(x: Array, axis: int, window: Window, fill: Any) -> Array:
    import numpy as np

    shape = (*x.shape[:axis], window.count, *x.shape[axis + 1 :])
    return np.full_like(x, fill, shape=shape)


def _reduced(x: Array, windows: Sequence[Window], first: int, combine: Any, fill: Any) -> Array:
    """Each window's values combined, one axis after the other."""
    import numpy as np

    for axis, pooled in enumerate(windows, first):
        taps = [(outputs, places) for _, outputs, places in pooled.taps()]
        everywhere = [place for place, tap in enumerate(taps) if tap[0] == slice(0, pooled.count)]
        if everywhere:
            _, places = taps.pop(everywhere[0])
            result = np.array(x[_along(x.ndim, axis, places)], order="K")
        else:
            result = _start(x, axis, pooled, fill)
        for outputs, places in taps:
            into = result[_along(x.ndim, axis, outputs)]
            combine(into, x[_along(x.ndim, axis, places)], out=into)
        x = result
    return x


def largest(x: Array, windows: Sequence[Window], first: int) -> Array:
    """The largest value of each window; its axes begin at `first`."""
    import numpy as np

    return _reduced(x, windows, first, np.maximum, _lowest(x.dtype))


def largest_and_places(x: Array, windows: Sequence[Window], first: int) -> tuple[Array, Array]:
    """The same, and where on the map each stands: its place with all axes laid out in a row.

    Of equal values the first counts, of NaN the last, as in torch.
    """
    import numpy as np

    places = np.zeros_like(x, np.int64)
    scale = 1
    for axis, pooled in reversed([*enumerate(windows, first)]):
        result = _start(x, axis, pooled, _lowest(x.dtype))
        found = _start(places, axis, pooled, 0)
        seen = np.zeros(pooled.count, bool)
        shape = [-1 if place == axis else 1 for place in range(x.ndim)]
        here = np.arange(x.shape[axis]).reshape(shape) * scale + places
        for _, outputs, taken in pooled.taps():
            into, value = _along(x.ndim, axis, outputs), x[_along(x.ndim, axis, taken)]
            better = (value > result[into]) | (value != value) | ~seen[outputs].reshape(shape)
            np.copyto(result[into], value, where=better)
            np.copyto(found[into], here[_along(x.ndim, axis, taken)], where=better)
            seen[outputs] = True
        scale *= x.shape[axis]
        x, places = result, found
    return x, places


def sums(x: Array, windows: Sequence[Window], first: int) -> Array:
    """The sum of each window."""
    import numpy as np

    return _reduced(x, windows, first, np.add, 0)


@lru_cache(maxsize=256)
def divisors(window: Window, after: int, count_pad: bool) -> Array:
    """How many places of each window count; those beyond the padding never do."""
    import numpy as np

    if isinstance(window, Parts) or not count_pad:
        found = np.zeros(window.count, np.int64)
        for _, outputs, _ in window.taps():
            found[outputs] += 1
        return found
    starts = np.arange(window.count) * window.stride
    room = np.maximum(window.before + window.length + after - starts, 0)
    most: Array = np.minimum(-(-room // window.dilation), window.kernel)
    return most


def means(
    x: Array, windows: Sequence[Window], first: int, counts: Sequence[Array], dtype: Any
) -> Array:
    """The mean of each window, its sum divided by how many places count."""
    import numpy as np

    result = sums(x.astype(dtype, copy=False), windows, first)
    divisor = np.ones((1,) * x.ndim, result.dtype)
    for axis, count in enumerate(counts, first):
        divisor = divisor * count.reshape([-1 if place == axis else 1 for place in range(x.ndim)])
    np.divide(result, np.maximum(divisor, 1), out=result)
    return result


@lru_cache(maxsize=256)
def mean_norm(window: Window, after: int, count_pad: bool) -> float:
    """A bound of the norm of means along one axis, as a matrix; that of several is the product."""
    import numpy as np

    count = np.maximum(divisors(window, after, count_pad), 1)
    if window.length * window.count <= _MATRIX:
        matrix = np.zeros((window.count, window.length))
        for _, outputs, places in window.taps():
            rows = np.arange(outputs.start, outputs.stop)
            columns = np.arange(places.start, places.stop, places.step)
            matrix[rows, columns] = 1 / count[rows]
        gram = matrix @ matrix.T if window.count <= window.length else matrix.T @ matrix
        top = float(np.linalg.eigvalsh(gram).max(initial=0.0))
        return float(np.sqrt(max(top, 0.0))) * (1 + 1e-7)
    held, columns = np.zeros(window.count), np.zeros(window.length)
    for _, outputs, places in window.taps():
        held[outputs] += 1
        columns[places] += 1 / count[outputs]
    rows_most = float((held / count).max(initial=0.0))
    return float(np.sqrt(rows_most * columns.max(initial=0.0))) * (1 + 1e-7)


def most_places(windows: Sequence[Window]) -> int:
    """The most places that one window holds."""
    return prod(int(divisors(window, 0, False).max(initial=0)) for window in windows)
