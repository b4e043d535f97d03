"""The codec `context-rans`: an interleaved range coder with a table of frequencies per context.

It is there for speed where numba is installed (`compiled.py`). Without it, numpy takes the
64 states together, one step for each; the bytes are the same.

Digit i is on state i mod 64. A state is 32 bits, at least 2^16, where it begins and must end;
a step takes 12 bits off it, and 16 come in from the words when it falls below 2^16.
Stored: the 64 states and then the words, all little-endian, in the order in which they are read.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.canonical import hash_bytes
from dlv.errors import Damaged
from dlv.kinds import Bytes, Raw
from dlv.pas.coders import compiled

CONTEXTS = 128
STATES = 64
BITS = 12
TOTAL = 1 << BITS
LEAST = 1 << 16  # of a state
SLOW = 32  # without numba it takes so much longer than other codecs do

_BITMAP = CONTEXTS // 8
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
        # Row of each context. The last is that of contexts which are not there: it leads
        # nowhere good, but not out of the arrays either.
        self.rows = np.full(256, rows, np.int32)
        self.rows[:CONTEXTS][self.used] = np.arange(rows)
        self.frequencies = np.concatenate((frequencies, np.zeros((1, 256), np.uint32)))
        self.starts = (np.cumsum(self.frequencies, 1) - self.frequencies).astype(np.uint32)
        self.packed = ((self.starts << np.uint32(16)) | self.frequencies).ravel()
        self._digits: Bytes | None = None

    @property
    def digits(self) -> Bytes:
        """The digit at each of the 2^12 places of each context."""
        if self._digits is None:
            each = np.tile(np.arange(256).astype(np.uint8), len(self.frequencies))
            places = np.repeat(each, self.frequencies.ravel())
            self._digits = np.concatenate((places, np.zeros(TOTAL, np.uint8)))
        return self._digits

    def rows_of(self, contexts: Bytes) -> NDArray[np.int32]:
        found: NDArray[np.int32] = self.rows[contexts]
        if len(found) and int(found.max()) == len(self.frequencies) - 1:
            raise Damaged("a table of frequencies lacks a context that is used")
        return found


@lru_cache(maxsize=16)
def table_of(raw: bytes) -> Table:
    """The table of its stored bytes; the last few are kept."""
    return Table(raw)


def make_table(counts: NDArray[np.int64]) -> bytes:
    """The table that suits counts of digits (256) in contexts (128); each seen one has a share."""
    used = counts.sum(1) > 0
    rows = [_shares(row) for row in counts[used]]
    bitmap = np.packbits(used, bitorder="little").tobytes()
    return bitmap + b"".join(row.astype("<u2").tobytes() for row in rows)


def _shares(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    exact = counts * (TOTAL / counts.sum())
    shares: NDArray[np.int64] = np.maximum(np.floor(exact), counts > 0).astype(np.int64)
    left = TOTAL - int(shares.sum())
    if left > 0:
        order = np.argsort(-(exact - shares), kind="stable")
        shares[order[:left]] += 1
    while left < 0:  # many rare digits: the frequent ones give way
        largest = int(shares.argmax())
        taken = min(-left, max(1, int(shares[largest]) // 8))
        shares[largest] -= taken
        left += taken
    return shares


class ContextRans:
    """Digits coded with the frequencies of their contexts."""

    codec_id = "context-rans"

    def __init__(self, lo: int, scale: str, table: str, raw_table: Raw | None = None) -> None:
        self.lo = lo
        self.scale = scale
        self.table = table  # hash of the named object
        self._raw = None if raw_table is None else bytes(raw_table)

    def get_config(self) -> dict[str, Any]:
        return {"id": self.codec_id, "lo": self.lo, "scale": self.scale, "table": self.table}

    def with_table(self, raw: Raw) -> ContextRans:
        """The same with its table at hand; without it nothing can be coded."""
        if hash_bytes(raw) != self.table:
            raise Damaged(f"the table {self.table} is damaged")
        return ContextRans(self.lo, self.scale, self.table, raw)

    def encode(self, digits: Raw, contexts: Bytes) -> bytes:
        table = self._table()
        rows = table.rows_of(contexts)
        symbols = np.frombuffer(digits, np.uint8)
        if (table.frequencies[rows, symbols] == 0).any():
            raise ValueError("the table has no room for a digit")
        loops = compiled.loops(SLOW * len(symbols))
        if loops is not None:
            words = np.empty(len(symbols) + 1, np.uint16)
            states = np.full(STATES, LEAST, np.uint32)
            first = loops.encode(symbols, rows, table.frequencies, table.starts, states, words)
            return states.astype("<u4").tobytes() + words[first:].astype("<u2").tobytes()
        return _encode(symbols, rows, table)

    def decode(self, data: Raw, contexts: Bytes) -> Raw:
        table = self._table()
        count = len(contexts)
        if len(data) < 4 * STATES or len(data) % 2 or len(data) > 4 * STATES + 2 * count:
            raise _wrong()
        states = np.frombuffer(data, "<u4", STATES).astype(np.uint32)
        words = np.frombuffer(data, "<u2", offset=4 * STATES)
        if (states < LEAST).any():
            raise _wrong()
        loops = compiled.loops(SLOW * count)
        if loops is not None:
            out = np.empty(count, np.uint8)
            more = np.zeros(len(words) + STATES, np.uint16)
            more[: len(words)] = words
            taken = loops.decode(
                contexts, table.rows, table.digits, table.packed, states, more, out
            )
        else:
            out, taken = _decode(table.rows_of(contexts), table, states, words)
        if taken != len(words) or (states != LEAST).any():
            raise _wrong()
        return out.data

    def _table(self) -> Table:
        if self._raw is None:
            raise Damaged(f"a chunk of codec {self.codec_id!r} is read without its table")
        return table_of(self._raw)


def _encode(symbols: Bytes, rows: NDArray[np.int32], table: Table) -> bytes:
    """Backwards, all states at a time: the last digit's words are read last."""
    states = np.full(STATES, LEAST, np.uint64)
    flat = rows.astype(np.int64) * 256 + symbols
    frequencies = table.frequencies.ravel()[flat].astype(np.uint64)
    starts = table.starts.ravel()[flat].astype(np.uint64)
    parts = []
    low = np.uint64(0xFFFF)
    for start in range((len(symbols) - 1) // STATES * STATES, -1, -STATES):
        share, begin = frequencies[start : start + STATES], starts[start : start + STATES]
        some = states[: len(share)]
        full = some >= share << np.uint64(32 - BITS)
        if full.any():
            parts.append((some[full] & low).astype("<u2"))
            some[full] >>= np.uint64(16)
        whole, rest = np.divmod(some, share)
        some[...] = (whole << np.uint64(BITS)) + rest + begin
    words = b"".join(part.tobytes() for part in reversed(parts))
    return states.astype("<u4").tobytes() + words


def _decode(
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
            raise _wrong()
        some[low] = (some[low] << np.uint32(16)) | words[taken : taken + len(low)]
        taken += len(low)
        out[start : start + STATES] = found
    return out, taken


def _wrong() -> Damaged:
    return Damaged("a chunk of the range coder does not hold what its contexts need")
