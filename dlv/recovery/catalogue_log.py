"""SQLite's write-ahead log, read to its end: where it breaks off, and what lies behind.

SQLite itself ends a log at the first frame whose checksum is not right, and takes all behind it
for the rest of an older log. So one flipped bit hides every later commit, and the next one is
written over them. Each frame's checksum goes on from the one before: where a frame is wrong and
what follows it fits, the log was whole once. One byte that is not what it was can be found, and
put right, by the checksum alone: it is linear in the words that it is of. (Of the highest byte of
a word it tells little: then several may be the one, and the one that differs in a single bit is.)
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import field
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dlv.dataclass import dataclass

Words = NDArray[np.uint32]
Sums = tuple[int, int]
Changes = list[tuple[int, int]]

HEADER, FRAME = 32, 24
MAGIC = {0x377F0682: "<u4", 0x377F0683: ">u4"}  # in which order checksums take the bytes
VERSION = 3007000
MASK = 0xFFFFFFFF
TRIES = 5  # to read a log that somebody writes


@dataclass
class Log:
    """What was found. `changes`: (offset, byte) of all that would make the log whole."""

    path: Path
    frames: int = 0  # of this log, whole or not
    broken: int | None = None  # the first frame that SQLite does not read; 0: the header
    behind: int = 0  # commits that it therefore does not read
    lost: bool = False  # whether these have been durable once
    changes: Changes = field(default_factory=list)

    @property
    def why(self) -> str:
        where = f"frame {self.broken} of {self.frames}" if self.broken else "its header"
        what = f"{self.behind} commit{'' if self.behind == 1 else 's'}"
        return f"{where} is not as it was written, {what} from there on cannot be read"


def beside(database: Path) -> Path:
    return database.with_name(database.name + "-wal")


def read(path: Path) -> Log | None:
    """Read the log, or return None if there is none. A log being written is read at one moment."""
    for _ in range(TRIES):
        try:
            with path.open("rb") as file:
                data = bytearray(file.read())
                file.seek(0)
                again = file.read(HEADER)
        except FileNotFoundError:
            return None
        if data[:HEADER] == again:  # it was not restarted while it was read
            return _Reading(path, data).log if len(data) >= HEADER else None
    return None


def mend(log: Log) -> bool:
    """Correct the bytes whose right value is known; return whether there were any."""
    if not log.changes:
        return False
    descriptor = os.open(log.path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        for offset, byte in log.changes:
            os.pwrite(descriptor, bytes([byte]), offset)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True


class _Reading:
    """Walks over the frames; `data` is put right on the way."""

    def __init__(self, path: Path, data: bytearray) -> None:
        self.data = data
        self.log = Log(path)
        self.order = "<u4"
        if not self._header():
            return
        self.size = int.from_bytes(data[8:12], "big")
        self.salts = bytes(data[16:24])
        self.many = (len(data) - HEADER) // (FRAME + self.size)
        self._frames()

    def _header(self) -> bool:
        stored = struct.unpack_from(">II", self.data, 24)
        for magic, order in MAGIC.items():
            found = _sums(_words(self.data[:24], order), (0, 0))
            ways: list[Changes] = [[]]
            if found != stored:
                one = _bytes_of(found, stored, 24)
                ways = _one_byte(self.data, [(0, 24)], (0, 0), stored, order)
                ways += [one] if len(one) == 1 else []
            ways = [way for way in ways if self._is_header(way, magic)]
            salted = [way for way in ways if self._with(way)[16:24] == self.data[40:48]]
            changes = _likely(self.data, salted or ways)
            if changes is not None:
                self.order = order
                if changes:
                    self._change(0, changes)
                return True
        return False

    def _with(self, changes: Changes) -> bytearray:
        whole = self.data[:HEADER]
        for offset, byte in changes:
            whole[offset] = byte
        return whole

    def _is_header(self, changes: Changes, magic: int) -> bool:
        first, version, size = struct.unpack_from(">III", self._with(changes))
        return (
            (first, version) == (magic, VERSION) and 512 <= size <= 65536 and not size & (size - 1)
        )

    def _change(self, frame: int, changes: Changes) -> None:
        if self.log.broken is None:
            self.log.broken = frame
        self.log.changes += changes
        for offset, byte in changes:
            self.data[offset] = byte

    def _frames(self) -> None:
        sums = struct.unpack_from(">II", self.data, 24)
        for at in range(self.many):
            right = self._computed(at, sums) == self._stored(at)
            if not right and not any(self._ours(later) for later in range(at, self.many)):
                break  # from here on an older log
            if not right or not self._ours(at):
                ways = self._ways(at, sums)
                changes = _likely(self.data, ways)
                if changes is None:
                    self._cut(at, altered=bool(ways))
                    return
                self._change(at + 1, changes)
            sums = self._stored(at)
            self.log.frames = at + 1
            if self.log.broken is not None and self._commits(at):
                self.log.behind += 1
        if self.log.behind:
            self.log.lost = True
        else:  # of a transaction that never came to its commit
            self.log.broken, self.log.changes = None, []

    def _cut(self, at: int, *, altered: bool) -> None:
        """Nothing mends this frame. A commit is synced before the next one is written, so that a
        frame that goes on from a commit is proof of it; without one it may have been cut off."""
        self.log.lost = altered
        if self.log.broken is None:
            self.log.broken = at + 1
        self.log.changes = []
        ours = [later for later in range(at, self.many) if self._ours(later)]
        self.log.frames = ours[-1] + 1 if ours else at
        for later in ours:
            if self._commits(later):
                self.log.behind += 1
                if later + 1 < self.many and self._ours(later + 1):
                    followed = self._computed(later + 1, self._stored(later))
                    self.log.lost |= followed == self._stored(later + 1)

    # A frame

    def _place(self, at: int) -> int:
        return HEADER + at * (FRAME + self.size)

    def _ours(self, at: int) -> bool:
        place = self._place(at)
        return self.data[place + 8 : place + 16] == self.salts

    def _commits(self, at: int) -> bool:
        return any(self.data[self._place(at) + 4 : self._place(at) + 8])

    def _stored(self, at: int) -> Sums:
        first, second = struct.unpack_from(">II", self.data, self._place(at) + 16)
        return first, second

    def _computed(self, at: int, before: Sums) -> Sums:
        place = self._place(at)
        head = _words(self.data[place : place + 8], self.order)
        page = _words(self.data[place + FRAME : place + FRAME + self.size], self.order)
        return _sums(page, _sums(head, before))

    def _ways(self, at: int, before: Sums) -> list[Changes]:
        """Each byte that, if it were another one, would make it right."""
        place = self._place(at)
        computed, stored = self._computed(at, before), self._stored(at)
        if computed == stored:  # the salts
            found = [
                (place + 8 + n, salt)
                for n, salt in enumerate(self.salts)
                if self.data[place + 8 + n] != salt
            ]
            return [found] if len(found) == 1 else []
        one = _bytes_of(computed, stored, place + 16)
        spans = [(place, 8), (place + FRAME, self.size)]
        of_content = _one_byte(self.data, spans, before, stored, self.order)
        of_sums = [one] if len(one) == 1 else []
        # The next frame goes on from the sums that are right.
        if of_sums and at + 1 < self.many and self._ours(at + 1):
            following = self._stored(at + 1)
            if self._computed(at + 1, computed) == following:
                return of_sums
            if self._computed(at + 1, stored) == following:
                return of_content
        return of_content + of_sums


def _likely(data: bytearray, ways: list[Changes]) -> Changes | None:
    """The only one, or the only one of a single bit."""
    if len(ways) > 1:
        ways = [way for way in ways if all((data[at] ^ to).bit_count() == 1 for at, to in way)]
    return ways[0] if len(ways) == 1 else None


def _words(data: bytes | bytearray, order: str) -> Words:
    return np.frombuffer(bytes(data), order).astype(np.uint32)


@cache
def _weights(pairs: int) -> tuple[Words, Words]:
    """How much a change of each word changes the first sum, and the second."""
    first, second = [0] * (2 * pairs), [0] * (2 * pairs)
    even, odd = (1, 1), (0, 1)  # of the last pair
    for at in range(2 * pairs - 2, -1, -2):
        (first[at], second[at]), (first[at + 1], second[at + 1]) = even, odd
        even, odd = _step(even), _step(odd)
    return np.array(first, np.uint32), np.array(second, np.uint32)


def _step(sums: Sums) -> Sums:
    """What a pair of zeros makes of them."""
    first = (sums[0] + sums[1]) & MASK
    return first, (sums[1] + first) & MASK


def _sums(words: Words, before: Sums) -> Sums:
    first, second = _weights(len(words) // 2)
    start = _carried(before, len(words) // 2)
    with np.errstate(over="ignore"):
        found = (
            int((first * words).sum(dtype=np.uint32)),
            int((second * words).sum(dtype=np.uint32)),
        )
    return (start[0] + found[0]) & MASK, (start[1] + found[1]) & MASK


def _carried(sums: Sums, pairs: int) -> Sums:
    one, other = _unit(pairs)
    first = (sums[0] * one[0] + sums[1] * other[0]) & MASK
    return first, (sums[0] * one[1] + sums[1] * other[1]) & MASK


@cache
def _unit(pairs: int) -> tuple[Sums, Sums]:
    one, other = (1, 0), (0, 1)
    for _ in range(pairs):
        one, other = _step(one), _step(other)
    return one, other


def _bytes_of(computed: Sums, stored: Sums, place: int) -> Changes:
    right, found = struct.pack(">II", *computed), struct.pack(">II", *stored)
    return [(place + n, byte) for n, byte in enumerate(right) if found[n] != byte]


def _one_byte(
    data: bytearray, spans: Changes, before: Sums, stored: Sums, order: str
) -> list[Changes]:
    """Every (offset, byte) in the spans that gives the stored sums."""
    ways: list[Changes] = []
    words = np.concatenate([_words(data[at : at + size], order) for at, size in spans])
    found = _sums(words, before)
    want = [(stored[n] - found[n]) & MASK for n in (0, 1)]
    first, second = _weights(len(words) // 2)
    for word, delta in _deltas(first, second, want):
        was = int(words[word])
        now = (was + delta) & MASK
        one, other = (np.array(value, order).tobytes() for value in (was, now))
        differ = [n for n in range(4) if one[n] != other[n]]
        if len(differ) == 1:
            way = [(_offset(spans, 4 * word) + differ[0], other[differ[0]])]
            ways += [way] if way not in ways else []
    return ways


def _deltas(first: Words, second: Words, want: list[int]) -> Iterator[tuple[int, int]]:
    """(word, what to add to it) of those where one number explains both sums.

    A byte that changes adds a multiple of a power of 256, smaller than 256 times it either way.
    """
    with np.errstate(over="ignore"):
        for shift in (0, 8, 16, 24):
            for step in range(1, 256):
                for delta in (step << shift, -(step << shift) & MASK):
                    right = (first * np.uint32(delta) == np.uint32(want[0])) & (
                        second * np.uint32(delta) == np.uint32(want[1])
                    )
                    for word in np.flatnonzero(right):
                        yield int(word), delta


def _offset(spans: Changes, at: int) -> int:
    for start, size in spans:
        if at < size:
            return start + at
        at -= size
    raise IndexError(at)
