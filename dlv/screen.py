"""What needs rich: progress bars."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

PATIENCE = 0.5  # seconds of silence: what ends sooner needs no bar


class Bar:
    """Counts bytes, or `rows`; shows itself once the work has taken half a second."""

    def __init__(
        self, description: str, total: int | None, console: Console, *, rows: bool = False
    ) -> None:
        self._begun = time.monotonic()
        self._shown = False
        counted: list[ProgressColumn] = [DownloadColumn(), TransferSpeedColumn()]
        if rows:
            counted = [MofNCompleteColumn(), TextColumn("{task.fields[told]}", markup=False)]
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            *counted,
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task(description, total=total, told="")

    def expect(self, total: int) -> None:
        """How much there is to do, where that was not known at the start."""
        self._progress.update(self._task, total=total)

    def advance(self, count: int) -> None:
        self._progress.advance(self._task, count)
        self._show()

    def tell(self, description: str, done: int, total: int, text: str) -> None:
        """How far the rows of something are, and a word on it."""
        self._progress.update(
            self._task, description=description, completed=done, total=total, told=text
        )
        self._show()

    def _show(self) -> None:
        if not self._shown and time.monotonic() - self._begun >= PATIENCE:
            self._shown = True
            self._progress.start()

    def stop(self) -> None:
        if self._shown:
            self._progress.stop()


@contextmanager
def progress(
    description: str, total: int | None, *, colour: bool, rows: bool = False
) -> Iterator[Bar]:
    """A bar on stderr that is gone when the work is done or fails."""
    console = Console(file=sys.stderr, no_color=not colour, force_terminal=True)
    bar = Bar(description, total, console, rows=rows)
    try:
        yield bar
    finally:
        bar.stop()
