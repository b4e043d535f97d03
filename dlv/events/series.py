"""A metric over steps as it is frozen in a pack: a head, and points in blocks of 4096."""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dlv.canonical import WRITER, dumps, hash_bytes, is_hash, loads
from dlv.errors import Damaged, NewerFormat, UsageError

FORMAT = "dlv/series/1"
BLOCK = 4096
SCALARS = 1

_KEYS = {
    *("format", "writer", "run", "tag", "plugin", "data_class", "plugin_content"),
    *("display_name", "description", "n", "points", "purges"),
}


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


def encode(series: Scalars, add: Callable[[str, bytes], str]) -> str:
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
        points.append([add("points", data), len(steps)])
    return add(
        "series",
        dumps(
            {
                "format": FORMAT,
                "writer": WRITER,
                "run": series.run,
                "tag": series.tag,
                "plugin": "scalars",
                "data_class": SCALARS,
                "plugin_content": base64.b64encode(b"").decode(),
                "display_name": series.display_name,
                "description": series.description,
                "n": len(series),
                "points": points,
                "purges": [],
            }
        ),
    )


def decode(head: bytes, read: Callable[[str, str], bytes]) -> Scalars:
    """The series of a head; `read(kind, hash)` brings its blocks."""
    value = loads(head, "series")
    if not isinstance(value, dict) or not isinstance(value.get("format"), str):
        raise _damaged("it names no format")
    if value["format"] != FORMAT:
        raise NewerFormat(
            f"a metric series has the format `{value['format']}`",
            why=f"this dlv reads `{FORMAT}`; it was written by {value.get('writer')}",
            hint="pip install --upgrade dlv",
        )
    if missing := sorted(_KEYS - set(value)):
        raise _damaged(f"keys are missing: {', '.join(missing)}")
    for key in sorted(set(value) - _KEYS):
        raise _newer(value, f"the key `{key}`")
    if value["data_class"] != SCALARS:
        raise _newer(value, f"the data class {value['data_class']!r}")
    points = list(_points(value))
    if type(value["n"]) is not int or value["n"] != sum(count for _, count in points):
        raise _damaged(f"{value['n']!r} points are announced, its blocks hold another number")
    steps, walls, values = array("q"), array("d"), array("d")
    for digest, count in points:
        data = read("points", digest)
        if len(data) != 24 * count:
            raise _damaged(f"a block of {count} points has {len(data)} bytes")
        steps.extend(_column("q", data[: 8 * count]))
        walls.extend(_column("d", data[8 * count : 16 * count]))
        values.extend(_column("d", data[16 * count :]))
    texts = (value["run"], value["tag"], value["display_name"], value["description"])
    if not all(isinstance(text, str) for text in texts):
        raise _damaged("a name is not text")
    return Scalars(value["run"], value["tag"], steps, walls, values, *texts[2:])


def blocks(head: bytes) -> list[str]:
    """The hashes of the blocks that a head names."""
    value = loads(head, "series")
    return [digest for digest, _ in _points(value)]


def _points(value: Any) -> Iterable[tuple[str, int]]:
    points = value.get("points") if isinstance(value, dict) else None
    if not isinstance(points, list):
        raise _damaged("it lists no points")
    for item in points:
        if not (isinstance(item, list) and len(item) == 2 and is_hash(item[0])):
            raise _damaged("a block has no hash")
        if not (type(item[1]) is int and 0 < item[1] <= BLOCK):
            raise _damaged("a block has an impossible length")
        yield item[0], item[1]


def _newer(value: dict[str, Any], thing: str) -> NewerFormat:
    return NewerFormat(
        f"a metric series has {thing}, which this dlv does not know",
        why=f"it was written by {value.get('writer')}",
        hint="pip install --upgrade dlv",
    )


def _damaged(why: str) -> Damaged:
    return Damaged("a metric series is damaged", why=why, hint="dlv fsck")


def series_hash(series: Scalars) -> str:
    """The name that `encode` will give it."""
    return encode(series, lambda _, data: hash_bytes(data))
