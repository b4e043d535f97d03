"""Layouts: how the bits of a matrix are cut into byte-wide planes."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dlv.dtypes import DTYPES
from dlv.errors import Damaged, NewerFormat
from dlv.kinds import Bytes, Raw

Words = NDArray[Any]  # little-endian unsigned words of 1, 2, 4 or 8 bytes

# dtype -> (bytes per word, words per element); `raw:<name>` is opaque and not in here.
WORDS = {name: (d.word, d.bytes // d.word) for name, d in DTYPES.items()}
OPAQUE = "raw:"

# Planes are cut at multiples of this many words: what is coded and decoded at a time.
SEGMENT = 1 << 20
# Words handled at a time: large enough for numpy's loops, small enough for the cache.
BLOCK = 1 << 18
UNSIGNED: dict[int, np.dtype[Any]] = {
    1: np.dtype("<u1"),
    2: np.dtype("<u2"),
    4: np.dtype("<u4"),
    8: np.dtype("<u8"),
}
_spares = threading.local()


def words_of(dtype: str) -> tuple[int, int]:
    """(bytes per word, words per element) of a dtype."""
    if dtype.startswith(OPAQUE):
        return 1, 1
    try:
        return WORDS[dtype]
    except KeyError:
        raise NewerFormat(
            f"unknown dtype {dtype!r}", hint="install the version of dlv that wrote it"
        ) from None


def element_bytes(dtype: str) -> int:
    """Bytes per element; opaque bytes count as their own elements."""
    word, per_element = words_of(dtype)
    return word * per_element


def matrix_bytes(dtype: str, shape: Sequence[int]) -> int | None:
    """Length of a matrix; None where only its bytes tell (`raw:` dtypes)."""
    if dtype.startswith(OPAQUE):
        return None
    return element_bytes(dtype) * math.prod(shape)


def word_shape(shape: Sequence[int], per_element: int) -> tuple[int, ...]:
    """The shape of a matrix's words: a complex number is two of them."""
    return tuple(shape) if per_element == 1 else (*shape, per_element)


def raw_of(words: Words) -> Raw:
    """The bytes of words, as a view."""
    return words.data.cast("B") if len(words) else b""


class Layout(Protocol):
    """A way to cut a matrix into planes; what an id joins never changes."""

    layout_id: str
    # True: the planes of a range of elements are ranges of the planes, so a matrix may be
    # split and joined piece by piece, each piece as a vector.
    elementwise: bool

    def get_config(self) -> dict[str, Any]: ...

    def planes(self, dtype: str) -> int:
        """How many planes a matrix of that dtype has."""
        ...

    def plane_bytes(self, plane: int, dtype: str, shape: Sequence[int]) -> int | None:
        """Length of a plane; None where it depends on the content."""
        ...

    def side_bytes(self, dtype: str, shape: Sequence[int]) -> int:
        """Length of the side data."""
        ...

    def side_of(self, raw: Raw, dtype: str, shape: Sequence[int]) -> bytes:
        """The side data of a matrix; ValueError if this layout cannot hold the matrix."""
        ...

    def cutter(self, side: Raw, dtype: str, shape: Sequence[int]) -> Cutter:
        """Works on one segment after the other; Damaged if the side data cannot be right."""
        ...


class Cutter(Protocol):
    """A layout at work on one matrix: planes of the words from `start`, and back.

    Planes whose lengths depend on the content are cut where segments begin, and a segment
    is cut and pasted whole. All others may be cut anywhere.
    """

    def cut(self, words: Words, start: int) -> list[Raw]:
        """The planes of these words."""
        ...

    def paste(
        self, planes: Sequence[Raw], start: int, count: int, out: Words | None = None
    ) -> Words:
        """The `count` words of these planes; Damaged if they cannot be that.

        They are written to `out` where the layout can do that, and returned in any case.
        """
        ...


def split_matrix(
    layout: Layout, raw: Raw, dtype: str, shape: Sequence[int]
) -> tuple[list[Raw], bytes]:
    """Planes of a whole matrix, most significant first, and its side data (b"" without any)."""
    expected = matrix_bytes(dtype, shape)
    if expected is not None and len(raw) != expected:
        raise ValueError(f"{len(raw)} bytes for {dtype} {list(shape)}, not {expected}")
    side = layout.side_of(raw, dtype, shape)
    cutter = layout.cutter(side, dtype, shape)
    words = np.frombuffer(raw, UNSIGNED[words_of(dtype)[0]])
    if len(words) <= SEGMENT:
        return cutter.cut(words, 0), side
    parts = [cutter.cut(words[at : at + SEGMENT], at) for at in range(0, len(words), SEGMENT)]
    return [b"".join(segments) for segments in zip(*parts, strict=True)], side


def join_matrix(
    layout: Layout, planes: Sequence[Raw], side: Raw, dtype: str, shape: Sequence[int]
) -> Raw:
    """Bytes of a matrix from all its planes, the inverse of `split_matrix`.

    Where planes are not elementwise, only of a matrix of one segment: in longer ones the planes
    of each segment must be known apart.
    """
    cutter = layout.cutter(side, dtype, shape)
    whole = matrix_bytes(dtype, shape)
    if whole is None:
        whole = len(planes[0]) if planes else 0
    count = whole // words_of(dtype)[0]
    if count > SEGMENT and not layout.elementwise:
        raise ValueError("a tensor of many segments is joined one by one")
    return raw_of(cutter.paste(planes, 0, count))


