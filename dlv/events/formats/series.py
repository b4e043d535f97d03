"""A metric over steps as it is frozen in a pack: a head, and points in blocks of at most 4096.

The head names the blocks by their hashes. A block of scalars is three columns; one of tensors or
of blob sequences is a table, then the bytes.
"""

from __future__ import annotations

import base64
import binascii
import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from dlv.canonical import WRITER, dumps, float_of, hash_bytes, is_hash, loads, number
from dlv.dataclass import dataclass
from dlv.errors import Damaged, NewerFormat, UsageError

FORMAT = "dlv/series/1"
BLOCK = 4096  # points at most
MOST_BLOCK_BYTES = 4 << 20  # of a block of tensors or blobs with more than one point
HPARAMS = "hparams"  # the plugin of hyperparameters
ADVICE = "old and new points are both shown; `--restarts preempt` hides the old ones"
UNKNOWN, SCALARS, TENSORS, BLOBS = range(4)  # data classes; of unknown ones tensors are kept

_KEYS = {
    *("format", "writer", "run", "tag", "plugin", "data_class", "plugin_content"),
    *("display_name", "description", "n", "points", "purges"),
}
_TEXTS = ("run", "tag", "plugin", "display_name", "description")

_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class Head:
    """`purges` are (policy, seq, step): of the points before `seq`, those from `step` on went."""

    run: str
    tag: str
    plugin: str
    data_class: int
    content: bytes
    display_name: str
    description: str
    points: tuple[tuple[str, int], ...] = ()
    purges: tuple[tuple[str, int, int], ...] = ()

    @property
    def n(self) -> int:
        return sum(count for _, count in self.points)

    def encode(self) -> bytes:
        return dumps(
            {
                "format": FORMAT,
                "writer": WRITER,
                "run": self.run,
                "tag": self.tag,
                "plugin": self.plugin,
                "data_class": self.data_class,
                "plugin_content": base64.b64encode(self.content).decode(),
                "display_name": self.display_name,
                "description": self.description,
                "n": self.n,
                "points": [list(block) for block in self.points],
                "purges": [list(purge) for purge in self.purges],
            }
        )


def decode_head(data: bytes) -> Head:
    value = loads(data, "series")
    if not isinstance(value, dict) or not isinstance(value.get("format"), str):
        raise damaged("it names no format")
    if value["format"] != FORMAT:
        raise NewerFormat(
            f"a metric series has the format `{value['format']}`",
            why=f"this dlv reads `{FORMAT}`; it was written by {value.get('writer')}",
            hint="pip install --upgrade dlv",
        )
    if missing := sorted(_KEYS - set(value)):
        raise damaged(f"keys are missing: {', '.join(missing)}")
    for key in sorted(set(value) - _KEYS):
        raise _newer(value, f"the key `{key}`")
    kind = value["data_class"]
    if type(kind) is not int or not UNKNOWN <= kind <= BLOBS:
        raise _newer(value, f"the data class {kind!r}")
    if not all(isinstance(value[key], str) for key in _TEXTS):
        raise damaged("a name is not text")
    try:
        content = base64.b64decode(value["plugin_content"], validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise damaged("its plugin data is not base64") from error
    head = Head(
        *(value["run"], value["tag"], value["plugin"], value["data_class"], content),
        *(value["display_name"], value["description"]),
        tuple(_block_rows(value)),
        tuple(_purge_rows(value)),
    )
    if type(value["n"]) is not int or value["n"] != head.n:
        raise damaged(f"{value['n']!r} points are announced, its blocks hold another number")
    return head


def block_hashes(data: bytes) -> list[str]:
    """The hashes of the blocks that a head names."""
    return [digest for digest, _ in _block_rows(loads(data, "series"))]


def _block_rows(value: Any) -> Iterator[tuple[str, int]]:
    for item in _list(value, "points"):
        if not (isinstance(item, list) and len(item) == 2 and is_hash(item[0])):
            raise damaged("a block has no hash")
        if not (type(item[1]) is int and 0 < item[1] <= BLOCK):
            raise damaged("a block has an impossible length")
        yield item[0], item[1]


def _purge_rows(value: Any) -> Iterator[tuple[str, int, int]]:
    for item in _list(value, "purges"):
        if not (isinstance(item, list) and len(item) == 3 and isinstance(item[0], str)):
            raise damaged("a restart is not a policy and two numbers")
        if not (type(item[1]) is int and item[1] >= 0 and type(item[2]) is int):
            raise damaged("a restart has an impossible number")
        yield item[0], item[1], item[2]


def _list(value: Any, key: str) -> Iterable[Any]:
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, list):
        raise damaged(f"it lists no {key}")
    return found


def _newer(value: dict[str, Any], thing: str) -> NewerFormat:
    return NewerFormat(
        f"a metric series has {thing}, which this dlv version does not support",
        why=f"it was written by {value.get('writer')}",
        hint="pip install --upgrade dlv",
    )


def damaged(why: str) -> Damaged:
    return Damaged("a metric series is corrupt", why=why, hint="dlv fsck")


# Scalars


