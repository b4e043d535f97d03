"""Records on their way to points: repeated ones many at a time, the others one by one.

Old kinds of summaries become scalars, tensors and sequences of blobs, as when TensorBoard loads a
log (its data_compat and dataclass_compat), but in windows, so that memory does not grow with the
file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dlv.dataclass import dataclass
from dlv.errors import DlvError, NotFound, StorageError
from dlv.events.formats import summaries, tfevents
from dlv.events.formats.summaries import WITH_VALUES, Event, Malformed
from dlv.events.formats.tfevents import FOOT, HEAD, Framing, Records
from dlv.events.logs.gathering import Gathering, data_class_of
from dlv.events.logs.points import SCALAR, RunState, ScalarPoints, Series, Window
from dlv.events.logs.templates import REST, Matches, Slot, Template, Templates

LEAST_ROWS = 4
MOST_RECORDS, MOST_BYTES = 2048, 1 << 20  # of a period
BLOCK = 1 << 20  # bytes that are looked at together, so that they stay in the cache
_TILE = 1 << 12


@dataclass(frozen=True)
class Points:
    """Points of one series."""

    series: Series
    steps: NDArray[np.int64]
    walls: NDArray[np.float64]
    values: NDArray[np.float64]


@dataclass(frozen=True)
class _Group:
    """Records of a period that are cut alike."""

    records: list[int]
    bodies: list[int]  # where they begin in the period
    length: int
    digits: int
    slots: tuple[Slot, ...]


class Period:
    """`kinds`: the template and the bytes of the step of each record; `data`: one period."""

    def __init__(
        self,
        data: bytes,
        kinds: Sequence[tuple[Template, int]],
        sizes: Sequence[int],
        series: Sequence[Sequence[Series]],  # of each record
    ):
        self.size = len(data)
        self.data = data
        self.series = series
        mask = np.full(self.size, 0xFF, np.uint8)
        groups: dict[tuple[int, int, tuple[Slot, ...]], list[int]] = {}
        bodies, at = [], 0
        for record, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
            template, digits = kind
            body = at + HEAD
            bodies.append(body)
            rest = body + REST + (digits and digits + 1)
            mask[body + 1 : body + REST] = 0
            mask[rest - digits : rest] = 0x80
            for slot, width in template.slots:
                mask[rest + slot : rest + slot + width] = 0
            at += HEAD + size + FOOT
            mask[at - FOOT : at] = 0
            groups.setdefault((size, digits, template.slots), []).append(record)
        self.groups = [
            _Group(records, [bodies[each] for each in records], size, digits, slots)
            for (size, digits, slots), records in groups.items()
        ]
        self._tiles = max(1, _TILE // self.size)
        self._mask = np.tile(mask, self._tiles)
        self._row = np.tile(np.frombuffer(data, np.uint8), self._tiles)

    def run(self, data: bytes, start: int, after: int | None) -> tuple[int, list[Points], int]:
        """Rows that repeat the period from byte `start` on: how many, their points, the last step.

        `after`: the step must never fall, from this one on.
        """
        rows = min((len(data) - start) // self.size, max(LEAST_ROWS, BLOCK // self.size))
        rows = self._alike(data, start, rows)
        columns: list[tuple[_Group, Any, Any, Any]] = []
        for group in self.groups:
            if not rows:
                break
            good, group_steps, walls, numbers = self._columns(group, data, start, rows)
            rows = min(rows, good)
            columns.append((group, group_steps, walls, numbers))
        if not rows:
            return 0, [], 0
        steps: list[NDArray[np.int64]] = [np.empty(0, np.int64)] * len(self.series)
        for group, group_steps, _, _ in columns:
            for index, record in enumerate(group.records):
                steps[record] = group_steps[index, :rows]
        if after is not None:
            order = np.concatenate(([after], np.stack(steps, axis=1).ravel()))
            falls = np.flatnonzero(order[1:] < order[:-1])
            if len(falls):
                rows = int(falls[0]) // len(steps)
        if not rows:
            return 0, [], 0
        return rows, self._points(columns, steps, rows), int(steps[-1][rows - 1])

    def _alike(self, data: bytes, start: int, rows: int) -> int:
        """How many rows have the template's bytes where nothing may differ."""
        tiled = rows // self._tiles * self._tiles
        for low, high, tiles in ((0, tiled, self._tiles), (tiled, rows, 1)):
            if low == high:
                continue
            size = tiles * self.size
            block = np.frombuffer(
                data, np.uint8, (high - low) * self.size, start + low * self.size
            ).reshape(-1, size)
            other = block ^ self._row[:size]
            other &= self._mask[:size]
            if other.any():
                wrong = other.reshape(-1, self.size).any(axis=1)
                return low + int(np.flatnonzero(wrong)[0])
        return rows

    def _columns(
        self, group: _Group, data: bytes, start: int, rows: int
    ) -> tuple[int, NDArray[np.int64], NDArray[np.float64], list[NDArray[np.float64]]]:
        """Rows whose sums are right; steps, walls and numbers of each record of the group."""
        sums = np.zeros((len(group.bodies), rows), np.uint32)
        walls = self._varying(group, data, start, rows, 1, "<u8", 8, sums)
        digits, first = group.digits, REST + 1
        steps = np.zeros((len(group.bodies), rows), np.int64)
        rest = REST
        if digits:
            raw = self._varying(group, data, start, rows, first, "<u8", digits, sums)
            for digit in range(digits):
                steps |= (raw >> np.uint64(digit) & np.uint64(0x7F << 7 * digit)).view(np.int64)
            rest = first + digits
        numbers = []
        for offset, width in group.slots:
            layout = "<u4" if width == 4 else "<u8"
            raw = self._varying(group, data, start, rows, rest + offset, layout, width, sums)
            numbers.append(raw.view("<f4" if width == 4 else "<f8").astype(np.float64))
        kept = self._gather(group, data, start, rows, group.length, "<u4")
        base = self._own(group, group.length, 4)
        expected = tfevents.unmasked(kept) ^ tfevents.unmasked(base.astype(np.uint32))[:, None]
        wrong = (expected != sums).any(axis=0)
        good = int(np.flatnonzero(wrong)[0]) if wrong.any() else rows
        return good, steps, walls.view("<f8"), numbers

    def _gather(
        self, group: _Group, data: bytes, start: int, rows: int, offset: int, layout: str
    ) -> NDArray[Any]:
        column = np.empty((len(group.bodies), rows), layout)
        for index, body in enumerate(group.bodies):
            column[index] = np.ndarray((rows,), layout, data, start + body + offset, (self.size,))
        return column

    def _own(self, group: _Group, offset: int, width: int) -> NDArray[np.uint64]:
        """What the template has there."""
        return np.array(
            [
                int.from_bytes(self.data[body + offset : body + offset + width], "little")
                for body in group.bodies
            ],
            np.uint64,
        )

    def _varying(
        self,
        group: _Group,
        data: bytes,
        start: int,
        rows: int,
        offset: int,
        layout: str,
        width: int,
        sums: NDArray[np.uint32],
    ) -> NDArray[Any]:
        """A column of each record; what it adds to the sums that the template has is added."""
        column = self._gather(group, data, start, rows, offset, layout)
        size = column.itemsize
        if width < size:
            column &= np.array((1 << 8 * width) - 1, column.dtype)
        other = column ^ self._own(group, offset, width).astype(column.dtype)[:, None]
        lanes = int(np.bitwise_or.reduce(other, axis=None))
        single = other.view(np.uint8).reshape(*other.shape, size)
        for byte in range(width):
            if lanes >> 8 * byte & 0xFF:
                table = tfevents.behind(group.length - 1 - offset - byte)
                sums ^= table.take(single[:, :, byte], mode="wrap")
        return column

    def _points(
        self, columns: list[Any], steps: list[NDArray[np.int64]], rows: int
    ) -> list[Points]:
        """By series, in the order written."""
        found: dict[Series, list[tuple[int, int, Any, Any]]] = {}
        for group, _, walls, numbers in columns:
            for index, record in enumerate(group.records):
                for slot, each in enumerate(self.series[record]):
                    part = (record, slot, walls[index, :rows], numbers[slot][index, :rows])
                    found.setdefault(each, []).append(part)
        points = []
        for each, parts in found.items():
            parts.sort(key=lambda part: part[:2])
            rows_of = [
                [steps[part[0]][:rows] for part in parts],
                [part[2] for part in parts],
                [part[3] for part in parts],
            ]
            # One column is taken as it is; several are woven together row by row.
            joined = [c[0] if len(c) == 1 else np.stack(c, axis=1).ravel() for c in rows_of]
            points.append(Points(each, *joined))
        return points


