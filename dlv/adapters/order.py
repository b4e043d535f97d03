"""Element order of raw bytes, without numpy: Fortran to C and back, big-endian to little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from dlv.kinds import Raw

_FORMATS: dict[int, Literal["Q", "I", "H", "B"]] = {8: "Q", 4: "I", 2: "H", 1: "B"}


def transpose(data: Raw, shape: Sequence[int], item: int) -> Raw:
    """C order -> Fortran order of an array of `shape`; the way back takes `shape` reversed."""
    sides = [side for side in shape if side != 1]
    if len(sides) < 2 or not len(data):
        return data
    word = next(size for size in _FORMATS if item % size == 0)
    words = item // word
    view = memoryview(data).cast("B")
    if words == 1:
        return view.cast(_FORMATS[word], sides).tobytes("F")
    # Items wider than any format (complex128, text) move word by word.
    columns = view.cast(_FORMATS[word])
    result = bytearray(len(view))
    target = memoryview(result).cast(_FORMATS[word])
    for index in range(words):
        column = memoryview(columns[index::words].tobytes()).cast(_FORMATS[word], sides)
        target[index::words] = memoryview(column.tobytes("F")).cast(_FORMATS[word])
    return result


def swap(data: Raw, unit: int) -> Raw:
    """Reverse the bytes of every `unit`; its own inverse."""
    if unit == 1:
        return data
    result = bytearray(len(data))
    for index in range(unit):
        result[index::unit] = data[unit - 1 - index :: unit]
    return result
