"""CRC32C of many records, or of big ones, with numpy: the sum is linear in the bytes.

A register is moved over 16 bits by one table; over any number of zero bytes by a linear map.
Hence zeros in front of a text change nothing while the register is 0, the sum of a text is the
sum of its parts, each moved over what follows it, and the start value (all ones) can be added
at the end.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

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


def unmasked(kept: U32) -> U32:
    """The sums behind a column of masked ones."""
    turned: U32 = kept - np.uint32(0xA282EAD8)
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
