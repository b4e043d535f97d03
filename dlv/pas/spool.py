"""Lanes of encoded chunks on their way into packs, in the order that prefix reads want."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Generic, TypeVar

from dlv.canonical import WRITER
from dlv.dataclass import dataclass
from dlv.pas.encode import Encoded
from dlv.pas.footer import Encoding, Footer
from dlv.pas.packs import PackWriter, Sink

# Lanes in the order in which a pack holds them.
TABLES, BOUNDS, SMALL, PLANES, REST = 0, 1, 2, 3, 1000

# All lanes together wait in memory up to this; then the largest gets a pack of its own.
BUFFER = 8 << 20
# A pack whose footer would grow beyond this is followed by another.
FOOTER_ROOM = 8 << 20

Owner = Encoding | str
S = TypeVar("S", bound=Sink)


@dataclass(frozen=True)
class Pending:
    """An encoded chunk that is not in a pack yet."""

    kind: str
    plane: int | None
    members: tuple[tuple[Owner, int, int], ...]
    encoded: Encoded

    @property
    def cost(self) -> int:
        """What it takes while it waits, roughly."""
        return len(self.encoded.data) + 500 + 100 * len(self.members)


@dataclass
class _Lane:
    waiting: list[Pending] = field(default_factory=list)
    cost: int = 0


def lane_of(kind: str, plane: int | None, *, small: bool = False) -> int:
    """Which lane a chunk belongs to."""
    if small and kind == "plane":
        return SMALL
    if kind == "plane" and plane is not None:
        return PLANES + plane
    return {"table": TABLES, "bounds": BOUNDS, "side": PLANES}.get(kind, REST)


class Spool(Generic[S]):
    """Collects chunks and writes them: little into one pack, much into a pack per lane.

    Every byte is written once. What goes where depends on the sequence of `put` alone, so
    equal input gives equal packs.
    """

    def __init__(
        self, open_sink: Callable[[], S], *, writer: str = WRITER, buffer: int = BUFFER
    ) -> None:
        self._open_sink = open_sink
        self._writer = writer
        self._buffer = buffer
        self._lanes: dict[int, _Lane] = {}
        self._spilled: dict[int, _Output[S]] = {}
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """Cost of what is in memory only."""
        return self._waiting

    def add(self, lane: int, chunk: Pending) -> None:
        spilled = self._spilled.get(lane)
        if spilled is not None:
            spilled.write(chunk)
            return
        target = self._lanes.setdefault(lane, _Lane())
        target.waiting.append(chunk)
        target.cost += chunk.cost
        self._waiting += chunk.cost
        while self._waiting > self._buffer:
            self._spill(max(self._lanes, key=lambda number: (self._lanes[number].cost, -number)))

    def finish(self, empty: Iterable[Encoding] = ()) -> list[tuple[S, Footer]]:
        """Write what still waits as one pack and close all; `empty` have rows but no chunks."""
        rest = _Output(self._open_sink, self._writer)
        for number in sorted(self._lanes):
            lane = self._lanes.pop(number)
            for chunk in lane.waiting:
                rest.write(chunk)
        for encoding in empty:
            rest.declare(encoding)
        packs = rest.finish()
        for number in sorted(self._spilled):
            packs += self._spilled[number].finish()
        return packs

    def _spill(self, number: int) -> None:
        lane = self._lanes.pop(number)
        self._waiting -= lane.cost
        output = self._spilled[number] = _Output(self._open_sink, self._writer)
        for chunk in lane.waiting:
            output.write(chunk)


class _Output(Generic[S]):
    """A sequence of packs, the next one begun when a footer is full."""

    def __init__(self, open_sink: Callable[[], S], writer: str) -> None:
        self._open_sink = open_sink
        self._writer = writer
        self._pack: PackWriter | None = None
        self._sink: S | None = None
        self._done: list[tuple[S, Footer]] = []

    def write(self, chunk: Pending) -> None:
        # Only between objects: a pack holds a plane whole or not at all.
        pack = self._current(may_change=chunk.members[0][1] == 0)
        members = [
            (owner if isinstance(owner, str) else pack.add_encoding(owner), start, count)
            for owner, start, count in chunk.members
        ]
        encoded = chunk.encoded
        pack.add_chunk(
            chunk.kind,
            chunk.plane,
            members,
            encoded.raw,
            encoded.codec,
            encoded.data,
            blake3=encoded.blake3,
        )

    def declare(self, encoding: Encoding) -> None:
        self._current(may_change=True).add_encoding(encoding)

    def finish(self) -> list[tuple[S, Footer]]:
        if self._pack is not None and self._sink is not None:
            self._done.append((self._sink, self._pack.finish()))
            self._pack = None
        return self._done

    def _current(self, *, may_change: bool) -> PackWriter:
        if self._pack is not None and may_change and self._pack.footer_estimate > FOOTER_ROOM:
            self.finish()
        if self._pack is None:
            self._sink = self._open_sink()
            self._pack = PackWriter(self._sink, writer=self._writer)
        return self._pack
