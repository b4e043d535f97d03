"""Events that say again what an earlier one said, but for time, step and numbers.

Most of a log is such: what stands between step and number (the tag, perhaps metadata) repeats,
also in other runs of the experiment. The bytes of many events are compared at once with those of
events that were parsed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.dataclass import dataclass
from dlv.events.formats import summaries
from dlv.events.formats.summaries import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    Malformed,
    Value,
    fields,
    varint,
)
from dlv.events.logs.gathering import first_metadata
from dlv.events.logs.points import SCALAR, Metadata, Series
from dlv.kinds import Floats

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

WALL = b"\x09"  # the key before the time, with which an event begins
STEP = 0x10
REST = 9  # where the step is, if there is one
MOST_DIGITS = 8  # bytes of a step: more are parsed one by one
_LEAST, _MOST_REST, _MOST = REST + 9, 1 << 14, 1 << 16

_NUMERIC = {summaries.SIMPLE, summaries.TENSOR}

Slot = tuple[int, int]  # where a number stands behind the step, and its width: 4 or 8


@dataclass(frozen=True)
class Template:
    """What the events of one kind have in common."""

    slots: tuple[Slot, ...]
    tags: tuple[int, ...]  # by their numbers
    # Of the tags, in a run where such an event comes first.
    metadata: tuple[Metadata, ...]


@dataclass
class _Shape:
    """Templates of one length whose numbers stand in the same places."""

    slots: tuple[Slot, ...]
    offsets: list[int]  # of the words that are compared
    mask: Words
    factors: Words
    known: dict[bytes, int] = field(default_factory=dict)  # compared bytes -> id
    hashes: Words = field(default_factory=lambda: np.zeros(0, np.uint64))
    ids: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    rows: Words = field(default_factory=lambda: np.zeros((0, 0), np.uint64))

    def add(self, words: Words, number: int) -> bool:
        key = (words & self.mask).tobytes()
        if key in self.known:
            return False
        self.known[key] = number
        return True

    def _settle(self) -> None:
        """Bring the tables up to what is known."""
        every = np.array([np.frombuffer(key, np.uint64) for key in self.known])
        hashes = (every * self.factors).sum(axis=1, dtype=np.uint64)
        order = np.argsort(hashes, kind="stable")
        self.hashes, self.rows = hashes[order], np.ascontiguousarray(every[order].T)
        self.ids = np.array(list(self.known.values()), np.int64)[order]

    def match(self, words: Words) -> Ints:
        """The template of each column of `words`, -1: none."""
        if len(self.ids) != len(self.known):
            self._settle()
        here = words & self.mask[:, None]
        if len(self.ids) == 1:
            same = (here == self.rows).all(axis=0)
            return np.where(same, self.ids[0], -1)
        hashes = (here * self.factors[:, None]).sum(axis=0, dtype=np.uint64)
        at = np.minimum(np.searchsorted(self.hashes, hashes), len(self.ids) - 1)
        same = (here == self.rows[:, at]).all(axis=0)
        return np.where(same, self.ids[at], -1)


@dataclass
class Matches:
    """Which records of a batch are of a template (-1: of none), and what they say."""

    templates: Ints
    walls: Floats
    steps: Ints
    digits: Ints  # bytes of the step
    # For each number of a record: which record, which template's slot, and the number.
    numbers: list[tuple[Ints, int, Floats]]

    def drop(self, templates: Sequence[int]) -> None:
        """Treat the records of these templates as unmatched."""
        self.templates[np.isin(self.templates, templates)] = -1
        kept = []
        for records, slot, numbers in self.numbers:
            matched = self.templates[records] >= 0
            kept.append((records[matched], slot, numbers[matched]))
        self.numbers = kept


class Templates:
    """Templates that all runs of an experiment share, since they mostly log the same tags."""

    def __init__(self) -> None:
        self.all: list[Template] = []
        self.tags: list[str] = []  # of all templates
        self.numbers: dict[str, int] = {}  # where they are in it
        self.values = summaries.Values()
        self._of_slot: list[list[int]] = []  # the number of the tag of a slot, by template
        self._arrays: dict[int, Ints] = {}
        self._once: set[int] = set()
        self._trials = 1 << 10  # events of several values that may still be looked at
        self._shapes: dict[int, list[_Shape]] = {}

    def learn(self, body: bytes, values: Sequence[Value], series: Mapping[str, Series]) -> None:
        """Remember an event with these values, if they are scalars of known series."""
        if len(self.all) >= _MOST or body[:1] != WALL or not _LEAST <= len(body) <= _MOST_REST:
            return
        if not values or values[0].kind not in _NUMERIC or values[-1].kind not in _NUMERIC:
            return
        if len(values) > 1:
            # Of several tags there may be any number of kinds that never come again.
            if not self._trials:
                return
            self._trials -= 1
        try:
            start = REST
            if body[start] == STEP:
                _, start = varint(body, start + 1, len(body))
            found = _scalars(body, start)
        except Malformed:
            return
        size = len(body) - start
        if not found or not 8 <= size <= _MOST_REST:
            return
        if any(tag not in series or series[tag].data_class != SCALAR for tag, _, _ in found):
            return
        slots = tuple((at - start, width) for _, at, width in found)
        if len(slots) > 1:
            if not self._seen_before(body, start, slots):
                return
            self._trials += 2
        shape = self._shape(size, slots)
        words = np.array(
            [int.from_bytes(body[start + at : start + at + 8], "little") for at in shape.offsets],
            np.uint64,
        )
        if shape.add(words, len(self.all)):
            tags = tuple(self._number(tag) for tag, _, _ in found)
            first = (first_metadata(value.tag, value) for value in values)
            self._append(Template(slots, tags, tuple(first)))

    def _number(self, tag: str) -> int:
        number = self.numbers.setdefault(tag, len(self.tags))
        if number == len(self.tags):
            self.tags.append(tag)
        return number

    def _seen_before(self, body: bytes, start: int, slots: tuple[Slot, ...]) -> bool:
        """Whether such an event came before."""
        rest = bytearray(body[start:])
        for at, width in slots:
            rest[at : at + width] = bytes(width)
        key = hash((bytes(rest), slots))
        if key in self._once:
            return True
        if len(self._once) < _MOST:
            self._once.add(key)
        return False

    def _append(self, template: Template) -> None:
        while len(self._of_slot) < len(template.tags):
            self._of_slot.append([-1] * len(self.all))
        self.all.append(template)
        for slot, numbers in enumerate(self._of_slot):
            numbers.append(template.tags[slot] if slot < len(template.tags) else -1)

    def tags_of(self, slot: int) -> Ints:
        """For each template the number of the tag to which a slot belongs."""
        found = self._arrays.get(slot)
        if found is None or len(found) != len(self.all):
            found = self._arrays[slot] = np.array(self._of_slot[slot], np.int64)
        return found

    def _shape(self, size: int, slots: tuple[Slot, ...]) -> _Shape:
        for shape in self._shapes.setdefault(size, []):
            if shape.slots == slots:
                return shape
        kept = np.full(size, 0xFF, np.uint8)
        for at, width in slots:
            kept[at : at + width] = 0
        # The last word overlaps the one before it.
        offsets = [*range(0, size - 7, 8), *([size - 8] if size % 8 else [])]
        mask = np.array([kept[at : at + 8].view("<u8")[0] for at in offsets], np.uint64)
        factors = np.random.default_rng(size).integers(1 << 63, size=len(offsets), dtype=np.uint64)
        shape = _Shape(slots, offsets, mask, factors | np.uint64(1))
        self._shapes[size].append(shape)
        return shape

    def match(self, data: bytes, first: Ints, last: Ints) -> Matches:
        """Hold the records data[first[i]:last[i]] against all templates."""
        found = np.full(len(first), -1, np.int64)
        array = np.frombuffer(data, np.uint8)
        some = np.flatnonzero(last - first >= _LEAST)
        some = some[array[first[some]] == WALL[0]]
        at, steps, digits = _steps(array, first, some)
        walls = np.zeros(len(first))
        numbers: list[tuple[Ints, int, Floats]] = []
        if not self.all:
            return Matches(found, walls, steps, digits, numbers)
        words = np.ndarray((max(0, len(data) - 7),), "<u8", data, strides=(1,))
        walls[some] = words[first[some] + 1].view("<f8")
        rest = last - at
        usable = some[(digits[some] >= 0) & (rest[some] <= _MOST_REST)]
        usable = usable[np.argsort(rest[usable].astype(np.uint16), kind="stable")]
        sizes = rest[usable]
        bounds = np.flatnonzero(np.diff(sizes, prepend=-1, append=-1))
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            these = usable[low:high]
            for shape in self._shapes.get(int(sizes[low]), ()):
                columns = words[np.array(shape.offsets)[:, None] + at[these]]
                ids = shape.match(columns)
                hit = ids >= 0
                there = these[hit]
                found[there] = ids[hit]
                for slot, (offset, width) in enumerate(shape.slots):
                    numbers.append((there, slot, _numbers(data, at[there] + offset, width)))
                these = these[~hit]
                if not len(these):
                    break
        return Matches(found, walls, steps, digits, numbers)


def _numbers(data: bytes, places: Ints, width: int) -> Floats:
    layout = "<f4" if width == 4 else "<f8"
    view: NDArray[Any] = np.ndarray((max(0, len(data) - width + 1),), layout, data, strides=(1,))
    return view[places].astype(np.float64)


def _steps(array: NDArray[np.uint8], first: Ints, some: Ints) -> tuple[Ints, Ints, Ints]:
    """Where the records `some` go on behind their step, the step, its bytes (-1: too many)."""
    at, steps = first + REST, np.zeros(len(first), np.int64)
    digits = np.zeros(len(first), np.int64)
    more = some[array[at[some]] == STEP]
    at[more] += 1
    for digit in range(MOST_DIGITS):
        byte = array[at[more]]
        steps[more] |= (byte & 0x7F).astype(np.int64) << (7 * digit)
        at[more] += 1
        digits[more] += 1
        more = more[byte >= 0x80]
        if not len(more):
            break
    digits[more] = -1
    return at, steps, digits


def _scalars(body: bytes, start: int) -> list[tuple[str, int, int]]:
    """Tag, place and width of each number of an event; empty if there is anything else in it."""
    found: list[tuple[str, int, int]] = []
    events = list(fields(body, start))
    if len(events) != 1 or events[0][:2] != (summaries.SUMMARY, BYTES):
        return []
    for number, kind, a, b in fields(body, *events[0][2:]):
        if (number, kind) != (1, BYTES):
            return []
        tag, places = "", []
        for inner, inner_kind, c, d in fields(body, a, b):
            if (inner, inner_kind) == (1, BYTES):
                tag = body[c:d].decode("utf-8")
            elif (inner, inner_kind) == (summaries.SIMPLE, FIXED32):
                places.append((d, 4))
            elif (inner, inner_kind) == (summaries.TENSOR, BYTES):
                places.append(_element(body, c, d))
            elif (inner, inner_kind) != (9, BYTES):
                return []
        if len(places) != 1 or not places[0][1] or not tag:
            return []
        found.append((tag, *places[0]))
    return found


def _element(body: bytes, start: int, end: int) -> Slot:
    """The place of the one float of a tensor without axes; of width 0 if it is none."""
    dtype, places = 0, []
    for number, kind, a, b in fields(body, start, end):
        if (number, kind) == (1, VARINT):
            dtype = a
        elif (number, kind) == (2, BYTES):
            if a != b:
                return 0, 0
        elif number in (4, 5, 6):
            width = {BYTES: b - a, FIXED32: 4, FIXED64: 8}.get(kind, 0)
            places.append((number, a if kind == BYTES else b, width))
        else:
            return 0, 0
    if len(places) != 1:
        return 0, 0
    number, place, width = places[0]
    expected = {1: (4, 5), 2: (8, 6)}.get(dtype, (0, 0))
    return (place, width) if width == expected[0] and number in (4, expected[1]) else (0, 0)
