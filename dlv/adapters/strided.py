"""Strided elements in C order: the innermost loop is a slice of a memoryview, not Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from dlv.kinds import Raw


def transpose(data: Raw, shape: Sequence[int], item: int) -> Raw:
    """C order -> Fortran order of an array of `shape`; the way back takes `shape` reversed."""
    sides = [side for side in shape if side != 1]
    if len(sides) < 2 or not len(data):
        return data
    word = math.gcd(item, 8)
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


_FORMATS: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}


def normal_form(
    shape: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The same elements in the same order with as few axes as possible; a scalar has none."""
    sizes: list[int] = []
    steps: list[int] = []
    for size, step in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if sizes and steps[-1] == step * size:
            sizes[-1] *= size
            steps[-1] = step
        else:
            sizes.append(size)
            steps.append(step)
    return tuple(sizes), tuple(steps)


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    return 0 in shape or normal_form(shape, strides)[1] in ((), (1,))


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements of storage lie between the first and the last, both included."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))


def gather(
    data: bytes | bytearray, item: int, shape: Sequence[int], strides: Sequence[int]
) -> bytearray:
    """The elements of a view that begins at the start of `data`, in C order."""
    sizes, steps = normal_form(shape, strides)
    out = bytearray(item * math.prod(sizes))
    if not out:
        return out
    word = math.gcd(item, 8)
    if word != item:  # 16-byte elements: two words each
        sizes, steps = (*sizes, item // word), (*(step * (item // word) for step in steps), 1)
    source = memoryview(data)[: len(data) // word * word].cast(_FORMATS[word])
    target = memoryview(out).cast(_FORMATS[word])
    if not sizes:
        target[:] = source[:1]
        return out
    # Row-major steps of the result; the longest axis is the one that is copied by slices.
    placed = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    longest = max(range(len(sizes)), key=sizes.__getitem__)
    outer = [axis for axis in range(len(sizes)) if axis != longest]
    size, step, place = sizes[longest], steps[longest], placed[longest]
    index = [0] * len(outer)
    start = goal = 0
    while True:
        end = goal + (size - 1) * place + 1
        if step:
            target[goal:end:place] = source[start : start + (size - 1) * step + 1 : step]
        else:
            repeated = memoryview(source[start : start + 1].tobytes() * size)
            target[goal:end:place] = repeated.cast(_FORMATS[word])
        for position in range(len(outer) - 1, -1, -1):
            axis = outer[position]
            index[position] += 1
            start += steps[axis]
            goal += placed[axis]
            if index[position] < sizes[axis]:
                break
            start -= steps[axis] * sizes[axis]
            goal -= placed[axis] * sizes[axis]
            index[position] = 0
        else:
            return out
