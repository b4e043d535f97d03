"""Encoding a piece of weights: split, choose codecs, decode again and compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from dlv.canonical import hash_bytes
from dlv.dataclass import dataclass
from dlv.errors import Damaged
from dlv.kinds import Raw
from dlv.pas.coders.codecs import choose, choose_text, codec_of
from dlv.pas.coders.context import AboveCodec
from dlv.pas.coders.zstd import ZstdCodec
from dlv.pas.deltas.difference import DELTAS, Delta, delta_cutter
from dlv.pas.floats import words_in
from dlv.pas.footer import Encoding
from dlv.pas.layouts.segments import (
    SEGMENT,
    Layout,
    element_bytes,
    join_matrix,
    matrix_bytes,
    raw_of,
    split_matrix,
)

Config = Mapping[str, Any]
# "fast" is what commit takes; "small" looks for the smallest.
Effort = Literal["fast", "small"]

SAMPLE = 1 << 16
# Of a sample that becomes larger than this part, the dear levels of zstd find no more.
HOPELESS = 0.97

_ABOVE = AboveCodec()
_CHEAP = tuple(ZstdCodec(effort) for effort in ("literals", "matches"))
_DEAR = tuple(ZstdCodec(effort) for effort in ("high", "ultra"))


def choose_plane(
    plane: Raw, above: Raw | None, effort: Effort, *, shared: bool = False
) -> tuple[dict[str, Any], Raw]:
    """A codec's config, and the plane encoded with it; `above` = the plane above, same elements.

    `shared`: the plane will share a chunk with others, so that no context is at hand.
    """
    if not len(plane):
        return choose_text(plane)
    found = choose(plane)
    if effort == "fast":
        return found
    candidates = [found, *((codec.get_config(), codec.encode(plane)) for codec in _worth(plane))]
    if above is not None and len(above) == len(plane) and not shared:
        candidates.append((_ABOVE.get_config(), _ABOVE.encode(plane, above)))
    return min(candidates, key=lambda pair: len(pair[1]))


def _worth(plane: Raw) -> list[ZstdCodec]:
    """What is worth trying on the whole: the cheap one, and dear ones where these are ahead."""
    view = memoryview(plane)
    size = min(SAMPLE, len(view))
    middle = (len(view) - size) // 2
    sample = view[middle : middle + size]
    cheap = {codec: len(codec.encode(sample)) for codec in _CHEAP}
    best = min(cheap, key=lambda codec: cheap[codec])
    # Noise takes long, and nothing is found in it.
    if len(_DEAR[0].encode(sample)) < cheap[best] * 0.995:
        return [best, *(_DEAR if size == len(view) else _DEAR[:1])]
    return [best] if cheap[best] < size * HOPELESS else []


def decode_plane(config: Config, data: Raw, raw: int, above: Raw | None) -> Raw:
    """The inverse, as a reader does it."""
    if config.get("id") == _ABOVE.codec_id and above is not None:
        return _ABOVE.decode(data, above)
    return codec_of(config).decode(data, raw)


SMALL = 64 << 10  # planes of matrices up to this may share chunks, so have no contexts


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
Emit = Callable[[Part], None]


def encode_elements(layout: Layout, dtype: str, raw: Raw) -> list[Encoded]:
    """The planes of a run of elements, encoded; trusted only because they decode to `raw`."""
    shape = (len(raw) // element_bytes(dtype),)
    planes, side = split_matrix(layout, raw, dtype, shape)
    encoded = [seal(choose(plane), plane) for plane in planes]
    decoded = [codec_of(part.codec).decode(part.data, part.raw) for part in encoded]
    compare(join_matrix(layout, decoded, side, dtype, shape), raw)
    return encoded


def encode_materialised(
    target: Raw,
    dtype: str,
    shape: Sequence[int],
    name: str,
    emit: Emit,
    *,
    layout: Layout,
    effort: Effort = "fast",
) -> Encoding:
    """A matrix by itself; ValueError if the layout cannot hold it."""
    words = words_in(target, dtype)
    side = layout.side_of(target, dtype, shape) if len(words) else b""
    if len(words):
        cutter = layout.cutter(side, dtype, shape)
        _emit_side(side, emit)
        writer = _Planes(layout, dtype, shape, emit, effort)
        for start in range(0, len(words), SEGMENT):
            part = words[start : start + SEGMENT]
            writer.begin(cutter.cut(part, start))
            compare(raw_of(cutter.paste(writer.decoded, start, len(part))), raw_of(part))
            writer.flush()
    return Encoding(name, dtype, tuple(shape), layout.get_config(), None, layout.planes(dtype))


def encode_delta(
    kind: str,
    target: Raw,
    base: Raw,
    dtype: str,
    shape: Sequence[int],
    name: str,
    base_name: str,
    emit: Emit,
    *,
    layout: Layout,
    effort: Effort = "fast",
) -> Encoding:
    """Encoding of a matrix as its difference from a base of the same dtype and shape.

    `kind` is `xor` of words or `sub`, their integer difference without predictor or contexts.
    """
    if kind not in DELTAS:
        raise ValueError(f"unknown kind of delta {kind!r}")
    delta = Delta(kind, base_name, None)
    words, based = words_in(target, dtype), words_in(base, dtype)
    if len(words) != len(based):
        raise ValueError(f"{len(based)} words of a base for {len(words)}")
    side = layout.side_of(target, dtype, shape) if len(words) else b""
    if len(words):
        cutter = delta_cutter(delta.kind, layout, side, dtype, shape)
        spare = np.empty(min(SEGMENT, len(words)), words.dtype)
        _emit_side(side, emit)
        writer = _Planes(layout, dtype, shape, emit, effort)
        for start in range(0, len(words), SEGMENT):
            part, under = words[start : start + SEGMENT], based[start : start + SEGMENT]
            writer.begin(cutter.cut(part, under, start))
            again = spare[: len(part)]
            cutter.paste(writer.decoded, under, start, again)
            compare(raw_of(again), raw_of(part))
            writer.flush()
    return Encoding(
        name, dtype, tuple(shape), layout.get_config(), delta.get_config(), layout.planes(dtype)
    )


class _Planes:
    """The planes of one segment after the other: encoded, decoded again, handed over."""

    def __init__(
        self, layout: Layout, dtype: str, shape: Sequence[int], emit: Emit, effort: Effort
    ) -> None:
        planes = layout.planes(dtype)
        lengths = [layout.plane_bytes(plane, dtype, shape) for plane in range(planes)]
        # Tails and halves of bytes are no bytes of the elements, so have no contexts.
        self._uneven = {plane for plane, length in enumerate(lengths) if length is None}
        self._emit = emit
        self._effort = effort
        self._shared = (matrix_bytes(dtype, shape) or 0) <= SMALL
        self._ends = [0] * planes
        self._encoded: list[Encoded] = []
        self._waiting: list[list[Part]] = [[] for _ in range(planes)]
        self.decoded: list[Raw] = []

    def begin(self, planes: Sequence[Raw]) -> None:
        self._encoded, self.decoded = [], []
        above: Raw | None = None
        for index, plane in enumerate(planes):
            alone = self._shared or index in self._uneven
            codec, data = choose_plane(plane, above, self._effort, shared=alone)
            encoded = seal((codec, data), plane)
            self._encoded.append(encoded)
            self.decoded.append(decode_plane(encoded.codec, encoded.data, encoded.raw, above))
            above = plane

    def flush(self) -> None:
        """Hand over what was compared. A plane that is empty so far waits for what follows."""
        for plane, encoded in enumerate(self._encoded):
            start = self._ends[plane]
            self._ends[plane] += encoded.raw
            waiting = self._waiting[plane]
            waiting.append(Part("plane", plane, start, encoded.raw, encoded))
            if self._ends[plane]:
                for part in waiting:
                    self._emit(part)
                waiting.clear()


def _emit_side(side: bytes, emit: Emit) -> None:
    if side:
        emit(Part("side", None, 0, len(side), encode_object(side)[0]))


def encode_object(raw: Raw) -> list[Encoded]:
    """A named object, or a part of one, as a single chunk."""
    encoded = seal(choose_text(raw), raw)
    compare(codec_of(encoded.codec).decode(encoded.data, encoded.raw), raw)
    return [encoded]


def seal(chosen: tuple[dict[str, Any], Raw], plane: Raw) -> Encoded:
    """A chunk of a codec's config and what it made of a plane."""
    codec, data = chosen
    if data is plane and not isinstance(data, bytes):
        data = bytes(data)  # the caller's buffer may change, and is the caller's to free
    return Encoded(codec, data, len(plane), hash_bytes(data))


def compare(decoded: Raw, raw: Raw) -> None:
    """Refuse to store what did not decode to the bits that it was made from."""
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