def shortest_period(kinds: NDArray[np.int64]) -> int:
    """The period of which the latter half of `kinds` is a repetition; 0: there is none.

    Negative kinds are never repeated.
    """
    count = len(kinds)
    if not count or kinds[-1] < 0:
        return 0
    for period in (count - 1 - np.flatnonzero(kinds[:-1] == kinds[-1])[::-1]).tolist():
        if 2 * period > count or period > MOST_RECORDS:
            return 0
        # A loop within a loop repeats itself too, but never for long.
        first = count - max(2 * period, count // 2)
        if (kinds[first + period :] == kinds[first : count - period]).all():
            return period if (kinds[count - period :] >= 0).all() else 0
    return 0


_NONE = -(1 << 40)  # the number of no series
_LONG = 1 << 17  # bytes of a period's run after which another may begin soon
FEW, _FIRST, _MANY = 64, 1 << 9, 1 << 13  # records of a batch; of the first of a known kind


class Batches:
    """Takes a log window by window; the points are handed to a Gathering."""

    def __init__(self, run: RunState, templates: Templates) -> None:
        self._run = run
        self._framing = Framing()
        self._templates = templates
        self._series: dict[int, Series] = {}  # by the numbers of the tags of templates that are met
        self._met: set[int] = set()  # templates whose series are all there
        self._period: Period | None = None
        self._most = 1  # records of the next batch; the first record says the file's version
        self._tried_shared = False  # those of other runs, on this one
        self.damage: str | None = None

    def take(self, data: bytes, where: int, gathered: Gathering, *, last: bool) -> tuple[int, int]:
        """Bytes of `data` (at byte `where` of the file) that were used, and what is needed next.

        With `last` there is nothing behind `data`: else a period may wait to be whole. What is
        left when the gathering is full comes in the next window.
        """
        # What is too large for 32 bits, or a NaN of the signalling kind, is as good as any number.
        with np.errstate(over="ignore", invalid="ignore"):
            return self._take(data, where, gathered, last)

    def _take(self, data: bytes, where: int, gathered: Gathering, last: bool) -> tuple[int, int]:
        at = 0
        while True:
            if self._period is not None:
                begin, at = at, self._repeat(data, at, gathered)
                if at - begin > _LONG:
                    self._most = FEW
                if not last and len(data) - at < self._period.size and self._fits(data, at):
                    return at, self._period.size
                self._period = None
            records = self._framing.cut(data, at, self._most)
            kinds = self._batch(data, where, records, gathered)
            if self._most == 1 and self._templates.all:
                self._most = _FIRST
            at = records.stop
            if gathered.full:
                return at, 0
            if records.damage:
                self.damage = records.damage
                return at, 0
            if records.needed:
                return at, records.needed
            self._find_period(data, records, kinds)

    # Periods

    def _repeat(self, data: bytes, start: int, gathered: Gathering) -> int:
        """Where the rows of the period end."""
        assert self._period is not None
        while True:
            after = None if self._run.marks_restarts else self._run.step
            rows, points, step = self._period.run(data, start, after)
            if not rows:
                return start
            for each in points:
                gathered.extend(each.series, (each.steps, each.walls, each.values))
            self._run.step = step
            start += rows * self._period.size

    def _fits(self, data: bytes, start: int) -> bool:
        """Whether what is left of the window may be the begin of a row."""
        assert self._period is not None
        return data[start : start + HEAD] == self._period.data[: min(HEAD, len(data) - start)]

    def _find_period(self, data: bytes, records: Records, kinds: NDArray[np.int64]) -> None:
        count = shortest_period(kinds)
        self._most = min(max(FEW, 2 * self._most), _MANY)
        if not count:
            return
        starts, ends = records.starts[-count:], records.ends[-count:]
        low, high = int(starts[0]) - HEAD, int(ends[-1]) + FOOT
        if high - low > MOST_BYTES:
            return
        # A kind is a template and, in its last bits, the bytes of the step.
        pairs = [(self._templates.all[kind >> 4], kind & 15) for kind in kinds[-count:].tolist()]
        series = [[self._series[tag] for tag in template.tags] for template, _ in pairs]
        self._period = Period(data[low:high], pairs, (ends - starts).tolist(), series)

    # Batches

    def _batch(
        self, data: bytes, where: int, records: Records, gathered: Gathering
    ) -> NDArray[np.int64]:
        """Take the records; what repeats in them: the same number for the same kind, -1: none."""
        matches, events = self._parted(data, where, records, gathered)
        if not self._tried_shared and len(events) > FEW and 2 * len(events) > len(records.starts):
            # The run is unlike those before, so templates are learnt from a few of its events.
            records.shorten(FEW)
            matches, events = self._parted(data, where, records, gathered)
            self._most = FEW
        self._tried_shared = self._tried_shared or self._most > 1
        if not self._in_order(matches, events):
            for index in range(len(records.starts)):
                event = events.get(index) or _event(data, records, index, where, gathered)
                self._single(event, data, records, index, where, gathered)
                if gathered.full:
                    records.shorten(index + 1)
                    break
            return np.full(len(records.starts), -1)
        if self._run.wall is None and len(matches.templates):
            first = int(np.argmax(matches.templates >= 0))
            earlier = any(event for index, event in events.items() if index < first)
            if matches.templates[first] >= 0 and not earlier:
                self._run.wall = float(matches.walls[first])
        ahead = Ahead(matches, self._templates, self._series, gathered)
        gathered.divert, gathered.catch_up = ahead.divert, ahead.give
        for index, each in events.items():
            ahead.now = index
            self._single(each, data, records, index, where, gathered)
            if gathered.full:
                records.shorten(index + 1)
                break
        count = ahead.now = len(records.starts)
        gathered.divert = gathered.catch_up = None
        ahead.give()
        matched = np.flatnonzero(matches.templates[:count] >= 0)
        if len(matched):
            latest = int(matched[-1])
            later = (event for i, event in events.items() if latest < i < count)
            if not any(event and event.kind in WITH_VALUES for event in later):
                self._run.step = int(matches.steps[latest])
        kinds = matches.templates << 4 | np.maximum(matches.digits, 0)
        return np.where(matches.templates < 0, -1, kinds)[:count]

    def _parted(
        self, data: bytes, where: int, records: Records, gathered: Gathering
    ) -> tuple[Matches, dict[int, Event | None]]:
        """Return which records match a template, and the parsed events of all others."""
        matches = self._templates.match(data, records.starts, records.ends)
        events: dict[int, Event | None] = {}
        for _ in range(2):
            for index in np.flatnonzero(matches.templates < 0).tolist():
                if index not in events:
                    events[index] = _event(data, records, index, where, gathered)
            unusable = self._meet(matches, events, gathered)
            if not unusable:
                break
            matches.drop(unusable)
        return matches, dict(sorted(events.items()))

    def _meet(
        self, matches: Matches, events: Mapping[int, Event | None], gathered: Gathering
    ) -> list[int]:
        """Begin the series of tags that are new in this run; return the templates it cannot use.

        The first value of a tag decides what its series is. So new series are begun from
        templates only if all values of the batch match one: an event parsed later may come first.
        """
        series = self._run.series
        numbers, firsts = np.unique(matches.templates, return_index=True)
        order = numbers[np.argsort(firsts)].tolist()
        new = [number for number in order if number >= 0 and number not in self._met]
        if not any(event and event.kind in WITH_VALUES for event in events.values()):
            metadata = [item for number in new for item in self._templates.all[number].metadata]
            if all(item.tag in series or data_class_of(item) == SCALAR for item in metadata):
                for item in metadata:
                    if item.tag not in series:
                        gathered.register(item)
        unusable = []
        for number in new:
            template = self._templates.all[number]
            by_tag = {tag: series.get(self._templates.tags[tag]) for tag in template.tags}
            scalars = {tag: s for tag, s in by_tag.items() if s and s.data_class == SCALAR}
            if len(scalars) == len(by_tag):
                self._met.add(number)
                self._series |= scalars
            else:
                unusable.append(number)
        return unusable

    def _in_order(self, matches: Matches, events: dict[int, Event | None]) -> bool:
        """Whether no matched record can be a restart, nor change what tells one."""
        if len(events) == len(matches.templates):
            return True
        if any(event and event.kind == summaries.FILE_VERSION for event in events.values()):
            return False
        if self._run.marks_restarts:
            return True
        steps, counts = matches.steps.copy(), np.ones(len(matches.steps), bool)
        for index, event in events.items():
            if event is not None and event.kind in WITH_VALUES:
                steps[index] = event.step
            else:
                counts[index] = False
        order = np.concatenate(([self._run.step], steps[counts]))
        return bool((order[1:] >= order[:-1]).all())

    def _single(
        self,
        event: Event | None,
        data: bytes,
        records: Records,
        index: int,
        where: int,
        gathered: Gathering,
    ) -> None:
        if event is None:
            return
        body = records.body(data, index)
        try:
            summary = event.kind == summaries.SUMMARY
            values = self._templates.values.of(event.content) if summary else []
            gathered.add(event, values)
            self._templates.learn(body, values, self._run.series)
        except Malformed as error:
            gathered.malformed(error, where + int(records.starts[index]) - HEAD)


def _event(
    data: bytes, records: Records, index: int, where: int, gathered: Gathering
) -> Event | None:
    try:
        return summaries.event(records.body(data, index))
    except Malformed as error:
        gathered.malformed(error, where + int(records.starts[index]) - HEAD)
        return None


class Ahead:
    """Scalars of a batch, of matched records and of others, until they are given in order."""

    def __init__(
        self,
        matches: Matches,
        templates: Templates,
        series_of_tags: Mapping[int, Series],
        gathered: Gathering,
    ) -> None:
        self._gathered = gathered
        self.now = 0  # the record at hand: what stands before it may be given
        self._series = series_of_tags
        self._tags = templates.numbers
        self._more: list[Series] = []  # series of which no record of the batch is matched
        self._numbers: dict[Series, int] = {}  # and theirs
        # Of the others: record, number of the series, step, wall, value.
        self._others: list[tuple[int, int, int, float, float]] = []
        order = [records for records, _, _ in matches.numbers]
        series = [
            templates.tags_of(slot)[matches.templates[records]]
            for records, slot, _ in matches.numbers
        ]
        values = [numbers for _, _, numbers in matches.numbers]
        self._order = np.concatenate([np.empty(0, np.int64), *order])
        self._of = np.concatenate([np.empty(0, np.int64), *series])
        self._values = np.concatenate([np.empty(0), *values])
        self._steps, self._walls = matches.steps[self._order], matches.walls[self._order]

    def divert(self, series: Series, event: Event, value: float) -> None:
        number = self._tags.get(series.tag, -1)
        if number not in self._series:
            number = self._numbers.setdefault(series, -1 - len(self._more))
            if number == -1 - len(self._more):
                self._more.append(series)
        self._others.append((self.now, number, event.step, event.wall, value))

    def give(self) -> None:
        """Hand over what was written before record `now`, by series."""
        ready = self._order < self.now
        others = np.array([row[:3] for row in self._others], np.int64).reshape(-1, 3)
        floats = np.array([row[3:] for row in self._others], np.float64).reshape(-1, 2)
        order = np.concatenate((self._order[ready], others[:, 0]))
        of = np.concatenate((self._of[ready], others[:, 1]))
        # Of one record and series the earlier number stays first.
        sort = np.argsort(of * (self.now + 1) + order, kind="stable")
        of = of[sort]
        steps = np.concatenate((self._steps[ready], others[:, 2]))[sort]
        walls = np.concatenate((self._walls[ready], floats[:, 0]))[sort]
        values = np.concatenate((self._values[ready], floats[:, 1]))[sort]
        bounds = np.flatnonzero(np.diff(of, prepend=_NONE, append=_NONE)).tolist()
        for low, high in pairwise(bounds):
            part = slice(low, high)
            columns = steps[part], walls[part], values[part]
            number = int(of[low])
            series = self._more[-1 - number] if number < 0 else self._series[number]
            self._gathered.extend(series, columns)
        self._others = []
        left = ~ready
        self._order, self._of, self._values = self._order[left], self._of[left], self._values[left]
        self._steps, self._walls = self._steps[left], self._walls[left]


WINDOW = 8 << 20  # bytes of a file that are looked at together


class Reading:
    """The windows of a file from `offset` on; what else is known of it stands here afterwards.

    Iterated once more, it goes on with what was written since.
    """

    def __init__(
        self,
        path: str | Path,
        offset: int,
        state: Mapping[str, Any] | None,
        templates: Templates | None = None,
    ) -> None:
        self.path = os.fspath(path)
        self.offset = offset  # the file is good up to here
        self.status: Literal["open", "damaged", "foreign"] = "open"
        self.error: str | None = None
        self._run = RunState(state)
        self._batches = Batches(self._run, templates or Templates())

    @property
    def state(self) -> dict[str, Any]:
        """What reading on, or the next file of the run, needs to know: JSON."""
        return self._run.as_json()

    @property
    def wall(self) -> float | None:
        """When the run began: the time of its first event."""
        return self._run.wall

    def __iter__(self) -> Iterator[Window]:
        self.status, self.error, self._batches.damage = "open", None, None
        try:
            with open(_regular(self.path), "rb", buffering=0) as file:
                yield from self._windows(file)
        except FileNotFoundError as error:
            raise NotFound(f"no such file: {self.path}") from error
        except OSError as error:
            raise StorageError(f"cannot read {self.path}", why=error.strerror) from error

    def _windows(self, file: IO[bytes]) -> Iterator[Window]:
        size = os.fstat(file.fileno()).st_size
        if self.offset > size:
            self.status = "damaged"
            self.error = f"the file ends at {size}, it was read up to {self.offset}"
            return
        wanted = WINDOW
        while self.offset < size:
            data = _read(file, self.offset, min(wanted, size - self.offset))
            last = self.offset + len(data) >= size or len(data) < wanted
            gathered = Gathering(self._run)
            used, needed = self._batches.take(data, self.offset, gathered, last=last)
            if self._batches.damage is not None:
                self._damaged(data, used, self._batches.damage)
            self.offset += used
            if used:
                yield gathered.window(self.offset)
            if self.status != "open":
                return
            wanted = max(WINDOW, needed)
            if gathered.full and self.offset < size:
                continue
            # A long record that is not all there yet is not read to find that out.
            if last or (needed > WINDOW and self.offset + needed > size):
                if self.offset < size:
                    self.error = f"the record at byte {self.offset} is cut off"
                return

    def _damaged(self, data: bytes, offset: int, why: str) -> None:
        where = self.offset + offset
        self.status, self.error = "damaged", f"{why}, at byte {where}"
        if where == 0:
            self.status, self.error = "foreign", "not an event file"
            if data[:2] == b"\x1f\x8b":
                self.error += ", it is compressed with gzip"


def _regular(path: str) -> str:
    """The path, if it names a file that can be read without waiting for somebody to write."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise StorageError(f"cannot read {path}", why="it is not a regular file")
    return path


def _read(file: IO[bytes], offset: int, size: int) -> bytes:
    """Up to `size` bytes; fewer only at the end of the file."""
    parts = []
    while size > 0 and (part := os.pread(file.fileno(), size, offset)):
        parts.append(part)
        offset, size = offset + len(part), size - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read(path: str | Path, *, offset: int = 0, state: Mapping[str, Any] | None = None) -> Reading:
    """Read an event file; `offset` and `state` of an earlier reading go on where it stopped."""
    return Reading(path, offset, state)


_MARK = "tfevents"  # TensorBoard's rule of what an event file is


class Tail:
    """Called again and again: (step, tag, value) of what is new. Of folders below, `RUN/TAG`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._at: dict[Path, int] = {}
        self._states: dict[Path, dict[str, Any]] = {}  # of runs

    def __call__(self) -> Iterator[tuple[int, str, float]]:
        for path in sorted(self._folder.rglob("*")):
            if _MARK in path.name and path.is_file():
                yield from self._new(path)

    def _new(self, path: Path) -> Iterator[tuple[int, str, float]]:
        run, at = path.parent, self._at.get(path, 0)
        if os.path.getsize(path) <= at:
            return
        below = run.relative_to(self._folder).as_posix()
        before = "" if below == "." else f"{below}/"
        found = read(path, offset=at, state=self._states.get(run))
        try:
            for window in found:
                for item in window.items:
                    if isinstance(item, ScalarPoints):
                        steps, values = item.steps.tolist(), item.values.tolist()
                        for step, value in zip(steps, values, strict=True):
                            yield step, f"{before}{item.tag}", value
        except DlvError:
            pass  # what was read of it so far counts
        self._at[path], self._states[run] = found.offset, found.state
