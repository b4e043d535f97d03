"""Event files as records: their lengths, their check sums, and where a good file ends."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlv.events.formats import crc

HEAD, FOOT = 12, 4  # length and its sum before a body, the body's sum after it
MOST_RECORD = (1 << 31) - 1  # what a protocol buffer may have
_BIG = 1 << 13  # bytes of a body from which it is summed alone

_LENGTH = struct.Struct("<Q")
_SUM = struct.Struct("<I")


@dataclass
class Records:
    """Whole records of a buffer: body i is buffer[starts[i]:ends[i]]."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    stop: int  # where the last good one ends
    needed: int = 0  # bytes that the record there needs, if it is not whole
    damage: str | None = None  # why it ends there

    def shorten(self, count: int) -> None:
        """Leave only the first `count` records, of which there are more."""
        if count < len(self.starts):
            self.starts, self.ends = self.starts[:count], self.ends[:count]
            self.stop = int(self.ends[-1]) + FOOT
            self.needed, self.damage = 0, None

    def body(self, data: bytes, index: int) -> bytes:
        """The bytes of one of them."""
        return data[int(self.starts[index]) : int(self.ends[index])]


class Framing:
    """Cuts buffers into records and checks their sums."""

    def __init__(self) -> None:
        self._lengths: dict[bytes, int] = {}  # good heads seen; logs repeat few

    def length(self, head: bytes) -> int | None:
        """The length that 12 bytes announce; None: the sum is wrong."""
        (length,) = _LENGTH.unpack_from(head)
        (kept,) = _SUM.unpack_from(head, 8)
        if crc.masked(crc.crc32c(head[:8])) != kept:
            return None
        if len(self._lengths) < 1 << 14:
            self._lengths[head] = length
        return int(length)

    def cut(self, data: bytes, at: int, most: int) -> Records:
        """Up to `most` records from `at` on, checked."""
        places, known, size = [at], self._lengths, len(data) - HEAD - FOOT
        needed, damage = 0, None
        while len(places) <= most:
            head = data[at : at + HEAD]
            length = known.get(head)
            if length is None:
                if len(head) < HEAD:
                    needed = HEAD + FOOT
                    break
                length = self.length(head)
                if length is None:
                    damage = "the sum of a record's length is wrong"
                    break
                if length > MOST_RECORD:
                    damage = f"a record of {length} bytes is announced"
                    break
            if at + length > size:
                needed = HEAD + length + FOOT
                break
            at += length + HEAD + FOOT
            places.append(at)
        bounds = np.array(places, np.int64)
        good = self._good(data, bounds[:-1] + HEAD, bounds[1:] - FOOT)
        if good < len(places) - 1:
            needed, damage = 0, "the sum of a record is wrong"
        starts, ends = bounds[:good] + HEAD, bounds[1 : good + 1] - FOOT
        return Records(starts, ends, places[good], needed, damage)

    def _good(self, data: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> int:
        """How many records there are before the first whose sum is wrong."""
        lengths = ends - starts
        array = np.frombuffer(data, np.uint8)
        kept = array[ends[:, None] + np.arange(FOOT)].view("<u4").ravel()
        big = lengths >= _BIG
        small = np.flatnonzero(~big)
        sums = np.empty(len(starts), np.uint32)
        sums[small] = crc.of_records(array, starts[small], lengths[small])
        for at in np.flatnonzero(big).tolist():
            sums[at] = crc.crc32c(array[starts[at] : ends[at]].data)
        wrong = np.flatnonzero(crc.unmasked(kept) != sums)
        return int(wrong[0]) if len(wrong) else len(starts)
