"""Event files as records: their lengths, their check sums, and where a good file ends."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np

from dlv.events import crc

HEAD, FOOT = 12, 4  # length and its sum before a body, the body's sum after it
MOST_RECORD = (1 << 31) - 1  # what a protocol buffer may have
_BIG = 1 << 13  # bytes of a body from which it is summed alone

_LENGTH = struct.Struct("<Q")
_SUM = struct.Struct("<I")


@dataclass
class Records:
    """Whole records of a buffer: body i is buffer[starts[i]:ends[i]]."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    stop: int = 0  # where the last good one ends
    needed: int = 0  # bytes that the record there needs, if it is not whole
    damage: str | None = None  # why it ends there


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
        found = Records(stop=at)
        starts, ends, known, size = found.starts, found.ends, self._lengths, len(data)
        while len(starts) < most:
            head = data[at : at + HEAD]
            length = known.get(head)
            if length is None:
                if len(head) < HEAD:
                    found.needed = HEAD + FOOT
                    break
                length = self.length(head)
                if length is None:
                    found.damage = "the sum of a record's length is wrong"
                    break
                if length > MOST_RECORD:
                    found.damage = f"a record of {length} bytes is announced"
                    break
            end = at + HEAD + length
            if end + FOOT > size:
                found.needed = HEAD + length + FOOT
                break
            starts.append(at + HEAD)
            ends.append(end)
            at = end + FOOT
        self._check(data, found)
        found.stop = ends[-1] + FOOT if ends else found.stop
        return found

    def _check(self, data: bytes, found: Records) -> None:
        """Cut `found` off before the first record whose sum is wrong."""
        if not found.starts:
            return
        starts, ends = np.array(found.starts), np.array(found.ends)
        lengths = ends - starts
        array = np.frombuffer(data, np.uint8)
        kept = array[ends[:, None] + np.arange(4)].view("<u4").ravel()
        big = lengths >= _BIG
        small = np.flatnonzero(~big)
        sums = np.empty(len(starts), np.uint32)
        sums[small] = crc.of_records(array, starts[small], lengths[small])
        for at in np.flatnonzero(big).tolist():
            sums[at] = crc.crc32c(array[starts[at] : ends[at]].data)
        wrong = np.flatnonzero(crc.unmasked(kept) != sums)
        if len(wrong):
            first = int(wrong[0])
            del found.starts[first:], found.ends[first:]
            found.damage, found.needed = "the sum of a record is wrong", 0
