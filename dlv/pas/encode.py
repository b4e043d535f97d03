"""Encoding a piece of weights: split, choose codecs, decode again and compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlv.canonical import hash_bytes
from dlv.errors import Damaged
from dlv.pas.codecs import choose, choose_text, codec_of
from dlv.pas.segments import Layout, element_bytes

Raw = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Encoded:
    """One chunk's worth of encoded bytes."""

    codec: dict[str, Any]
    data: Raw
    raw: int
    blake3: str


@dataclass(frozen=True)
class Part:
    """One encoded piece of a matrix: `count` bytes of a plane or of the side data."""

    kind: str  # "plane" or "side"
    plane: int | None
    start: int
    count: int
    encoded: Encoded


# Takes each part as soon as it is made; whoever gives it decides what waits and where.
Put = Callable[[Part], None]


def encode_elements(layout: Layout, dtype: str, raw: Raw) -> list[Encoded]:
    """The planes of a run of elements, encoded; trusted only because they decode to `raw`."""
    shape = (len(raw) // element_bytes(dtype),)
    planes, side = layout.split(raw, dtype, shape)
    encoded = [_seal(choose(plane), plane, raw) for plane in planes]
    decoded = [codec_of(part.codec).decode(part.data, part.raw) for part in encoded]
    _compare(layout.join(decoded, side, dtype, shape), raw)
    return encoded


def encode_object(raw: Raw) -> list[Encoded]:
    """A named object, or a part of one, as a single chunk."""
    encoded = _seal(choose_text(raw), raw, raw)
    _compare(codec_of(encoded.codec).decode(encoded.data, encoded.raw), raw)
    return [encoded]


def _seal(chosen: tuple[dict[str, Any], Raw], plane: Raw, raw: Raw) -> Encoded:
    codec, data = chosen
    if data is raw and not isinstance(data, bytes):
        data = bytes(data)  # the caller's buffer may change, and is the caller's to free
    return Encoded(codec, data, len(plane), hash_bytes(data))


def _compare(decoded: Raw, raw: Raw) -> None:
    if not same_bytes(decoded, raw):
        raise Damaged(
            "encoded weights did not decode to the same bits, so nothing was stored",
            why="the memory of this machine is faulty, or dlv has an error",
            hint="dlv doctor",
        )


def same_bytes(left: Raw, right: Raw) -> bool:
    """Bitwise equality at the speed of memory, which `memoryview.__eq__` is far from."""
    if len(left) != len(right):
        return False
    a, b = np.frombuffer(left, np.uint8), np.frombuffer(right, np.uint8)
    words = len(a) // 8 * 8
    return bool(
        np.array_equal(a[:words].view(np.uint64), b[:words].view(np.uint64))
        and np.array_equal(a[words:], b[words:])
    )
