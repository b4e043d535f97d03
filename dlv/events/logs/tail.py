"""The scalars of a folder of event files that is still written to: each point once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dlv.errors import DlvError
from dlv.events.logs import migrate
from dlv.events.logs.points import ScalarPoints

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
        found = migrate.read(path, offset=at, state=self._states.get(run))
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
