"""A metric over steps as it is frozen in a pack: a head, and points in blocks of 4096."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dlv.canonical import hash_bytes
from dlv.errors import UsageError
from dlv.events.formats import heads
from dlv.events.formats.heads import BLOCK, FORMAT, SCALARS, Head, blocks, damaged

__all__ = ["BLOCK", "FORMAT", "SCALARS", "Scalars", "blocks", "decode", "encode", "series_hash"]


ADVICE = "old and new points are both shown; `--restarts preempt` hides the old ones"


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
        points.append((add("points", data), len(steps)))
    head = Head(
        *(series.run, series.tag, "scalars", SCALARS, b""),
        *(series.display_name, series.description, tuple(points)),
    )
    return add("series", head.encode())


def decode(head: bytes, read: Callable[[str, str], bytes], restarts: str = "marked") -> Scalars:
    """The series of a head, less what restarts have hidden; `read(kind, hash)` brings blocks."""
    found = heads.decode(head)
    if found.data_class != SCALARS:
        raise UsageError(
            f"the series `{found.tag}` holds no numbers, one for each step",
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
    return encode(series, lambda _, data: hash_bytes(data))
