"""TensorProto: its dtype, shape and elements, as bytes that do not depend on the machine.

Images, audio and histograms of older summaries, from before everything was a tensor, become
tensors here.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.dataclass import dataclass
from dlv.events.formats.summaries import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    Malformed,
    double,
    fields,
    signed,
    signed32,
    varint,
)

FLOATS = {"float16": "<f2", "float32": "<f4", "float64": "<f8"}
STRING = "string"
MOST_REPEATED = 16 << 20  # bytes that the repeated elements of an event may grow to
MOST_AXES = 32


class Unusable(ValueError):
    """A tensor that was read, but is none: elements that do not fill its shape, no known dtype."""


@dataclass(frozen=True)
class Tensor:
    """`data`: little-endian elements, C order; `strings` instead for dtype "string"."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes = b""
    strings: tuple[bytes, ...] = ()

    def framed(self) -> bytes:
        """The elements as bytes; strings as u32 length and bytes each."""
        if self.dtype != STRING:
            return self.data
        return b"".join(struct.pack("<I", len(text)) + text for text in self.strings)


def strings_of(data: bytes) -> list[bytes]:
    """The inverse of `framed` for strings."""
    texts, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        texts.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return texts


@dataclass(frozen=True)
class _Kind:
    name: str
    layout: str  # of numpy, of what is kept
    number: int  # of the field that holds elements one by one
    element: str  # how they are written there
    bits: str = ""  # for 16 bits kept in a varint: their layout


_KINDS = {
    1: _Kind("float32", "<f4", 5, "<f4"),
    2: _Kind("float64", "<f8", 6, "<f8"),
    3: _Kind("int32", "<i4", 7, "varint"),
    4: _Kind("uint8", "|u1", 7, "varint"),
    5: _Kind("int16", "<i2", 7, "varint"),
    6: _Kind("int8", "|i1", 7, "varint"),
    7: _Kind("string", "", 8, "bytes"),
    8: _Kind("complex64", "<c8", 9, "<f4"),
    9: _Kind("int64", "<i8", 10, "varint"),
    10: _Kind("bool", "|b1", 11, "varint"),
    11: _Kind("int8", "|i1", 7, "varint"),  # quantised: the numbers as they stand
    12: _Kind("uint8", "|u1", 7, "varint"),
    13: _Kind("int32", "<i4", 7, "varint"),
    14: _Kind("float32", "<f4", 13, "varint", "bfloat16"),
    15: _Kind("int16", "<i2", 7, "varint"),
    16: _Kind("uint16", "<u2", 7, "varint"),
    17: _Kind("uint16", "<u2", 7, "varint"),
    18: _Kind("complex128", "<c16", 12, "<f8"),
    19: _Kind("float16", "<f2", 13, "varint", "half"),
    22: _Kind("uint32", "<u4", 16, "varint"),
    23: _Kind("uint64", "<u8", 17, "varint"),
}
_REFERENCES = 100  # a dtype of a variable is that of its value and this
_WIRE = {"<f4": FIXED32, "<f8": FIXED64, "varint": VARINT, "bytes": BYTES}


@dataclass
class Parsed:
    """The fields of a TensorProto, before anything is made of its elements."""

    data: bytes
    dtype: int = 0
    shape: list[int] = field(default_factory=list)
    content: tuple[int, int] = (0, 0)
    # field number -> (wire type, value or start, end) in order
    elements: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)

    def strings(self) -> list[bytes]:
        found = self.elements.get(8, [])
        return [self.data[a:b] for kind, a, b in found if kind == BYTES]


def parse(data: bytes) -> Parsed:
    """Walk a TensorProto."""
    parsed = Parsed(data)
    for number, kind, a, b in fields(data):
        if number == 1 and kind == VARINT:
            parsed.dtype = a & 0xFFFFFFFF
        elif number == 2 and kind == BYTES:
            parsed.shape += _dimensions(data, a, b)
        elif number == 4 and kind == BYTES:
            parsed.content = (a, b)
        elif number >= 5:
            parsed.elements.setdefault(number, []).append((kind, a, b))
    return parsed


