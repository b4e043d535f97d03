"""Codecs of digits whose contexts the reader knows.

`context-zstd`, `context-packed` and `context-above` put all digits of a context side by side, as
zstd adapts its tables to what stands together; blocks end where contexts end. The reader finds
the order from the contexts alone.

`context-rans` is an interleaved range coder with a table of frequencies per context: no command
writes it, what has it is read. numpy takes the 64 states together, one step for each. Digit i is
on state i mod 64. A state is 32 bits, at least 2^16, where it begins and must end; a step takes 12
bits off it, and 16 come in from the words when it falls below 2^16. Stored: the 64 states and then
the words, all little-endian, in the order in which they are read.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, Protocol

import numpy as np
import zstandard
from numpy.typing import NDArray

from dlv.canonical import hash_bytes
from dlv.errors import Damaged
from dlv.kinds import Bytes, Raw
from dlv.pas.coders import compiled
from dlv.pas.coders.contexts import CONTEXTS, classes
from dlv.pas.coders.zstd import EFFORTS, decompress

_BITMAP = CONTEXTS // 8
# What a block costs beyond its bytes: three of header, some more for a Huffman table.
BLOCK_COST = 24
_compressors = threading.local()


def zstd_blocks(data: Bytes, counts: Sequence[int] | NDArray[np.int64]) -> bytes:
    """`data` as one frame; neighbours among the runs of `counts` bytes share a block if alike."""
    compressor = getattr(_compressors, "literals", None)
    if compressor is None:
        compressor = zstandard.ZstdCompressor(compression_params=EFFORTS["literals"])
        _compressors.literals = compressor
    stream = compressor.compressobj(size=len(data))
    view = np.ascontiguousarray(data).data
    parts = []
    start = 0
    for stop in _ends(data, np.asarray(counts, np.int64))[:-1]:
        parts.append(stream.compress(view[start:stop]))
        parts.append(stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
        start = stop
    parts.append(stream.compress(view[start:]))
    parts.append(stream.flush())
    return b"".join(parts)


def _ends(data: Bytes, counts: NDArray[np.int64]) -> list[int]:
    """Where blocks end: at ends of runs, as few as pay for themselves."""
    ends = [int(end) for end in np.cumsum(counts)[counts > 0]]
    if not ends or ends[-1] < len(data):
        ends.append(len(data))  # the last byte of packed classes may belong to no run
    if len(ends) == 1:
        return ends
    table = _histograms(data, ends)
    lengths = np.diff(ends, prepend=0)
    logs = _logs(len(data).bit_length())
    single = _costs(table, lengths, logs)
    both = _costs(table[:-1] + table[1:], lengths[:-1] + lengths[1:], logs)
    histograms = list(table)
    sizes: list[int] = lengths.tolist()
    costs: list[float] = single.tolist()

    def gain(i: int) -> float:
        """What joining a block with the next adds; below 0 if they are cheaper together."""
        joined = _cost(histograms[i] + histograms[i + 1], sizes[i] + sizes[i + 1], logs)
        return joined - costs[i] - costs[i + 1]

    gains: list[float] = (both - single[:-1] - single[1:]).tolist()
    # Greedily: the neighbours that are cheapest together, until none are cheaper than apart.
    while gains and (least := min(gains)) < 0:
        best = gains.index(least)
        histograms[best : best + 2] = [histograms[best] + histograms[best + 1]]
        costs[best : best + 2] = [costs[best] + costs[best + 1] + least]
        sizes[best : best + 2] = [sizes[best] + sizes[best + 1]]
        del ends[best], gains[best]
        for i in range(max(0, best - 1), min(best + 1, len(gains))):
            gains[i] = gain(i)
    return ends


@cache
def _logs(bits: int) -> NDArray[np.float64]:
    """n * log2(n) of all n below 2 to the power of `bits`; to be looked up, logarithms are slow."""
    whole = np.arange(1 << bits, dtype=np.float64)
    logs: NDArray[np.float64] = whole * np.log2(np.maximum(whole, 1.0))
    return logs


def _histograms(data: Bytes, ends: Sequence[int]) -> NDArray[np.int64]:
    """How often each byte stands in each run."""
    runs = zip([0, *ends], ends, strict=False)
    return np.stack([np.bincount(data[start:end], minlength=256) for start, end in runs])


def _cost(histogram: NDArray[np.int64], total: int, logs: NDArray[np.float64]) -> float:
    """Bytes that a Huffman code of one block would take, near enough."""
    if not total:
        return 0.0
    used = int(np.count_nonzero(histogram))
    bits = float(logs[total]) - float(np.add.reduce(logs.take(histogram)))
    return min(max(bits, total if used > 1 else 0) / 8 + used / 2, total) + BLOCK_COST


def _costs(
    histograms: NDArray[np.int64], totals: NDArray[np.int64], logs: NDArray[np.float64]
) -> NDArray[np.float64]:
    """`_cost` of many, to the last bit."""
    used = np.count_nonzero(histograms, axis=1)
    bits = logs[totals] - np.add.reduce(logs.take(histograms), axis=1)
    found = np.minimum(np.maximum(bits, np.where(used > 1, totals, 0)) / 8 + used / 2, totals)
    return np.where(totals > 0, found + BLOCK_COST, 0.0)


MAX_DIGITS = 1 << 20
# From this share of its most frequent class on, a context is packed: Huffman codes need a
# whole bit per byte, classes a quarter of one.
PACK = 0.5
_HEAD = struct.Struct("<I")
_MASK = np.uint32(MAX_DIGITS - 1)
_SAMPLED = 1 << 10
_OFTEN = 0.5


class ContextCodec(Protocol):
    """Entropy decoding of digits whose contexts the reader knows."""

    codec_id: str
    lo: int
    scale: str  # hash of the matrix whose exponents count

    def get_config(self) -> dict[str, Any]: ...

    def decode(self, data: Raw, contexts: Bytes) -> Raw:
        """As many digits as there are contexts; Damaged if it holds others."""
        ...


def _tally(contexts: Bytes) -> NDArray[np.int64]:
    """How often each byte stands there: two at a time, which takes half as long."""
    even = len(contexts) & ~1
    pairs = np.bincount(np.ascontiguousarray(contexts[:even]).view(np.uint16), minlength=1 << 16)
    counts: NDArray[np.int64] = pairs.reshape(256, 256).sum(0) + pairs.reshape(256, 256).sum(1)
    if even < len(contexts):
        counts[contexts[-1]] += 1
    return counts


class Order:
    """Digits stably sorted by context; worked out once for both codecs."""

    def __init__(self, contexts: Bytes, limit: int = CONTEXTS) -> None:
        if len(contexts) > MAX_DIGITS:
            raise Damaged(f"a context chunk holds {len(contexts)} digits, not <= {MAX_DIGITS}")
        counts = _tally(contexts)
        if counts[limit:].any():
            raise Damaged(f"a context is not below {limit}")
        self.counts: NDArray[np.int64] = counts[:limit]
        # Of single bytes numpy's stable sort is a counting sort.
        self.index: NDArray[np.intp] = np.argsort(contexts, kind="stable")

    def gather(self, digits: Raw, unit: int = 1) -> NDArray[Any]:
        """Numbers of `unit` bytes each."""
        return np.frombuffer(digits, f"<u{unit}").take(self.index)

    def scatter(self, gathered: NDArray[Any]) -> Raw:
        out = np.empty(len(self.index), gathered.dtype)
        out[self.index] = gathered
        return out.data.cast("B")


class Places(Protocol):
    """Where digits belong that are in the order of their contexts."""

    @property
    def counts(self) -> NDArray[np.int64]:
        """Digits of each context."""
        ...

    def scatter(self, gathered: NDArray[Any]) -> Raw: ...


class _Counted:
    """The same by compiled loops, which need no sort."""

    def __init__(self, contexts: Bytes, limit: int, loops: compiled.Loops) -> None:
        if len(contexts) > MAX_DIGITS:
            raise Damaged(f"a context chunk holds {len(contexts)} digits, not <= {MAX_DIGITS}")
        counts = np.zeros((4, 256), np.uint32)
        loops.count(compiled.frozen(contexts), counts)
        if counts[:, limit:].any():
            raise Damaged(f"a context is not below {limit}")
        self.counts: NDArray[np.int64] = counts[:, :limit].sum(0, dtype=np.int64)
        ordered = counts.T.ravel()
        places = np.cumsum(ordered, dtype=np.uint32) - ordered
        self._places = np.ascontiguousarray(places.reshape(256, 4).T)
        self._contexts = compiled.frozen(contexts)
        self._loops = loops

    def scatter(self, gathered: NDArray[Any]) -> Raw:
        out = np.empty(len(self._contexts), gathered.dtype)
        given = self._contexts, self._places.copy(), compiled.frozen(gathered)
        self._loops.scatter(*given, out)
        return out.data.cast("B")


def places_of(contexts: Bytes, limit: int = CONTEXTS) -> Places:
    """For decoding: where the digits of these contexts, all below `limit`, belong."""
    loops = compiled.loops(len(contexts))
    return Order(contexts, limit) if loops is None else _Counted(contexts, limit, loops)


class _Scaled:
    """What a codec of sorted digits is told: where contexts begin, whose exponents count."""

    codec_id: str

    def __init__(self, lo: int, scale: str) -> None:
        self.lo = lo
        self.scale = scale

    def get_config(self) -> dict[str, Any]:
        return {"id": self.codec_id, "lo": self.lo, "scale": self.scale}


class ContextZstd(_Scaled):
    """The sorted digits as one zstd frame."""

    codec_id = "context-zstd"

    def encode(self, digits: Raw, contexts: Bytes) -> bytes:
        order = Order(contexts)
        return self.encode_sorted(order.gather(digits), order.counts)

    def encode_sorted(self, gathered: Bytes, counts: Sequence[int] | NDArray[np.int64]) -> bytes:
        return zstd_blocks(gathered, counts)

    def decode(self, data: Raw, contexts: Bytes) -> Raw:
        order = places_of(contexts)
        plain = decompress(data, len(contexts), "a context chunk")
        if len(plain) != len(contexts):
            raise _wrong_length(len(plain), len(contexts))
        return order.scatter(np.frombuffer(plain, np.uint8))


class ContextPacked(_Scaled):
    """The same, but contexts that are mostly -1, 0 or +1 as classes of two bits.

    Stored: 16 bytes of bits, one per context, low bit first, set where it is packed; u32
    length of the first of two zstd frames; the classes of all packed contexts' digits, four to
    a byte, low bits first; in the order of contexts, the digits that are of class 3 or not
    packed.
    """

    codec_id = "context-packed"

    def encode(self, digits: Raw, contexts: Bytes) -> bytes:
        order = Order(contexts)
        gathered = order.gather(digits)
        packed = packable(gathered, order.counts)
        return self.encode_sorted(gathered, order.counts, packed)

    def encode_sorted(
        self, gathered: Bytes, counts: NDArray[np.int64], packed: NDArray[np.bool_]
    ) -> bytes:
        marked = np.repeat(packed, counts)
        found = classes(gathered)
        sizes = np.where(packed, counts, 0)
        classed = zstd_blocks(_pack(found[marked]), np.diff(np.cumsum(sizes) // 4, prepend=0))
        kept = ~marked | (found == 3)
        ends = np.cumsum(counts)
        before = np.concatenate(([0], np.cumsum(kept)))
        rest = zstd_blocks(gathered[kept], np.diff(before[ends], prepend=0))
        bitmap = np.packbits(packed, bitorder="little").tobytes()
        return bitmap + _HEAD.pack(len(classed)) + classed + rest

    def decode(self, data: Raw, contexts: Bytes) -> Raw:
        order = places_of(contexts)
        data = memoryview(data)
        if len(data) < _BITMAP + _HEAD.size:
            raise Damaged("a chunk of packed contexts is truncated")
        bitmap = np.frombuffer(data[:_BITMAP], np.uint8)
        packed = np.unpackbits(bitmap, bitorder="little").astype(np.bool_)
        (length,) = _HEAD.unpack_from(data, _BITMAP)
        frames = data[_BITMAP + _HEAD.size :]
        if length > len(frames):
            raise Damaged("a chunk of packed contexts is truncated")
        count = int(order.counts[packed].sum())
        expected = (count + 3) // 4
        plain = decompress(frames[:length], expected, "packed classes")
        if len(plain) != expected:
            raise _wrong_length(len(plain), expected)
        fours = np.frombuffer(plain, np.uint8)
        loops = compiled.loops(0)
        if loops is not None:
            _check_filling(fours, count)
            rest = decompress(frames[length:], len(contexts), "a context chunk")
            digits = np.empty(len(contexts), np.uint8)
            more = np.frombuffer(rest + b"\0", np.uint8)
            expected = loops.unpack(order.counts, packed, fours, more, digits)
            if len(rest) != expected:
                raise _wrong_length(len(rest), expected)
            return order.scatter(digits)
        found = _unpack(fours, count)
        marked = np.repeat(packed, order.counts)
        out = np.empty(len(contexts), np.uint8)
        out[marked] = found - np.uint8(1)
        kept = ~marked
        kept[marked] = found == 3
        rest = decompress(frames[length:], len(contexts), "a context chunk")
        expected = int(np.count_nonzero(kept))
        if len(rest) != expected:
            raise _wrong_length(len(rest), expected)
        out[kept] = np.frombuffer(rest, np.uint8)
        return order.scatter(out)


def packable(gathered: Bytes, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Contexts of which one of the digits -1, 0, +1 makes up half or more."""
    out = np.zeros(CONTEXTS, np.bool_)
    start = 0
    for context, count in enumerate(counts.tolist()):
        if count:
            some = np.bincount(classes(gathered[start : start + count]), minlength=4)
            out[context] = some[:3].max() >= PACK * count
        start += count
    return out


