"""Codecs of integers, by pcodec: `pco` in their own order, `context-pco` sorted by context.

A plane of the layout `units` holds numbers of 1, 2, 4 or 8 bytes. `context-pco` puts them in the
order of their contexts, cuts that into runs of some thousand, and codes each with bins of its own:
what stands together is alike. The reader finds order and runs from the contexts alone.

Stored: pcodec's header; then for each run the u32 length of what follows, and pcodec's metadata
and one page of it.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.errors import Damaged
from dlv.kinds import Bytes, Raw
from dlv.pas.coders.context import MAX_DIGITS, Places, places_of

RUN = 1 << 13  # numbers that a run of contexts has at least
LEVEL = 8  # of pcodec: how many bins it tries
_SIZE = struct.Struct("<I")
_HEADER_BYTES = 2
# Bytes of a number -> what pcodec takes it for. Single bytes go in as numbers of two.
_TYPES = {1: ("i1", "<i2"), 2: ("<i2", "<i2"), 4: ("<i4", "<i4"), 8: ("<i8", "<i8")}
UNITS = frozenset(_TYPES)

Numbers = NDArray[np.signedinteger[Any]]


def runs_of(counts: NDArray[np.int64]) -> list[int]:
    """Where runs end: after a context, as soon as a run has `RUN` numbers; the last has more."""
    ends: list[int] = []
    last = end = 0
    for count in counts.tolist():
        end += count
        if end - last >= RUN:
            ends.append(end)
            last = end
    if last < end:
        if ends and end - last < RUN:
            ends.pop()
        ends.append(end)
    return ends


@cache
def _pcodec(level: int) -> tuple[Any, Any]:
    """The compressor and its settings: it looks for no floats in disguise, and no differences."""
    from pcodec import ChunkConfig, DeltaSpec, ModeSpec, PagingSpec, wrapped

    config = ChunkConfig(
        compression_level=level,
        mode_spec=ModeSpec.classic(),
        delta_spec=DeltaSpec.no_op(),
        paging_spec=PagingSpec.equal_pages_up_to(MAX_DIGITS),
    )
    return wrapped.FileCompressor(), config


def encode_runs(numbers: Numbers, ends: list[int], level: int) -> bytes:
    """Encode each run separately; single bytes must be widened before."""
    compressor, config = _pcodec(level)
    parts = [compressor.write_header()]
    start = 0
    for end in ends:
        chunk = compressor.chunk_compressor(numbers[start:end], config)
        meta, page = chunk.write_meta(), chunk.write_page(0)
        parts += [_SIZE.pack(len(meta) + len(page)), meta, page]
        start = end
    return b"".join(parts)


def decode_runs(data: Raw, ends: list[int], dtype: str) -> Numbers:
    """Decode all runs; raise Damaged if data and runs do not match."""
    from pcodec import wrapped

    out: Numbers = np.empty(ends[-1] if ends else 0, dtype)
    kind = f"i{8 * out.itemsize}"
    view = memoryview(data)
    try:
        decompressor, at = wrapped.FileDecompressor.new(bytes(view[: _HEADER_BYTES + 1]))
        start = 0
        for end in ends:
            (size,) = _SIZE.unpack_from(view, at)
            at += _SIZE.size
            part = bytes(view[at : at + size])
            run, used = decompressor.chunk_decompressor(part, kind)
            progress, read = run.read_page_into(part[used:], end - start, out[start:end])
            if len(part) != size or used + read != size or not progress.finished:
                raise Damaged("a run of numbers has the wrong length")
            at += size
            start = end
    except (RuntimeError, struct.error, TypeError) as error:
        raise Damaged("a chunk of numbers does not decode", why=str(error)) from error
    if at != len(view):
        raise Damaged("a chunk of numbers has bytes left over")
    return out


class NumbersCodec:
    """Numbers as they stand."""

    codec_id = "pco"

    def __init__(self, unit: int, level: int = LEVEL) -> None:
        self.unit = unit
        self._level = level

    def get_config(self) -> dict[str, Any]:
        return {"id": self.codec_id, "bytes": self.unit}

    def encode(self, data: Raw) -> bytes:
        narrow, wide = _TYPES[self.unit]
        numbers = np.frombuffer(data, narrow).astype(wide, copy=False)
        ends = [*range(MAX_DIGITS, len(numbers), MAX_DIGITS), len(numbers)]
        return encode_runs(numbers, ends, self._level)

    def decode(self, data: Raw, raw_length: int) -> Raw:
        count, odd = divmod(raw_length, self.unit)
        if odd or not count:
            raise Damaged(f"a chunk of numbers of {self.unit} bytes has {raw_length} of them")
        ends = [*range(MAX_DIGITS, count, MAX_DIGITS), count]
        return _narrow(decode_runs(data, ends, _TYPES[self.unit][1]), self.unit)


class ContextNumbers:
    """Numbers in the order of their contexts."""

    codec_id = "context-pco"
    lo = 0

    def __init__(self, unit: int, scale: str, level: int = LEVEL) -> None:
        self.unit = unit
        self.scale = scale  # hash of the matrix whose exponents count
        self._level = level

    def get_config(self) -> dict[str, Any]:
        return {"id": self.codec_id, "bytes": self.unit, "scale": self.scale}

    def encode_sorted(self, gathered: NDArray[Any], ends: list[int]) -> bytes:
        """Numbers that are in the order of their contexts already, and where runs end."""
        narrow, wide = _TYPES[self.unit]
        numbers = gathered.view(narrow).astype(wide, copy=False)
        return encode_runs(numbers, ends, self._level)

    def decode(self, data: Raw, contexts: Bytes) -> Raw:
        """As many numbers as there are contexts; Damaged if it holds others."""
        return self.decode_sorted(data, places_of(contexts))

    def decode_sorted(self, data: Raw, places: Places) -> Raw:
        """Decode with the order of the contexts already worked out."""
        numbers = decode_runs(data, runs_of(places.counts), _TYPES[self.unit][1])
        return places.scatter(np.frombuffer(_narrow(numbers, self.unit), f"<u{self.unit}"))


def _narrow(numbers: Numbers, unit: int) -> Raw:
    if unit > 1:
        return numbers.data.cast("B")
    narrow = numbers.astype(np.int8)
    if not np.array_equal(narrow, numbers):
        raise Damaged("a number does not fit into a byte")
    return narrow.data.cast("B")