def _dimensions(data: bytes, start: int, end: int) -> list[int]:
    sizes = []
    for number, kind, a, b in fields(data, start, end):
        if number == 2 and kind == BYTES:
            size = 0
            for inner, inner_kind, value, _ in fields(data, a, b):
                if inner == 1 and inner_kind == VARINT:
                    size = signed(value)
            sizes.append(size)
    return sizes


def tensor(
    parsed: Parsed,
    *,
    strings: list[bytes] | None = None,
    shape: list[int] | None = None,
    room: int = MOST_REPEATED,
) -> Tensor:
    """What TensorBoard's make_ndarray would make of it, or Unusable."""
    known = parsed.dtype - _REFERENCES if parsed.dtype > _REFERENCES else parsed.dtype
    kind = _KINDS.get(known)
    if kind is None:
        raise Unusable(f"its dtype, number {parsed.dtype}, is unknown")
    sizes = tuple(shape if shape is not None else parsed.shape)
    if len(sizes) > MOST_AXES:
        raise Unusable(f"it has {len(sizes)} axes, the limit is {MOST_AXES}")
    if any(size < 0 for size in sizes):
        raise Unusable("a size in its shape is negative")
    count = math.prod(sizes)
    start, end = parsed.content
    if kind.name == STRING:
        texts = parsed.strings() if strings is None else strings
        if end > start:
            raise Unusable("its strings are in tensor_content")
        if len(texts) == 1 and count != 1:
            _affordable(count, len(texts[0]) + 64, room)
            texts = texts * count
        if len(texts) != count:
            raise _misfit(len(texts), sizes)
        return Tensor(STRING, sizes, strings=tuple(texts))
    if end > start:
        data = parsed.data[start:end]
        layout = np.dtype("<u2" if kind.bits else kind.layout)
        if len(data) != count * layout.itemsize:
            raise Unusable(f"{len(data)} bytes of content do not fill the shape {list(sizes)}")
        return Tensor(kind.name, sizes, _widened(np.frombuffer(data, layout), kind).tobytes())
    found = parsed.elements.get(kind.number, [])
    array = _widened(_elements(parsed.data, found, kind), kind)
    if len(array) == 1 and count != 1:
        _affordable(count, array.itemsize, room)
        array = np.repeat(array, count)
    if len(array) != count:
        raise _misfit(len(array), sizes)
    return Tensor(kind.name, sizes, array.tobytes())


def _misfit(count: int, sizes: Sequence[int]) -> Unusable:
    return Unusable(f"{count} elements do not fill the shape {list(sizes)}")


def _affordable(count: int, size: int, room: int) -> None:
    if count * size > room:
        raise Unusable(f"one element represents {count}, more than {MOST_REPEATED >> 20} MiB")


