"""Event files as points: old kinds of summaries become scalars, tensors and sequences of blobs.

What TensorBoard does when it loads a log (its data_compat and dataclass_compat), with code of
our own, and in windows, so that memory does not grow with the file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Literal

from dlv.errors import NotFound, StorageError
from dlv.events import summaries
from dlv.events.gathering import Gathering
from dlv.events.points import Window
from dlv.events.run_state import RunState
from dlv.events.tfevents import HEAD, Framing, Records
from dlv.events.wire import Malformed

WINDOW = 8 << 20  # bytes of a file that are looked at together
_BATCH = 1 << 13  # records


class Reading:
    """The windows of a file from `offset` on; what else is known of it stands here afterwards."""

    def __init__(self, path: str | Path, offset: int, state: Mapping[str, Any] | None) -> None:
        self.path = os.fspath(path)
        self.offset = offset  # the file is good up to here
        self.status: Literal["open", "damaged", "foreign"] = "open"
        self.error: str | None = None
        self._run = RunState(state)
        self._framing = Framing()

    @property
    def state(self) -> dict[str, Any]:
        """What reading on, or the next file of the run, needs to know: JSON."""
        return self._run.as_json()

    @property
    def wall(self) -> float | None:
        """When the run began: the time of its first event."""
        return self._run.wall

    def __iter__(self) -> Iterator[Window]:
        try:
            with open(_regular(self.path), "rb", buffering=0) as file:
                yield from self._windows(file)
        except FileNotFoundError as error:
            raise NotFound(f"there is no file {self.path}") from error
        except OSError as error:
            raise StorageError(f"cannot read {self.path}", why=error.strerror) from error

    def _windows(self, file: IO[bytes]) -> Iterator[Window]:
        size = os.fstat(file.fileno()).st_size
        if self.offset > size:
            self.status = "damaged"
            self.error = f"the file ends at {size}, it was read up to {self.offset}"
            return
        file.seek(self.offset)
        rest, wanted = b"", WINDOW
        while self.status == "open":
            room = min(wanted, size - self.offset) - len(rest)
            added = _read(file, room) if room > 0 else b""
            data = rest + added if rest else added
            if not added and (not data or room <= 0 or len(data) < wanted):
                self._tail(data)
                return
            gathered = Gathering(self._run)
            used, needed = self._consume(data, gathered)
            self.offset += used
            rest, wanted = data[used:], max(WINDOW, needed)
            yield gathered.window(self.offset)

    def _tail(self, data: bytes) -> None:
        """Say what stands behind the last whole record."""
        if data and self.error is None:
            self.error = f"the record at {self.offset} is cut off"

    def _consume(self, data: bytes, gathered: Gathering) -> tuple[int, int]:
        """Take the whole records of `data`: bytes used, and what the next record needs."""
        at = 0
        while True:
            records = self._framing.cut(data, at, _BATCH)
            self._take(data, records, gathered)
            at = records.stop
            if records.damage:
                self._damaged(data, at, records.damage)
                return at, 0
            if records.needed:
                return at, records.needed

    def _damaged(self, data: bytes, at: int, why: str) -> None:
        where = self.offset + at
        self.error = f"{why}, at byte {where}"
        self.status = "foreign" if where == 0 else "damaged"
        if where == 0:
            self.error = "it is no event file"
            if data[:2] == b"\x1f\x8b":
                self.error += ", it is compressed with gzip"

    def _take(self, data: bytes, records: Records, gathered: Gathering) -> None:
        for start, end in zip(records.starts, records.ends, strict=True):
            try:
                event = summaries.event(data[start:end])
                gathered.add(event)
            except Malformed as error:
                where = self.offset + start - HEAD
                gathered.fault(None, f"the record at byte {where} is no event: {error}", "event")


def _regular(path: str) -> str:
    """The path, if it names a file that can be read without waiting for somebody to write."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise StorageError(f"cannot read {path}", why="it is not a regular file")
    return path


def _read(file: IO[bytes], size: int) -> bytes:
    """Up to `size` bytes; fewer only at the end of the file."""
    parts = []
    while size > 0 and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read(path: str | Path, *, offset: int = 0, state: Mapping[str, Any] | None = None) -> Reading:
    """Read an event file; `offset` and `state` of an earlier reading go on where it stopped."""
    return Reading(path, offset, state)
