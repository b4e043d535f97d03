"""A stored snapshot, read tensor by tensor, slice by slice, or only roughly: `version.open()`."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from types import EllipsisType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

import dlv.weights.reading.approximation as approximation
from dlv.dataclass import dataclass
from dlv.dtypes import ITEM_BYTES
from dlv.errors import NotFound, UsageError, nearest
from dlv.kinds import Array, Raw
from dlv.pas.layouts.segments import SEGMENT, words_of
from dlv.weights.arrays import to_array
from dlv.weights.reading.approximation import Approximation
from dlv.weights.store import MatrixStore

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
            raise _refused(name, shape, "`...` can be used only once")
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


def _axis(index: Any, size: int, stride: int, number: int, name: str, shape: Sequence[int]) -> Axis:
    if isinstance(index, slice):
        try:
            start, stop, step = index.indices(size)
        except (TypeError, ValueError) as error:
            raise _refused(name, shape, str(error)) from error
        count = len(range(start, stop, step))
        if count < 2:
            step = 1 if step > 0 else -1  # it is never taken, and may be beyond any machine word
        if step < 0:
            start, step = start + (count - 1) * step, -step
            return Axis(start if count else 0, step, count, stride, True, False)
        return Axis(start, step, count, stride, False, False)
    if index is None or isinstance(index, (bool, np.bool_)):
        raise _refused(name, shape, f"{index!r} is none of {_ALLOWED}")
    try:
        at = operator.index(index)
    except TypeError as error:
        raise _refused(name, shape, f"{_kind(index)} is none of {_ALLOWED}") from error
    if not -size <= at < size:
        raise _refused(name, shape, f"index {at} on axis {number}, which has {size}")
    return Axis(at % size, 1, 1, stride, False, True)


def _kind(index: Any) -> str:
    return f"an index of type {type(index).__name__}"


def _refused(name: str, shape: Sequence[int], why: str) -> UsageError:
    return UsageError(f"`{name}` of shape {list(shape)} cannot be indexed like this", why=why)


Index = int | slice | EllipsisType | tuple[int | slice | EllipsisType, ...]

# Neighbouring segments that are read at one go.
TOGETHER = 4


class Reader:
    """The matrices of one snapshot by name; nothing is read before it is asked for.

    The names of safetensors' `safe_open` work as well: `get_tensor`, `get_slice`, `metadata`.
    """

    def __init__(
        self,
        store: MatrixStore,
        label: str,
        held: Mapping[str, tuple[str, tuple[int, ...], str]],
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self._store = store
        self._label = label
        self._held = held  # name -> dtype, shape, hash
        self._metadata = dict(metadata or {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files that were read from; what comes next opens them again."""
        self._store.close()

    def __repr__(self) -> str:
        return f"<dlv reader of {self._label}, {len(self._held)} tensors>"

    def keys(self) -> list[str]:
        return list(self._held)

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, name: object) -> bool:
        return name in self._held

    def metadata(self) -> dict[str, str]:
        return dict(self._metadata)

    def dtype(self, name: str) -> str:
        """The dtype as it is stored; numpy may have to use a wider one."""
        return self._found(name)[0]

    def shape(self, name: str) -> tuple[int, ...]:
        return self._found(name)[1]

    def raw(self, name: str) -> Raw:
        """The little-endian bytes of a matrix, checked against its hash."""
        return self._store.matrix(self._found(name)[2])

    def tensor(self, name: str) -> Array:
        """A whole matrix; bfloat16 and float8 come as float32 of the same values."""
        dtype, shape, digest = self._found(name)
        return to_array(dtype, shape, self._store.matrix(digest))

    def slice(self, name: str) -> Slice:
        """A matrix of which only what is indexed is read: `f.slice("w")[10:20, :]`."""
        dtype, shape, digest = self._found(name)
        return Slice(self._store, name, dtype, shape, digest)

    def approximate(self, name: str, planes: int) -> Approximation:
        """The values as far as the first planes tell them, with bounds that surely hold.

        `exact` where nothing is open; matrices whose prefix says nothing are read whole.
        """
        dtype, shape, digest = self._found(name)
        return approximation.approximate(self._store, digest, dtype, shape, planes)

    def get_tensor(self, name: str) -> Array:
        return self.tensor(name)

    def get_slice(self, name: str) -> Slice:
        return self.slice(name)

    def _found(self, name: str) -> tuple[str, tuple[int, ...], str]:
        found = self._held.get(name)
        if found is None:
            raise NotFound(
                f"{self._label} has no tensor `{name}`", did_you_mean=nearest(name, self._held)
            )
        return found


class Slice:
    """A stored matrix that is indexed as a numpy array is, by integers and slices."""

    def __init__(
        self, store: MatrixStore, name: str, dtype: str, shape: tuple[int, ...], digest: str
    ) -> None:
        self._store = store
        self._digest = digest
        self.name = name
        self.dtype = dtype
        self.shape = shape

    def __repr__(self) -> str:
        return f"<slice of {self.name}: {self.dtype} {list(self.shape)}>"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without axes has no length")
        return self.shape[0]

    def get_shape(self) -> list[int]:
        return list(self.shape)

    def get_dtype(self) -> str:
        return self.dtype

    def __getitem__(self, index: Index) -> Array:
        """What is chosen, as an array of its own."""
        if self.dtype not in ITEM_BYTES:
            raise UsageError(
                f"`{self.name}` is of {self.dtype}, which dlv cannot cut into elements",
                hint="read its bytes whole with `raw`",
            )
        chosen = Selection.of(self.shape, index, self.name)
        out = _empty(self.dtype, chosen.count)
        for first, last in _runs(chosen, _segment(self.dtype)):
            start, stop = chosen.span(first, last)
            raw = self._store.slice(self._digest, start, stop - start)
            values = to_array(self.dtype, (stop - start,), raw)
            if stop - start == last - first:
                out[first:last] = values
            else:
                _gather(chosen, values, start, out, first, last)
        return chosen.shaped(out)


def _gather(
    chosen: Selection, values: Array, start: int, out: Array, first: int, last: int
) -> None:
    for at in range(first, last, SEGMENT):
        stop = min(at + SEGMENT, last)
        out[at:stop] = values[chosen.places(at, stop) - start]


def _runs(chosen: Selection, segment: int) -> Iterator[tuple[int, int]]:
    """Which of the chosen elements to read at one go: those of a few neighbouring segments."""
    done = 0
    while done < chosen.count:
        first = chosen.place(done) // segment
        last = first + 1
        end = chosen.before(last * segment)
        while last - first < TOGETHER and end < chosen.count:
            if chosen.place(end) // segment != last:
                break
            last += 1
            end = chosen.before(last * segment)
        yield done, end
        done = end


def _segment(dtype: str) -> int:
    """Elements per segment."""
    return SEGMENT // words_of(dtype)[1]


def _empty(dtype: str, count: int) -> npt.NDArray[Any]:
    return np.empty(count, to_array(dtype, (0,), b"").dtype)
