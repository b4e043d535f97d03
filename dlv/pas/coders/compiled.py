"""Loops that numba compiles where it is installed. Any machine gets the same bytes without."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.dataclass import dataclass
from dlv.errors import UsageError, require

force: list[bool] = []  # tests: [True] or [False]

# numba takes long to import and first of all to compile. So it comes in when about as much
# time was spent without: after this many digits.
PATIENCE = 1 << 26

_seen = [0]


@dataclass(frozen=True)
class Loops:
    """What is compiled; see the functions below."""

    count: Any
    scatter: Any
    unpack: Any
    cut: Any
    join: Any
    cut_half: Any
    join_half: Any
    numbers: Any
    sizes: Any
    drift: Any


def loops(digits: int = PATIENCE) -> Loops | None:
    """None without numba, or if numpy does as well for what was asked for up to now."""
    if force:
        return _compiled() if force[0] else None
    _seen[0] += digits
    if _seen[0] < PATIENCE and "numba" not in sys.modules:
        return None
    return _compiled()


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """The array to be read only: each loop is then compiled for one kind, which takes long."""
    view = array.view()
    view.flags.writeable = False
    return view


@cache
def _compiled() -> Loops | None:
    try:
        numba = require("numba", "fast")
    except UsageError:
        return None
    functions = (
        *(_count, _scatter, _unpack),
        *(_cut, _join, _cut_half, _join_half, _numbers, _sizes, _drift),
    )
    try:
        return Loops(*(numba.njit(loop, cache=True, nogil=True) for loop in functions))
    except RuntimeError:  # nowhere to keep compiled code
        return Loops(*(numba.njit(loop, nogil=True) for loop in functions))


def _count(contexts: Any, counts: Any) -> None:
    """How often each context stands in each quarter: four at a time need not wait for another."""
    quarter = len(contexts) >> 2
    for index in range(quarter):
        for part in range(4):
            counts[part, contexts[np.uint64(part * quarter + index)]] += np.uint32(1)
    for index in range(4 * quarter, len(contexts)):
        counts[3, contexts[index]] += np.uint32(1)


def _scatter(contexts: Any, places: Any, gathered: Any, out: Any) -> None:
    """Puts what is in the order of contexts where it belongs; `places` are where each begins."""
    quarter = len(contexts) >> 2
    for index in range(quarter):
        for part in range(4):
            at = np.uint64(part * quarter + index)
            context = contexts[at]
            place = places[part, context]
            out[at] = gathered[np.uint64(place)]
            places[part, context] = place + np.uint32(1)
    for index in range(4 * quarter, len(contexts)):
        context = contexts[index]
        out[index] = gathered[places[3, context]]
        places[3, context] += np.uint32(1)


def _unpack(counts: Any, packed: Any, classes: Any, others: Any, out: Any) -> int:
    """Packed classes and other digits as digits; returns how many of `others` it took.

    `others` has one digit more than there are. It stops where there are too few.
    """
    known = np.uint64(len(others) - 1)
    at = np.uint64(0)
    taken = np.uint64(0)
    place = np.uint64(0)
    for context in range(len(counts)):
        count = np.uint64(counts[context])
        end = at + count
        if not packed[context]:
            if taken + count > known:
                return int(known) + 1
            while at < end:
                out[at] = others[taken]
                at += np.uint64(1)
                taken += np.uint64(1)
        while at < end:
            four = classes[place >> np.uint64(2)]
            one = (four >> np.uint8((place & np.uint64(3)) << np.uint64(1))) & np.uint8(3)
            if taken > known:
                return int(taken)
            other = one == np.uint8(3)
            out[at] = others[taken] if other else np.uint8(one - np.uint8(1))
            taken += np.uint64(other)
            at += np.uint64(1)
            place += np.uint64(1)
    return int(taken)


def _cut(words: Any, base: Any, first: Any, second: Any, third: Any, fourth: Any) -> None:
    """The four planes of balanced digits of float32 words less those of the base."""
    top, eights = np.int32(0x7FFFFFFF), np.uint32(0x80808080)
    for index in range(len(words)):
        high, low = np.int32(words[index]), np.int32(base[index])
        over = np.uint32(high ^ ((high >> np.int32(31)) & top))
        under = np.uint32(low ^ ((low >> np.int32(31)) & top))
        digits = np.uint32((over - under + eights) ^ eights)
        first[index] = np.uint8(digits >> np.uint32(24))
        second[index] = np.uint8(digits >> np.uint32(16))
        third[index] = np.uint8(digits >> np.uint32(8))
        fourth[index] = np.uint8(digits)


def _cut_half(words: Any, base: Any, first: Any, second: Any) -> None:
    """The same of 16-bit floats, whatever their exponent."""
    top, eights = np.int16(0x7FFF), np.uint16(0x8080)
    for index in range(len(words)):
        high, low = np.int16(words[index]), np.int16(base[index])
        over = np.uint16(high ^ ((high >> np.int16(15)) & top))
        under = np.uint16(low ^ ((low >> np.int16(15)) & top))
        digits = np.uint16(np.uint16(over - under + eights) ^ eights)
        first[index] = np.uint8(digits >> np.uint16(8))
        second[index] = np.uint8(digits)


def _join_half(first: Any, second: Any, base: Any, out: Any) -> None:
    """The inverse of `_cut_half`."""
    top, eights = np.int16(0x7FFF), np.uint16(0x8080)
    for index in range(len(out)):
        digits = (np.uint16(first[index]) << np.uint16(8)) | np.uint16(second[index])
        signed = np.int16(base[index])
        folded = np.uint16(signed ^ ((signed >> np.int16(15)) & top))
        word = np.int16(np.uint16((np.uint16(digits) ^ eights) - eights + folded))
        out[index] = np.uint16(word ^ ((word >> np.int16(15)) & top))


def _join(first: Any, second: Any, third: Any, fourth: Any, base: Any, out: Any) -> None:
    """float32 words from the four planes of balanced digits and those of the base."""
    top, eights = np.int32(0x7FFFFFFF), np.uint32(0x80808080)
    for index in range(len(out)):
        high = (np.uint32(first[index]) << np.uint32(24)) | (np.uint32(second[index]) << 16)
        low = (np.uint32(third[index]) << np.uint32(8)) | np.uint32(fourth[index])
        signed = np.int32(base[index])
        folded = np.uint32(signed ^ ((signed >> np.int32(31)) & top))
        word = np.int32(np.uint32((np.uint32(high | low) ^ eights) - eights + folded))
        out[index] = np.uint32(word ^ ((word >> np.int32(31)) & top))


def _numbers(q: Any, above: Any, lo: Any, steps: Any, out: Any) -> None:
    """Context numbers below a plane; `lo` and the greatest step are bytes."""
    for index in range(len(out)):
        step = min(np.uint8(max(q[index], lo) - lo), steps)
        digit = min(np.uint8(above[index] + np.uint8(1)), np.uint8(3))
        out[index] = step | np.uint8(digit << np.uint8(5))


def _sizes(rows: Any, columns: Any, exponents: Any, start: int, most: Any, out: Any) -> None:
    """Expected sizes of differences, in half octaves, of a run of elements."""
    width = len(columns)
    row, column = start // width, start % width
    at = 0
    while at < len(out):
        count = min(width - column, len(out) - at)
        here, there = exponents[at : at + count], out[at : at + count]
        down, across = columns[column : column + count], rows[row]
        for index in range(count):
            four = np.int16(np.int16(here[index]) << np.int16(2))
            size = np.int16(np.int16(across + down[index]) - four) >> np.int16(1)
            there[index] = np.uint8(min(max(size, np.int16(0)), most))
        at += count
        row, column = row + 1, 0


def _drift(grid: Any, flags: Any, steps: Any) -> bool:
    """Adds to flagged rows in place the step for each word's upper half.

    False, with nothing done, if a word is near to infinity.
    """
    for row in range(len(flags)):
        if flags[row]:
            greatest = np.uint32(0)
            for column in range(grid.shape[1]):
                greatest = max(greatest, grid[row, column] & np.uint32(0x7FFFFFFF))
            if greatest >= np.uint32(0x7F000000):
                return False
    for row in range(len(flags)):
        if flags[row]:
            for column in range(grid.shape[1]):
                word = grid[row, column]
                grid[row, column] = np.uint32(word + steps[np.uint64(word >> np.uint32(16))])
    return True
