"""What a program of the user's own reports: JSON lines, or event files and checkpoints beside."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlv.canonical import NON_FINITE
from dlv.errors import UsageError
from dlv.training.trainers.interface import Event

MOST_LINE = 1 << 20
_READ = 1 << 20
_STEP = re.compile(r"([0-9]{1,15})(?:\.[A-Za-z0-9.]*)?\Z")


@dataclass(frozen=True)
class Report:
    """`checkpoint`: a file or folder, relative to where the program runs; complete by now."""

    step: int
    metrics: Mapping[str, Any]
    checkpoint: str | None = None


class Lines:
    """The lines of a file that grows: each once, and only when it has ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._rest = b""
        self._number = 0

    def reports(self, *, ended: bool = False) -> Iterator[Report]:  # noqa: ARG002
        """What was written since the last call."""
        for line in self._lines():
            self._number += 1
            if line.strip():
                yield self._report(line)

    def _lines(self) -> Iterator[bytes]:
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return
        with file:
            if self._path.stat().st_size < self._at:
                raise UsageError(
                    f"{self._path.name} became shorter", why="lines are appended to it"
                )
            file.seek(self._at)
            while piece := file.read(_READ):
                self._at += len(piece)
                *whole, self._rest = (self._rest + piece).split(b"\n")
                yield from whole
                if len(self._rest) > MOST_LINE:
                    raise UsageError(
                        f"{self._path.name}, line {self._number + 1}, is too long",
                        why=f"the limit is {MOST_LINE} bytes",
                    )

    def _report(self, line: bytes) -> Report:
        where = f"{self._path.name}, line {self._number}"
        try:
            said = json.loads(line)
        except (ValueError, RecursionError) as error:
            shown = line[:80].decode("utf-8", "replace")
            raise UsageError(f"{where}, is no JSON: {shown}", why=str(error)[:200]) from error
        if not isinstance(said, dict) or not isinstance(said.get("metrics"), dict):
            raise UsageError(
                f"{where}, is no report",
                why="it has no table `metrics`",
                hint='{"step": 20, "metrics": {"loss": 0.5}, "checkpoint": "checkpoint/20.npz"}',
            )
        step, checkpoint = said.get("step"), said.get("checkpoint")
        if isinstance(step, bool) or not isinstance(step, int):
            raise UsageError(f"{where}, has the step {step!r}"[:200], why="a whole number is meant")
        if checkpoint is not None and not isinstance(checkpoint, str):
            raise UsageError(f"{where}, has a checkpoint that is no path")
        metrics = {
            name: NON_FINITE.get(value, value) if isinstance(value, str) else value
            for name, value in said["metrics"].items()
        }
        return Report(step, metrics, checkpoint)


@dataclass
class Events:
    """Metrics out of event files, at the steps at which a trial logs; a step is complete when
    there are points behind it. Checkpoints are what lies in `checkpoint/`, by their numbers."""

    points: Callable[[], Iterator[Event]]
    folder: Path
    every: int
    begun: int
    steps: int
    _values: dict[int, dict[str, float]] = field(default_factory=dict)
    _last: dict[str, float] = field(default_factory=dict)
    _done: int = -1

    def reports(self, *, ended: bool = False) -> Iterator[Report]:
        """What is complete by now; `ended`: all of it is, as the program has reached the step."""
        for step, name, value in self.points():
            self._values.setdefault(step, {})[name] = value
        newest = max(self._values, default=-1)
        self._done = max(self._done, self.begun)
        while self._done < self.steps:
            due = min((self._done // self.every + 1) * self.every, self.steps)
            if newest <= due and not ended:
                return
            for step in sorted(step for step in self._values if step <= due):
                self._last.update(self._values.pop(step))
            self._done = due
            if self._last:
                yield Report(due, dict(self._last), self._checkpoint(due))

    def _checkpoint(self, step: int) -> str | None:
        """The entry of `checkpoint/` whose name ends with this number."""
        if not self.folder.is_dir():
            return None
        for path in sorted(self.folder.iterdir()):
            found = _STEP.search(path.name)
            if found and int(found[1]) == step:
                return f"{self.folder.name}/{path.name}"
        return None
