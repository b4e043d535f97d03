"""Blocks of tensors and of blob sequences, as they are frozen: a table, then the bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from dlv.canonical import dumps, float_of, hash_bytes, is_hash, loads, number
from dlv.events.formats.heads import BLOCK, damaged

MOST_BYTES = 4 << 20  # of a block with more than one point
_LENGTH = struct.Struct("<I")


class Tensor(NamedTuple):
    step: int
    wall: float
    dtype: str
    shape: tuple[int, ...]
    data: bytes
    legacy: bytes

    @property
    def nbytes(self) -> int:
        return 100 + len(self.data) + len(self.legacy)


class Blobs(NamedTuple):
    step: int
    wall: float
    blobs: tuple[bytes, ...]

    @property
    def nbytes(self) -> int:
        return 100 + sum(100 + len(blob) for blob in self.blobs)


def tensors(points: Iterable[Tensor], add: Callable[[str, bytes], str]) -> list[tuple[str, int]]:
    """(hash, points) of each block. A longer log has the same blocks but for the last."""
    return [(add("points", tensor_block(part)), len(part)) for part in _cut(points)]


def blobs(points: Iterable[Blobs], add: Callable[[str, bytes], str]) -> list[tuple[str, int]]:
    return [(add("points", blob_block(part)), len(part)) for part in _cut(points)]


def _cut(points: Iterable[Any]) -> Iterator[list[Any]]:
    part: list[Any] = []
    size = 0
    for point in points:
        if part and (len(part) == BLOCK or size + point.nbytes > MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(point)
        size += point.nbytes
    if part:
        yield part


def tensor_block(points: Sequence[Tensor]) -> bytes:
    table = [
        [p.step, number(p.wall), p.dtype, list(p.shape), len(p.data), len(p.legacy)] for p in points
    ]
    return _block(table, [part for p in points for part in (p.data, p.legacy)])


def blob_block(points: Sequence[Blobs]) -> bytes:
    """What occurs more than once in the block stands in it once, where it came first."""
    content: dict[str, bytes] = {}
    table = []
    for point in points:
        row = []
        for blob in point.blobs:
            digest = hash_bytes(blob)
            content.setdefault(digest, blob)
            row.append([digest, len(blob)])
        table.append([point.step, number(point.wall), row])
    return _block(table, list(content.values()))


def _block(table: list[Any], parts: list[bytes]) -> bytes:
    head = dumps(table)
    return b"".join((_LENGTH.pack(len(head)), head, *parts))


def read_tensors(data: bytes, count: int) -> Iterator[Tensor]:
    table, at = _table(data, count)
    for row in table:
        if not (isinstance(row, list) and len(row) == 6 and _is_shape(row[3])):
            raise damaged("a row of its tensors is none")
        step, wall, dtype, shape, size, legacy = row
        if not (_is_int(step) and isinstance(dtype, str) and _is_size(size) and _is_size(legacy)):
            raise damaged("a row of its tensors is none")
        end = at + size + legacy
        if end > len(data):
            raise damaged("a block of tensors is too short")
        yield Tensor(
            *(step, _wall(wall), dtype, tuple(shape), data[at : at + size]), data[at + size : end]
        )
        at = end
    if at != len(data):
        raise damaged("a block of tensors is too long")


def read_blobs(data: bytes, count: int) -> Iterator[Blobs]:
    table, at = _table(data, count)
    content: dict[str, bytes] = {}
    for row in table:
        if not (isinstance(row, list) and len(row) == 3 and isinstance(row[2], list)):
            raise damaged("a row of its blobs is none")
        step, wall, named = row
        found = []
        for item in named:
            if not (isinstance(item, list) and len(item) == 2 and is_hash(item[0])):
                raise damaged("a blob has no hash")
            digest, size = item
            if digest not in content:
                if not _is_size(size) or at + size > len(data):
                    raise damaged("a block of blobs is too short")
                content[digest] = data[at : at + size]
                at += size
            found.append(content[digest])
        if not _is_int(step):
            raise damaged("a row of its blobs is none")
        yield Blobs(step, _wall(wall), tuple(found))
    if at != len(data):
        raise damaged("a block of blobs is too long")


def _table(data: bytes, count: int) -> tuple[list[Any], int]:
    if len(data) < _LENGTH.size:
        raise damaged("a block is too short")
    end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    if end > len(data):
        raise damaged("a block is too short")
    table = loads(data[_LENGTH.size : end], "series")
    if not isinstance(table, list) or len(table) != count:
        raise damaged(f"a block should hold {count} points")
    return table, end


def _wall(value: Any) -> float:
    try:
        return float_of(value)
    except (KeyError, TypeError, ValueError) as error:
        raise damaged("a time is no number") from error


def _is_int(value: Any) -> bool:
    return type(value) is int


def _is_size(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_size, value))
