"""Event files as records: lengths, check sums (CRC-32C), and where a good file ends."""

from __future__ import annotations

import struct
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from dlv.dataclass import dataclass

_POLYNOMIAL = 0x82F63B78
_ONES = 0xFFFFFFFF
_SMALL = 1400  # bytes up to which a loop in Python is the fastest
_PIECE = 1 << 20  # what is summed at once, so that the rows stay in the cache

U32 = NDArray[np.uint32]
U8 = NDArray[np.uint8]


def _byte_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return table


_BYTE = _byte_table()


@cache
def _pair() -> U32:
    """The register after 16 bits, of each value of its lower half."""
    byte = np.array(_BYTE, np.uint32)
    once = np.tile(byte, 256) ^ np.repeat(np.arange(256, dtype=np.uint32), 256)
    pairs: U32 = byte[once & 0xFF] ^ (once >> 8)
    return pairs


Operator = tuple[U32, U32, U32, U32]  # the image of each byte of a register


def _operator(images: U32) -> Operator:
    """The linear map that takes bit i to `images[i]`, as four tables."""
    tables = []
    for byte in range(4):
        table = np.zeros(256, np.uint32)
        for bit in range(8):
            table[1 << bit : 2 << bit] = table[: 1 << bit] ^ images[8 * byte + bit]
        tables.append(table)
    return tables[0], tables[1], tables[2], tables[3]


def _apply(operator: Operator, registers: U32) -> U32:
    result: U32 = operator[0][registers & 0xFF]
    result ^= operator[1][registers >> 8 & 0xFF]
    result ^= operator[2][registers >> 16 & 0xFF]
    result ^= operator[3][registers >> 24]
    return result


@cache
def _zeros(power: int) -> Operator:
    """What 2**power zero bytes do to a register."""
    bits = np.left_shift(np.uint32(1), np.arange(32, dtype=np.uint32))
    if power == 0:
        return _operator(np.array(_BYTE, np.uint32)[bits & 0xFF] ^ (bits >> 8))
    half = _zeros(power - 1)
    return _operator(_apply(half, _apply(half, bits)))


def over_zeros(register: int, count: int) -> int:
    """A register after `count` zero bytes."""
    power = 0
    while count:
        if count & 1:
            a, b, c, d = _zeros(power)
            register = int(
                a[register & 0xFF]
                ^ b[register >> 8 & 0xFF]
                ^ c[register >> 16 & 0xFF]
                ^ d[register >> 24]
            )
        count >>= 1
        power += 1
    return register


@lru_cache(1 << 16)
def start(length: int) -> int:
    """What the start value and the inversion at the end add to a text of `length` bytes."""
    return over_zeros(_ONES, length) ^ _ONES


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """CRC32C of one text."""
    if len(data) <= _SMALL:
        register = _ONES
        for byte in data:
            register = _BYTE[(register ^ byte) & 0xFF] ^ register >> 8
        return register ^ _ONES
    register = 0
    array = np.frombuffer(data, np.uint8)
    for at in range(0, len(array), _PIECE):
        piece = array[at : at + _PIECE]
        register = over_zeros(register, len(piece)) ^ _from_zero(piece)
    return register ^ start(len(array))


def _from_zero(data: U8) -> int:
    """The register after the bytes, if it is 0 before them."""
    power = 5 if len(data) < 1 << 17 else 8
    rows = -(-len(data) >> power)
    matrix = np.zeros((rows, 1 << power), np.uint8)
    matrix.reshape(-1)[(rows << power) - len(data) :] = data
    # One column after the other, so that each is read in one go.
    registers = sweep(np.ascontiguousarray(matrix.view("<u2").T))
    while len(registers) > 1:
        if len(registers) % 2:
            registers = np.concatenate((np.zeros(1, np.uint32), registers))
        registers = _apply(_zeros(power), registers[0::2]) ^ registers[1::2]
        power += 1
    return int(registers[0])


def sweep(columns: NDArray[np.uint16], registers: U32 | None = None) -> U32:
    """The registers (0 to begin with) after all columns of 16 bits."""
    table = _pair()
    now: U32 = np.zeros(columns.shape[1], np.uint32) if registers is None else registers
    for column in columns:
        low = now.astype(np.uint16)
        low ^= column
        moved: U32 = table[low]
        moved ^= now >> np.uint32(16)
        now = moved
    return now


def masked(crc: int) -> int:
    """As record files keep it, so that a sum of sums is no trouble."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & _ONES


def unmasked(masked: U32) -> U32:
    """The sums behind a column of masked ones."""
    turned: U32 = masked - np.uint32(0xA282EAD8)
    sums: U32 = turned << np.uint32(15) | turned >> np.uint32(17)
    return sums


def of_records(data: U8, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> U32:
    """CRC32C of many texts within `data`, before each of which there are 8 bytes or more.

    The bytes of a text that make no whole word come first, behind zeros.
    """
    order = np.argsort(-lengths, kind="stable")
    first, sizes = starts[order], lengths[order]
    words = np.ndarray((max(len(data) - 7, 0),), "<u8", data, strides=(1,))
    odd = sizes & 7
    registers = np.zeros(len(first), np.uint32)
    some = np.flatnonzero(odd)
    if len(some):
        hidden = ((8 - odd[some]) * 8).astype(np.uint64)
        registers[some] = _word(words[first[some] + odd[some] - 8] >> hidden << hidden, None)
    counts, at = sizes >> 3, first + odd
    # How many texts have more than j words: they are sorted.
    active = np.searchsorted(-counts, -np.arange(int(counts[0]) if len(counts) else 0))
    for more in active.tolist():
        part = slice(0, more)
        registers[part] = _word(words[at[part]], registers[part])
        at[part] += 8
    lengths_there, where = np.unique(sizes, return_inverse=True)
    registers ^= np.array([start(length) for length in lengths_there.tolist()], np.uint32)[where]
    result = np.empty_like(registers)
    result[order] = registers
    return result


def _word(words: NDArray[np.uint64], registers: U32 | None) -> U32:
    """The registers after 8 bytes."""
    columns = np.ascontiguousarray(words).view("<u2").reshape(-1, 4).T
    return sweep(columns, registers)


@lru_cache(4096)
def behind(count: int) -> U32:
    """What each value of a byte adds to the sum of a text in which `count` bytes follow it."""
    registers, power = np.array(_BYTE, np.uint32), 0
    while count:
        if count & 1:
            registers = _apply(_zeros(power), registers)
        count, power = count >> 1, power + 1
    return registers


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
        if masked(crc32c(head[:8])) != kept:
            return None
        if len(self._lengths) < 1 << 14:
            self._lengths[head] = length
        return int(length)

    def cut(self, data: bytes, start: int, most: int) -> Records:
        """Up to `most` records from byte `start` on, checked."""
        places, known, size = [start], self._lengths, len(data) - HEAD - FOOT
        needed, damage = 0, None
        while len(places) <= most:
            head = data[start : start + HEAD]
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
            if start + length > size:
                needed = HEAD + length + FOOT
                break
            start += length + HEAD + FOOT
            places.append(start)
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
        sums[small] = of_records(array, starts[small], lengths[small])
        for at in np.flatnonzero(big).tolist():
            sums[at] = crc32c(array[starts[at] : ends[at]].data)
        wrong = np.flatnonzero(unmasked(kept) != sums)
        return int(wrong[0]) if len(wrong) else len(starts)
