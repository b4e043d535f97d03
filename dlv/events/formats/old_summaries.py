"""Images, audio and histograms as they were before everything was a tensor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlv.events.formats.tensors import STRING, Tensor
from dlv.events.formats.wire import BYTES, FIXED64, VARINT, Malformed, double, fields, signed32

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
