"""Trials while they run: a board on a terminal, lines in a pipe, JSON objects with --json."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dlv.commands.shared.invocation import Invocation
from dlv.terminal.table import escape

if TYPE_CHECKING:
    from dlv.training.ledger.progress import Progress

EACH = 60.0  # seconds between two lines on how far it is


@contextmanager
def watching(call: Invocation) -> Iterator[Callable[[Progress], None]]:
    """What `pool.train` is to call with the progress of a run."""
    import dlv.views.trials as view

    output = call.output
    if output.json:
        yield _Lines(lambda progress: _json(call, view.standing(progress)), _event(call))
    elif output.quiet:
        yield lambda _: None
    elif not output.interactive:
        yield _Lines(
            lambda progress: output.message(view.line(progress)),
            lambda news: output.message(news.text),
        )
    else:
        import dlv.terminal.screen as screen

        with screen.board(colour=output.colour(sys.stderr)) as board:

            def show(progress: Progress) -> None:
                for news in progress.news:
                    board.say(escape(news.text))
                board.show(view.line(progress), *view.best(progress, output.sparkline))

            yield show


def _event(call: Invocation) -> Callable[[Any], None]:
    import dlv.views.trials as view

    return lambda news: _json(call, view.event(news))


def _json(call: Invocation, document: dict[str, Any]) -> None:
    """One line; the result of the command comes last."""
    text = json.dumps(json.loads(call.output.dumps(document)), ensure_ascii=True)
    call.output.write(text + "\n")
    call.output.stdout.flush()


class _Lines:
    """What happened, and from time to time how far it is."""

    def __init__(self, tell: Callable[[Progress], None], say: Callable[[Any], None]) -> None:
        self._tell = tell
        self._say = say
        self._told = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        for news in progress.news:
            self._say(news)
        if time.monotonic() - self._told >= EACH:
            self._told = time.monotonic()
            self._tell(progress)
