"""Deltas in the layout `fixed`: of codes under the target's row exponents, and of their tails."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dlv.errors import Damaged
from dlv.kinds import Raw
from dlv.pas.layouts.fixed import CODE_BITS, MAG, Codes, FixedCutter, code_of, code_planes
from dlv.pas.layouts.segments import Words
from dlv.pas.layouts.tails import pack_tail, unpack_tail

MAP_TOP = np.uint32(1 << CODE_BITS)
ALL = np.uint32((1 << (CODE_BITS + 1)) - 1)
EIGHTS = np.uint32(0x808080)


def mapped(code: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Codes as integers in the order of their numbers."""
    negative = (code & MAP_TOP) != 0
    return np.bitwise_xor(code, np.where(negative, ALL, MAP_TOP))


def unmapped(order: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The inverse of `mapped`."""
    positive = (order & MAP_TOP) != 0
    return np.bitwise_xor(order, np.where(positive, MAP_TOP, ALL))


class FixedDelta:
    """`xor` or `sub` of 24-bit codes.

    A tail is XORed with the base's where both are of one length, an escaped word with the
    base's where that has no magnitude in its code either.
    """

    def __init__(self, kind: str, cutter: FixedCutter) -> None:
        self._xor = kind == "xor"
        self._cutter = cutter

    def cut(self, words: Words, base: Words, start: int) -> list[Raw]:
        e = self._cutter.exponents_at(start, len(words))
        codes, under = self._cutter.codes(words, e), self._cutter.codes(base, e)
        if codes is None or under is None:
            raise ValueError("a number is not finite, or beyond the exponent of its row")
        if self._xor:
            digits = codes.code ^ under.code
        else:
            digits = ((mapped(codes.code) - mapped(under.code) + EIGHTS) & ALL) ^ EIGHTS
        tail = codes.tail ^ shared_tail(codes.n, under)
        hidden = words.copy()
        hidden[empty(under)] ^= base[empty(under)]
        flagged = self._cutter.flagged(codes.code, e)
        return [*code_planes(digits), pack_tail(codes.n, tail, codes.escaped, flagged, hidden)]

    def paste(self, planes: Sequence[Raw], base: Words, start: int, out: Words) -> None:
        count = len(out)
        if len(planes) != 4 or any(len(plane) != count for plane in planes[:3]):
            raise Damaged(f"{count} words of a fixed layout have other planes")
        cutter = self._cutter
        e = cutter.exponents_at(start, count)
        under = cutter.codes(base, e)
        if under is None:
            raise Damaged("a base does not fit into the row exponents of its delta")
        code = added(code_of(planes[:3]), under.code, xor=self._xor)
        n = cutter.tail_lengths(code, e)
        flagged = cutter.flagged(code, e)
        tail, escaped, words = unpack_tail(planes[3], n, flagged, cutter.unit.form)
        tail ^= shared_tail(n, under)
        hidden = words ^ np.where(empty(under), base, base.dtype.type(0))[escaped]
        out[:] = cutter.joined(code, n, tail, e, escaped, hidden)


def added(digits: NDArray[np.uint32], base: NDArray[np.uint32], *, xor: bool) -> NDArray[np.uint32]:
    """Codes from their differences and the base's codes."""
    if xor:
        return np.bitwise_xor(digits, base)
    return unmapped((mapped(base) + (digits ^ EIGHTS) - EIGHTS) & ALL)


def empty(codes: Codes) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (codes.code & MAG) == 0
    return found


def shared_tail(n: NDArray[np.int32], under: Codes) -> Words:
    """The base's tails where they are as long as the target's, 0 elsewhere."""
    return np.where(n == under.n, under.tail, under.tail.dtype.type(0))