def _elements(data: bytes, found: list[tuple[int, int, int]], kind: _Kind) -> NDArray[Any]:
    """Elements written one by one, packed or not."""
    if kind.element == "varint":
        return _integers(data, found, kind)
    size, wire = np.dtype(kind.element).itemsize, _WIRE[kind.element]
    parts: list[bytes] = []
    for each, a, b in found:
        if each == BYTES:
            if (b - a) % size:
                raise Malformed("packed numbers are cut off")
            parts.append(data[a:b])
        elif each == wire:
            parts.append(a.to_bytes(size, "little"))
    numbers = np.frombuffer(b"".join(parts), kind.element)
    if kind.name.startswith("complex"):
        return numbers[: len(numbers) // 2 * 2].view(kind.layout)
    return numbers


def _integers(data: bytes, parts: list[tuple[int, int, int]], kind: _Kind) -> NDArray[Any]:
    layout = np.dtype("<u2" if kind.bits else kind.layout)
    cut = _cut(kind.number)
    values: list[int] = []
    for each, a, b in parts:
        if each == VARINT:
            values.append(cut(a))
        elif each == BYTES:
            while a < b:
                value, a = varint(data, a, b)
                values.append(cut(value))
    if layout.kind != "b" and values:
        range_of = np.iinfo(layout)
        if min(values) < range_of.min or max(values) > range_of.max:
            raise Unusable(f"an element does not fit {kind.name}")
    return np.array(values, layout)


def _cut(number: int) -> Callable[[int], int]:
    """What a varint of the field stands for."""
    if number in (7, 13):  # int32
        return lambda value: ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
    if number == 10:  # int64
        return signed
    if number == 11:  # bool
        return bool
    if number == 16:  # uint32
        return lambda value: value & 0xFFFFFFFF
    return int


def _widened(array: NDArray[Any], kind: _Kind) -> NDArray[Any]:
    if kind.bits == "bfloat16":
        return (array.astype("<u4") << 16).view("<f4")
    return array.view("<f2") if kind.bits else array


# Plugin data of TensorBoard for what was converted: `converted_to_tensor`, `encoding` WAV.
IMAGE_CONTENT = b"\x10\x01"
AUDIO_CONTENT = b"\x10\x0b\x18\x01"


def image(data: bytes) -> Tensor:
    """Width and height as digits, then the encoded image."""
    height = width = 0
    encoded = b""
    for number, kind, a, b in fields(data):
        if number == 1 and kind == VARINT:
            height = signed32(a)
        elif number == 2 and kind == VARINT:
            width = signed32(a)
        elif number == 4 and kind == BYTES:
            encoded = data[a:b]
    return Tensor(STRING, (3,), strings=(b"%d" % width, b"%d" % height, encoded))


def audio(data: bytes, *, labelled: bool) -> Tensor:
    """The encoded sound; `labelled`: with an empty label, as where labels are not dropped."""
    encoded = b""
    for number, kind, a, b in fields(data):
        if number == 4 and kind == BYTES:
            encoded = data[a:b]
    if labelled:
        return Tensor(STRING, (1, 2), strings=(encoded, b""))
    return Tensor(STRING, (1,), strings=(encoded,))


@dataclass(frozen=True)
class OldHistogram:
    """HistogramProto: its buckets end at `limits`, the first begins below all numbers."""

    min: float
    max: float
    num: float
    sum: float
    sum_squares: float
    limits: NDArray[np.float64]
    counts: NDArray[np.float64]

    def packed(self) -> bytes:
        """As a point keeps it: the five numbers, limits, counts, all little-endian float64."""
        head = np.array([self.min, self.max, self.num, self.sum, self.sum_squares], "<f8")
        return head.tobytes() + self.limits.tobytes() + self.counts.tobytes()

    @classmethod
    def unpacked(cls, data: bytes) -> OldHistogram:
        numbers = np.frombuffer(data, "<f8")
        count = (len(numbers) - 5) // 2
        least, most, num, total, squares = map(float, numbers[:5])
        limits, counts = numbers[5 : 5 + count], numbers[5 + count :]
        return cls(least, most, num, total, squares, limits, counts)


def parse_histogram(data: bytes) -> OldHistogram:
    single = [0.0] * 6
    lists: dict[int, list[bytes]] = {6: [], 7: []}
    for number, kind, a, b in fields(data):
        if 1 <= number <= 5 and kind == FIXED64:
            single[number] = double(a)
        elif number in lists and kind == FIXED64:
            lists[number].append(a.to_bytes(8, "little"))
        elif number in lists and kind == BYTES:
            if (b - a) % 8:
                raise Malformed("packed numbers are cut off")
            lists[number].append(data[a:b])
    limits, counts = (np.frombuffer(b"".join(lists[number]), "<f8") for number in (6, 7))
    if len(limits) != len(counts):
        # No writer does so; there is room for one limit a bucket where it is kept.
        missing = np.full(max(0, len(counts) - len(limits)), single[2])
        limits = np.concatenate((limits[: len(counts)], missing))
    _, least, most, num, total, squares = single
    return OldHistogram(least, most, num, total, squares, limits, counts)


def histogram(data: bytes) -> tuple[Tensor, bytes]:
    """Rows of left edge, right edge and count, and what the rows leave out.

    The outer limits may be the ends of float64: empty buckets outside are dropped, and the
    outer edges are the least and the greatest number.
    """
    old = parse_histogram(data)
    filled = np.flatnonzero(old.counts > 0)
    if not len(filled):
        return Tensor("float32", (0, 3)), old.packed()
    first, last = int(filled[0]), int(filled[-1])
    inner = old.limits[first:last]
    rows = np.empty((last - first + 1, 3), "<f4")
    rows[0, 0], rows[1:, 0] = old.min, inner
    rows[-1, 1], rows[:-1, 1] = old.max, inner
    rows[:, 2] = old.counts[first : last + 1]
    return Tensor("float32", rows.shape, rows.tobytes()), old.packed()