class Even:
    """What layouts share whose planes are all of one length and say everything."""

    elementwise = True

    def planes(self, dtype: str) -> int:
        raise NotImplementedError

    def plane_bytes(  # every plane has the same length
        self,
        plane: int,  # noqa: ARG002
        dtype: str,
        shape: Sequence[int],
    ) -> int | None:
        whole = matrix_bytes(dtype, shape)
        return None if whole is None else whole // self.planes(dtype)

    def side_bytes(self, dtype: str, shape: Sequence[int]) -> int:  # noqa: ARG002
        return 0

    def side_of(self, raw: Raw, dtype: str, shape: Sequence[int]) -> bytes:  # noqa: ARG002
        return b""


class Ieee(Even):
    """Byte k of each little-endian word, the most significant first."""

    layout_id = "ieee"

    def get_config(self) -> dict[str, Any]:
        return {"id": self.layout_id}

    def planes(self, dtype: str) -> int:
        return words_of(dtype)[0]

    def cutter(self, side: Raw, dtype: str, shape: Sequence[int]) -> Cutter:  # noqa: ARG002
        if len(side):
            raise Damaged(f"a tensor of {dtype} has no side data")
        return _IeeeCutter(self.planes(dtype))


class _IeeeCutter:
    """`ieee` segment by segment: there is nothing to know but the width of a word."""

    def __init__(self, width: int) -> None:
        self._width = width

    def cut(self, words: Words, start: int) -> list[Raw]:  # noqa: ARG002
        if self._width == 1:
            return [raw_of(words)]
        # One array each, so that a plane that is kept does not keep the others.
        out = [np.empty(len(words), np.uint8) for _ in range(self._width)]
        split_words(words, out)
        return [plane.data for plane in out]

    def paste(
        self,
        planes: Sequence[Raw],
        start: int,  # noqa: ARG002
        count: int,
        out: Words | None = None,
    ) -> Words:
        if len(planes) != self._width or any(len(plane) != count for plane in planes):
            raise Damaged(f"{count} words of {self._width} bytes have other planes")
        if self._width == 1:
            return np.frombuffer(planes[0], np.uint8)
        out = np.empty(count, UNSIGNED[self._width]) if out is None else out
        join_words([np.frombuffer(plane, np.uint8) for plane in planes], out)
        return out


def split_words(words: Words, out: Sequence[Bytes]) -> None:
    """Cut words into halves, these again, down to bytes: one array each, the highest first.

    Shifts and narrowing casts run in vector registers; copying every width-th byte does not,
    and takes up to three times as long.
    """
    for start in range(0, len(words), BLOCK):
        at = slice(start, start + BLOCK)
        _split(words[at], [plane[at] for plane in out])


def join_words(planes: Sequence[Bytes], out: Words) -> None:
    """The inverse of `split_words`: neighbours are joined to words of twice the size."""
    for start in range(0, len(out), BLOCK):
        at = slice(start, start + BLOCK)
        _join([plane[at] for plane in planes], out[at])


def spare(role: str, dtype: np.dtype[Any], count: int) -> Words:
    """Up to a block of memory that this thread uses again and again, for what it is named.

    Fresh memory comes in pages that the system clears one by one: that takes longer than what
    is done with it.
    """
    name = f"{role} {dtype.itemsize}"
    held: Words | None = getattr(_spares, name, None)
    if held is None or len(held) < count:
        held = np.empty(max(count, BLOCK), UNSIGNED[dtype.itemsize])
        setattr(_spares, name, held)
    return held[:count]


def _split(words: Words, out: Sequence[Bytes]) -> None:
    half, count = len(out) // 2, len(words)
    if not half:
        np.copyto(out[0], words)
        return
    high = np.right_shift(words, 8 * half, out=spare("high", words.dtype, count))
    if half == 1:
        np.copyto(out[0], high, casting="unsafe")
        np.copyto(out[1], words, casting="unsafe")
        return
    part = spare("part", UNSIGNED[half], count)
    np.copyto(part, high, casting="unsafe")
    _split(part, out[:half])
    np.copyto(part, words, casting="unsafe")
    _split(part, out[half:])


def _join(planes: Sequence[Bytes], out: Words) -> None:
    half, count = len(planes) // 2, len(out)
    if not half:
        np.copyto(out, planes[0])
        return
    high: Words = planes[0]
    low: Words = planes[1]
    if half > 1:
        high = low = spare("part", UNSIGNED[half], count)
        _join(planes[:half], high)
    np.copyto(out, high)
    np.left_shift(out, 8 * half, out=out)
    if half > 1:
        _join(planes[half:], low)
    wide = spare("low", out.dtype, count)
    np.copyto(wide, low)
    np.bitwise_or(out, wide, out=out)


def default_layout() -> Layout:
    """What commit stores matrices in."""
    return Ieee()
