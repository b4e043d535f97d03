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

from dlv.errors import DlvError, NotFound, StorageError
from dlv.events.logs.batches import Batches
from dlv.events.logs.gathering import Gathering
from dlv.events.logs.points import RunState, ScalarPoints, Window

WINDOW = 8 << 20  # bytes of a file that are looked at together


class Reading:
    """The windows of a file from `offset` on; what else is known of it stands here afterwards.

    Iterated once more, it goes on with what was written since.
    """

    def __init__(self, path: str | Path, offset: int, state: Mapping[str, Any] | None) -> None:
        self.path = os.fspath(path)
        self.offset = offset  # the file is good up to here
        self.status: Literal["open", "damaged", "foreign"] = "open"
        self.error: str | None = None
        self._run = RunState(state)
        self._batches = Batches(self._run)

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
            raise NotFound(f"there is no file {self.path}") from error
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
            self.status, self.error = "foreign", "it is no event file"
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