def _pack(classes: Bytes) -> Bytes:
    """Classes, four to a byte; the last byte is filled up with zeros."""
    fours = np.zeros((len(classes) + 3) // 4 * 4, np.uint8)
    fours[: len(classes)] = classes
    # As words of four bytes: 2 bits of each end up in the lowest.
    words = fours.view("<u4")
    packed = words | (words >> np.uint32(6))
    packed |= (words | (words >> np.uint32(6))) >> np.uint32(12)
    low: Bytes = packed.astype(np.uint8)
    return low


def _unpack(packed: Bytes, count: int) -> Bytes:
    words: NDArray[np.uint32] = packed.astype("<u4")
    words |= words << np.uint32(12)
    words &= np.uint32(0x000F000F)
    words |= words << np.uint32(6)
    words &= np.uint32(0x03030303)
    unpacked: Bytes = words.view(np.uint8)
    _check_filling(packed, count)
    return unpacked[:count]


def _check_filling(packed: Bytes, count: int) -> None:
    if count % 4 and int(packed[-1]) >> (2 * (count % 4)):
        raise Damaged("packed classes are not filled up with zeros")


def _wrong_length(actual: int, expected: int) -> Damaged:
    return Damaged("a context chunk has the wrong length", why=f"{actual} bytes, not {expected}")


class AboveCodec:
    """Bytes of one segment whose plane above the reader has."""

    codec_id = "context-above"

    def get_config(self) -> dict[str, Any]:
        return {"id": self.codec_id}

    def encode(self, data: Raw, above: Raw) -> bytes:
        order = Order(_contexts(above), 256)
        return zstd_blocks(order.gather(data), order.counts)

    def decode(self, data: Raw, above: Raw) -> Raw:
        """As many bytes as `above` has; Damaged if it holds others."""
        places = places_of(_contexts(above), 256)
        plain = decompress(data, len(above), "a chunk in the order of the plane above")
        if len(plain) != len(above):
            raise Damaged(
                "a chunk in the order of the plane above has the wrong length",
                why=f"{len(plain)} bytes, not {len(above)}",
            )
        return places.scatter(np.frombuffer(plain, np.uint8))


def _contexts(above: Raw) -> NDArray[np.uint8]:
    if len(above) > MAX_DIGITS:
        raise Damaged(f"a segment has {len(above)} bytes, not <= {MAX_DIGITS}")
    return np.frombuffer(above, np.uint8)


STATES = 64
BITS = 12
TOTAL = 1 << BITS
LEAST = 1 << 16  # of a state
_ROW = 512  # bytes of a context's 256 frequencies


class Table:
    """Frequencies of digits in each context that a plane uses.

    Stored: 16 bytes of bits, one per context, low bit first; then for each that is set 256 u16,
    which sum to 2^12.
    """

    def __init__(self, raw: Raw) -> None:
        raw = bytes(raw)
        used = np.unpackbits(np.frombuffer(raw[:_BITMAP], np.uint8), bitorder="little")
        if len(raw) < _BITMAP or len(raw) != _BITMAP + _ROW * int(used.sum()):
            raise Damaged("a table of frequencies has the wrong length", why=f"{len(raw)} bytes")
        self.used = used.astype(np.bool_)
        rows = int(used.sum())
        frequencies = np.frombuffer(raw[_BITMAP:], "<u2").reshape(rows, 256).astype(np.uint32)
        if (frequencies.sum(1) != TOTAL).any():
            raise Damaged("frequencies of a context do not sum to 2^12")
        self._rows = np.full(256, -1, np.int32)
        self._rows[:CONTEXTS][self.used] = np.arange(rows)
        self.frequencies = frequencies
        self.starts = (np.cumsum(frequencies, 1) - frequencies).astype(np.uint32)
        # The digit at each of the 2^12 places of each context.
        each = np.tile(np.arange(256).astype(np.uint8), rows)
        self.digits = np.repeat(each, frequencies.ravel())

    def rows_of(self, contexts: Bytes) -> NDArray[np.int32]:
        found: NDArray[np.int32] = self._rows[contexts]
        if (found < 0).any():
            raise Damaged("a table of frequencies lacks a context that is used")
        return found


@lru_cache(maxsize=16)
def table_of(raw: bytes) -> Table:
    """The table of its stored bytes; the last few are kept."""
    return Table(raw)


class ContextRans:
    """Digits coded with the frequencies of their contexts; dlv reads them and writes none."""

    codec_id = "context-rans"

    def __init__(self, lo: int, scale: str, table: str, raw_table: Raw | None = None) -> None:
        self.lo = lo
        self.scale = scale
        self.table = table  # hash of the named object
        self._raw = None if raw_table is None else bytes(raw_table)

    def get_config(self) -> dict[str, Any]:
        return {"id": self.codec_id, "lo": self.lo, "scale": self.scale, "table": self.table}

    def with_table(self, raw: Raw) -> ContextRans:
        """The same with its table at hand; without it nothing can be decoded."""
        if hash_bytes(raw) != self.table:
            raise Damaged(f"the table {self.table} is corrupt")
        return ContextRans(self.lo, self.scale, self.table, raw)

    def decode(self, data: Raw, contexts: Bytes) -> Raw:
        table = self._table()
        count = len(contexts)
        if len(data) < 4 * STATES or len(data) % 2 or len(data) > 4 * STATES + 2 * count:
            raise _damaged_states()
        states = np.frombuffer(data, "<u4", STATES).astype(np.uint32)
        words = np.frombuffer(data, "<u2", offset=4 * STATES)
        if (states < LEAST).any():
            raise _damaged_states()
        out, taken = _decode_states(table.rows_of(contexts), table, states, words)
        if taken != len(words) or (states != LEAST).any():
            raise _damaged_states()
        return out.data

    def _table(self) -> Table:
        if self._raw is None:
            raise Damaged(f"a chunk of codec {self.codec_id!r} is read without its table")
        return table_of(self._raw)


def _decode_states(
    rows: NDArray[np.int32], table: Table, states: NDArray[np.uint32], words: NDArray[np.uint16]
) -> tuple[Bytes, int]:
    out = np.empty(len(rows), np.uint8)
    digits, frequencies = table.digits, table.frequencies.ravel()
    starts = table.starts.ravel()
    taken = 0
    for start in range(0, len(rows), STATES):
        row = rows[start : start + STATES]
        some = states[: len(row)]
        place = some & np.uint32(TOTAL - 1)
        found = digits[row * TOTAL + place]
        at = row * 256 + found
        some[...] = frequencies[at] * (some >> np.uint32(BITS)) + place - starts[at]
        low = np.flatnonzero(some < LEAST)
        if taken + len(low) > len(words):
            raise _damaged_states()
        some[low] = (some[low] << np.uint32(16)) | words[taken : taken + len(low)]
        taken += len(low)
        out[start : start + STATES] = found
    return out, taken


def _damaged_states() -> Damaged:
    return Damaged("a chunk of the range coder does not hold what its contexts need")