@dataclass(frozen=True)
class Scalars:
    """A scalar series: columns of one length, in the order in which they were written."""

    run: str
    tag: str
    steps: Sequence[int]
    walls: Sequence[float]
    values: Sequence[float]
    display_name: str = ""
    description: str = ""

    def __len__(self) -> int:
        return len(self.values)


def _little(column: array[int] | array[float]) -> bytes:
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()


def _column(typecode: str, data: bytes) -> array[Any]:
    column = array(typecode)
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def encode_scalars(series: Scalars, add: Callable[[str, bytes], str]) -> str:
    """Hand each block and then the head to `add(kind, bytes) -> hash`; the head's hash."""
    if not len(series.steps) == len(series.walls) == len(series.values):
        raise ValueError(f"the columns of {series.tag!r} differ in length")
    points = []
    for start in range(0, len(series), BLOCK):
        part = slice(start, start + BLOCK)
        try:
            steps = array("q", series.steps[part])
        except OverflowError as error:
            raise UsageError(
                f"a step of the series `{series.tag}` is out of range", why="64 bits are kept"
            ) from error
        walls, values = array("d", series.walls[part]), array("d", series.values[part])
        data = _little(steps) + _little(walls) + _little(values)
        points.append((add("points", data), len(steps)))
    head = Head(
        *(series.run, series.tag, "scalars", SCALARS, b""),
        *(series.display_name, series.description, tuple(points)),
    )
    return add("series", head.encode())


def decode_scalars(
    head: bytes, read: Callable[[str, str], bytes], restarts: str = "marked"
) -> Scalars:
    """The series of a head, less what restarts have hidden; `read(kind, hash)` brings blocks."""
    found = decode_head(head)
    if found.data_class != SCALARS:
        raise UsageError(
            f"the series `{found.tag}` has no numbers, one for each step",
            why=f"it was logged for TensorBoard's {found.plugin}",
        )
    steps, walls, values = array("q"), array("d"), array("d")
    for digest, count in found.points:
        data = read("points", digest)
        if len(data) != 24 * count:
            raise damaged(f"a block of {count} points has {len(data)} bytes")
        steps.extend(_column("q", data[: 8 * count]))
        walls.extend(_column("d", data[8 * count : 16 * count]))
        values.extend(_column("d", data[16 * count :]))
    live = _live(steps, found.purges, restarts)
    if len(live) < len(steps):
        steps = array("q", (steps[i] for i in live))
        walls = array("d", (walls[i] for i in live))
        values = array("d", (values[i] for i in live))
    texts = (found.display_name, found.description)
    return Scalars(found.run, found.tag, steps, walls, values, *texts)


def _live(
    steps: Sequence[int], purges: Iterable[tuple[str, int, int]], restarts: str
) -> Sequence[int]:
    """The points that are seen, as `restarts.live` tells them; here without numpy."""
    least: list[tuple[int, int]] = sorted(
        (seq, step) for policy, seq, step in purges if policy == restarts == "marked"
    )
    if restarts == "preempt":
        least = list(enumerate(steps))
    if not least:
        return range(len(steps))
    live = []
    bound: int | None = None  # the least step of all restarts after the point
    for place in range(len(steps) - 1, -1, -1):
        while least and least[-1][0] > place:
            step = least.pop()[1]
            bound = step if bound is None else min(bound, step)
        if bound is None or steps[place] < bound:
            live.append(place)
    return live[::-1]


def series_hash(series: Scalars) -> str:
    """The name that `encode` will give it."""
    return encode_scalars(series, lambda _, data: hash_bytes(data))


# Tensors and blob sequences


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


def encode_tensors(
    points: Iterable[Tensor], add: Callable[[str, bytes], str]
) -> list[tuple[str, int]]:
    """(hash, points) of each block. A longer log has the same blocks but for the last."""
    return [(add("points", tensor_block(part)), len(part)) for part in _cut(points)]


def encode_blobs(
    points: Iterable[Blobs], add: Callable[[str, bytes], str]
) -> list[tuple[str, int]]:
    return [(add("points", blob_block(part)), len(part)) for part in _cut(points)]


def _cut(points: Iterable[Any]) -> Iterator[list[Any]]:
    part: list[Any] = []
    size = 0
    for point in points:
        if part and (len(part) == BLOCK or size + point.nbytes > MOST_BLOCK_BYTES):
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
    table, at = _read_table(data, count)
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
    table, at = _read_table(data, count)
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


def _read_table(data: bytes, count: int) -> tuple[list[Any], int]:
    if len(data) < _LENGTH.size:
        raise damaged("a block is too short")
    end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    if end > len(data):
        raise damaged("a block is too short")
    table = loads(data[_LENGTH.size : end], "series")
    if not isinstance(table, list) or len(table) != count:
        raise damaged(f"a block should have {count} points")
    return table, end


def _wall(value: Any) -> float:
    try:
        return float_of(value)
    except (KeyError, TypeError, ValueError) as error:
        raise damaged("a time is not a number") from error


def _is_int(value: Any) -> bool:
    return type(value) is int


def _is_size(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_size, value))
