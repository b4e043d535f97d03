"""Largest and mean values of windows, axis by axis."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

from dlv.kinds import Array
from dlv.network.ops.windows import Axis, Parts, Window

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

    for axis, window in enumerate(windows, first):
        taps = [(outputs, places) for _, outputs, places in window.taps()]
        everywhere = [place for place, tap in enumerate(taps) if tap[0] == slice(0, window.count)]
        if everywhere:
            _, places = taps.pop(everywhere[0])
            result = np.array(x[_along(x.ndim, axis, places)], order="K")
        else:
            result = _start(x, axis, window, fill)
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
    for axis, window in reversed([*enumerate(windows, first)]):
        result = _start(x, axis, window, _lowest(x.dtype))
        found = _start(places, axis, window, 0)
        seen = np.zeros(window.count, bool)
        shape = [-1 if place == axis else 1 for place in range(x.ndim)]
        here = np.arange(x.shape[axis]).reshape(shape) * scale + places
        for _, outputs, taken in window.taps():
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
