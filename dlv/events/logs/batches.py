"""Records on their way to points: repeated ones many at a time, the others one by one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dlv.events.formats import summaries
from dlv.events.formats.summaries import WITH_VALUES, Event, Values
from dlv.events.formats.tfevents import FOOT, HEAD, Framing, Records
from dlv.events.formats.wire import Malformed
from dlv.events.logs import blocks
from dlv.events.logs.gathering import Gathering
from dlv.events.logs.run_state import RunState, Series
from dlv.events.logs.templates import Matches, Templates

_NONE = -(1 << 40)  # the number of no series
_LONG = 1 << 17  # bytes of a period's run after which another may begin soon
FEW, _MANY = 64, 1 << 13  # records of a batch


class Batches:
    """Takes a log window by window; the points are handed to a Gathering."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._framing = Framing()
        self._templates = Templates()
        self._values = Values()
        self._period: blocks.Period | None = None
        self._most = FEW
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

    def _repeat(self, data: bytes, at: int, gathered: Gathering) -> int:
        """Where the rows of the period end."""
        assert self._period is not None
        while True:
            after = None if self._run.marks_restarts else self._run.step
            rows, points, step = self._period.run(data, at, after)
            if not rows:
                return at
            for each in points:
                gathered.extend(each.series, (each.steps, each.walls, each.values))
            self._run.step = step
            at += rows * self._period.size

    def _fits(self, data: bytes, at: int) -> bool:
        """Whether what is left of the window may be the begin of a row."""
        assert self._period is not None
        return data[at : at + HEAD] == self._period.data[: min(HEAD, len(data) - at)]

    def _find_period(self, data: bytes, records: Records, kinds: NDArray[np.int64]) -> None:
        count = blocks.shortest(kinds)
        self._most = min(2 * self._most, _MANY)
        if not count:
            return
        starts, ends = records.starts[-count:], records.ends[-count:]
        low, high = int(starts[0]) - HEAD, int(ends[-1]) + FOOT
        if high - low > blocks.MOST_BYTES:
            return
        # A kind is a template and, in its last bits, the bytes of the step.
        pairs = [(self._templates.all[kind >> 4], kind & 15) for kind in kinds[-count:].tolist()]
        self._period = blocks.Period(data[low:high], pairs, (ends - starts).tolist())

    # Batches

    def _batch(
        self, data: bytes, where: int, records: Records, gathered: Gathering
    ) -> NDArray[np.int64]:
        """Take the records; what repeats in them: the same number for the same kind, -1: none."""
        matches = self._templates.match(data, records.starts, records.ends)
        others = np.flatnonzero(matches.templates < 0).tolist()
        events = {index: _event(data, records, index, where, gathered) for index in others}
        if not self._in_order(matches, events):
            for index in range(len(records.starts)):
                event = events.get(index) or _event(data, records, index, where, gathered)
                self._single(event, data, records, index, where, gathered)
                if gathered.full:
                    records.shorten(index + 1)
                    break
            return np.full(len(records.starts), -1)
        ahead = Ahead(matches, self._templates, gathered)
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
            values = self._values.of(event.content) if event.kind == summaries.SUMMARY else []
            self._templates.learn(body, values, self._run.series)
            gathered.add(event, values)
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

    def __init__(self, matches: Matches, templates: Templates, gathered: Gathering) -> None:
        self._gathered = gathered
        self.now = 0  # the record at hand: what stands before it may be given
        self._templates = templates
        self._more: list[Series] = []  # series of which no record of the batch is matched
        self._numbers: dict[Series, int] = {}  # and theirs
        # Of the others: record, number of the series, step, wall, value.
        self._others: list[tuple[int, int, int, float, float]] = []
        order = [records for records, _, _ in matches.numbers]
        series = [
            templates.series_of(slot)[matches.templates[records]]
            for records, slot, _ in matches.numbers
        ]
        values = [numbers for _, _, numbers in matches.numbers]
        self._order = np.concatenate([np.empty(0, np.int64), *order])
        self._of = np.concatenate([np.empty(0, np.int64), *series])
        self._values = np.concatenate([np.empty(0), *values])
        self._steps, self._walls = matches.steps[self._order], matches.walls[self._order]

    def divert(self, series: Series, event: Event, value: float) -> None:
        number = self._templates.numbers.get(series)
        if number is None:
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
            series = self._more[-1 - number] if number < 0 else self._templates.series[number]
            self._gathered.extend(series, columns)
        self._others = []
        left = ~ready
        self._order, self._of, self._values = self._order[left], self._of[left], self._values[left]
        self._steps, self._walls = self._steps[left], self._walls[left]
