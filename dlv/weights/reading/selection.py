"""Which elements an index chooses: counted, located and put into shape without listing them all.

Elements are numbered in C order. The chosen ones are numbered too, in the same order, so that
those of one stretch of the matrix are a stretch of the chosen ones.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np
import numpy.typing as npt

from dlv.errors import UsageError

_ALLOWED = "integers, slices and `...`"


@dataclass(frozen=True)
class Axis:
    """What is chosen along one axis: `count` places from `start`, always upwards."""

    start: int
    step: int
    count: int
    stride: int  # elements from one place of the axis to the next
    flipped: bool  # the index runs downwards
    dropped: bool  # an integer: the axis is gone


class Selection:
    """The elements that an index chooses out of a shape."""

    def __init__(self, axes: Sequence[Axis]) -> None:
        self._axes = tuple(axes)
        self.count = math.prod(axis.count for axis in self._axes)

    @classmethod
    def of(cls, shape: Sequence[int], index: Any, name: str) -> Selection:
        """UsageError where numpy would say IndexError, and for arrays as an index."""
        given = index if isinstance(index, tuple) else (index,)
        dots = [at for at, one in enumerate(given) if isinstance(one, EllipsisType)]
        if len(dots) > 1:
            raise _refused(name, shape, "`...` may stand once")
        axes = len(given) - len(dots)
        if axes > len(shape):
            raise _refused(name, shape, f"{axes} indices for {len(shape)} axes")
        whole = (slice(None),) * (len(shape) - axes)
        at = dots[0] if dots else len(given)
        full = (*given[:at], *whole, *given[at + 1 :])
        found = []
        stride = math.prod(shape)
        for number, (one, size) in enumerate(zip(full, shape, strict=True)):
            stride = stride // size if size else 0
            found.append(_axis(one, size, stride, number, name, shape))
        return cls(found)

    def shaped(self, out: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The chosen elements as an array of the shape that numpy would give them."""
        full = out.reshape([axis.count for axis in self._axes])
        turned = full[tuple(slice(None, None, -1 if a.flipped else 1) for a in self._axes)]
        kept = turned.reshape([axis.count for axis in self._axes if not axis.dropped])
        return np.ascontiguousarray(kept) if kept.ndim else kept

    def place(self, number: int) -> int:
        """Where in the matrix a chosen element lies."""
        place = 0
        for axis in reversed(self._axes):
            number, at = divmod(number, axis.count)
            place += (axis.start + at * axis.step) * axis.stride
        return place

    def places(self, first: int, last: int) -> npt.NDArray[np.int64]:
        """`place` of the chosen elements first .. last."""
        rest = np.arange(first, last, dtype=np.int64)
        found = np.zeros(last - first, np.int64)
        for axis in reversed(self._axes):
            rest, at = np.divmod(rest, axis.count)
            found += (axis.start + at * axis.step) * axis.stride
        return found

    def span(self, first: int, last: int) -> tuple[int, int]:
        """The stretch of the matrix that chosen elements first .. last lie in."""
        return self.place(first), self.place(last - 1) + 1

    def before(self, place: int) -> int:
        """How many chosen elements lie before a place of the matrix."""
        low, high = 0, self.count
        while low < high:  # their places ascend
            middle = (low + high) // 2
            if self.place(middle) < place:
                low = middle + 1
            else:
                high = middle
        return low


def _axis(one: Any, size: int, stride: int, number: int, name: str, shape: Sequence[int]) -> Axis:
    if isinstance(one, slice):
        try:
            start, stop, step = one.indices(size)
        except (TypeError, ValueError) as error:
            raise _refused(name, shape, str(error)) from error
        count = len(range(start, stop, step))
        if count < 2:
            step = 1 if step > 0 else -1  # it is never taken, and may be beyond any machine word
        if step < 0:
            start, step = start + (count - 1) * step, -step
            return Axis(start if count else 0, step, count, stride, True, False)
        return Axis(start, step, count, stride, False, False)
    if one is None or isinstance(one, (bool, np.bool_)):
        raise _refused(name, shape, f"{one!r} is none of {_ALLOWED}")
    try:
        at = operator.index(one)
    except TypeError as error:
        raise _refused(name, shape, f"{_kind(one)} is none of {_ALLOWED}") from error
    if not -size <= at < size:
        raise _refused(name, shape, f"index {at} on axis {number}, which has {size}")
    return Axis(at % size, 1, 1, stride, False, True)


def _kind(one: Any) -> str:
    return f"an index of type {type(one).__name__}"


def _refused(name: str, shape: Sequence[int], why: str) -> UsageError:
    return UsageError(f"`{name}` of shape {list(shape)} cannot be indexed so", why=why)
