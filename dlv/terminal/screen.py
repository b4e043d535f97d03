"""What needs rich: progress bars, and a table that is drawn again in its place."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
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
from rich.table import Table
from rich.text import Text

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
        task = self._progress.tasks[0]
        if task.total is not None and task.completed > task.total:  # what is read twice counts once
            self._progress.update(self._task, completed=task.total)
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
    bar = Bar(description, total, _console(colour), rows=rows)
    try:
        yield bar
    finally:
        bar.stop()


class Board:
    """A line and a table below it, drawn again in place; what is said stays above them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def show(self, line: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Numbers stand flush right; what does not fit the width is cut."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for place, head in enumerate(heads):
            numbers = all(_number(row[place]) for row in rows)
            table.add_column(
                Text(head),
                justify="right" if numbers else "left",
                no_wrap=True,
                overflow="ellipsis",
            )
        for row in rows:
            table.add_row(*map(Text, row))
        told = Text(line, no_wrap=True, overflow="ellipsis")
        self._live.update(Group(told, table) if rows else told, refresh=True)

    def say(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)

    def stop(self) -> None:
        self._live.stop()


def _number(text: str) -> bool:
    try:
        float(text.replace(",", ""))
    except ValueError:
        return text in ("", "-")
    return True


@contextmanager
def board(*, colour: bool) -> Iterator[Board]:
    """A board on stderr that is gone when the work is done or fails."""
    made = Board(_console(colour))
    try:
        yield made
    finally:
        made.stop()


def _console(colour: bool) -> Console:
    return Console(file=sys.stderr, no_color=not colour, force_terminal=True)
