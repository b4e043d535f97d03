"""The last plane of `fixed`: what the codes leave over, bit by bit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlv.errors import Damaged
from dlv.kinds import Raw
from dlv.pas.floats import Format
from dlv.pas.layouts.segments import Words


def pack_tail(
    n: NDArray[np.int32],
    tail: Words,
    escaped: NDArray[np.bool_],
    flagged: NDArray[np.bool_],
    words: Words,
) -> bytes:
    """The last plane of a segment: tails bit by bit from the top, flags, escaped words."""
    kind = tail.dtype
    parts: list[bytes] = []
    keep = n > 0
    some, left = tail[keep], n[keep]
    top = kind.type(8 * kind.itemsize - 1)
    some = some << (kind.type(8 * kind.itemsize) - left.astype(kind))
    while len(some):
        parts.append(np.packbits((some >> top).astype(np.bool_)).tobytes())
        left = left - 1
        keep = left > 0
        some, left = some[keep] << kind.type(1), left[keep]
    parts.append(np.packbits(escaped[flagged]).tobytes())
    parts.append(words[escaped].tobytes())
    return b"".join(parts)


def unpack_tail(
    data: Raw, n: NDArray[np.int32], flagged: NDArray[np.bool_], form: Format
) -> tuple[Words, NDArray[np.bool_], Words]:
    """Tails, which elements are escaped, and their words; Damaged on any other length."""
    reader = _Bits(data)
    kind = np.dtype("<u8") if form.width == 8 else np.dtype("<u4")
    lengths = n.astype(np.uint8)
    tail = np.zeros(len(n), kind)
    i = 0
    active = lengths > 0
    count = int(np.count_nonzero(active))
    # While most elements take part, all of them are shifted; then the few by their places.
    while 3 * count > len(n):
        more = np.zeros(len(n), np.uint8)
        more[active] = reader.bits(count)
        tail <<= active.astype(kind)
        tail |= more
        i += 1
        active = lengths > i
        count = int(np.count_nonzero(active))
    places = np.flatnonzero(active)
    while len(places):
        tail[places] = (tail[places] << kind.type(1)) | reader.bits(len(places))
        i += 1
        places = places[lengths[places] > i]
    escaped = np.zeros(len(n), np.bool_)
    escaped[flagged] = reader.bits(int(np.count_nonzero(flagged))).astype(np.bool_)
    words = reader.words(int(np.count_nonzero(escaped)), form)
    return tail, escaped, words


class _Bits:
    """Takes runs of bits, each filled up to whole bytes, off a plane."""

    def __init__(self, data: Raw) -> None:
        self._data = memoryview(data)

    def bits(self, count: int) -> NDArray[np.uint8]:
        found = np.unpackbits(np.frombuffer(self._take(-(-count // 8)), np.uint8))
        if found[count:].any():
            raise Damaged("a tail is not filled up with zeros")
        return found[:count]

    def words(self, count: int, form: Format) -> Words:
        taken = self._take(count * form.width)
        if len(self._data):
            raise Damaged("a tail is longer than its codes say")
        return np.frombuffer(taken, form.words)

    def _take(self, count: int) -> memoryview:
        if count > len(self._data):
            raise Damaged("a tail is shorter than its codes say")
        taken, self._data = self._data[:count], self._data[count:]
        return taken
