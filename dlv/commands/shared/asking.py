"""Queries: their text, typed, in a file or from standard input; asked once or at a prompt."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlv.commands.shared.invocation import Invocation
from dlv.errors import DlvError, NotFound, UsageError, nearest
from dlv.terminal.table import escape

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlv.dql.outcome import Outcome
    from dlv.report.page import Section
    from dlv.training.ledger.progress import Progress
    from dlv.views.queried import Shown

_NAME = re.compile(r"[A-Za-z_][\w.-]*")
STREAMED = ("jsonl", "csv", "ids")
HISTORY = "query-history"


class Session:
    """Queries asked in one way: with these parameters, printed in this form."""

    def __init__(self, call: Invocation, how: str, **asked: Any) -> None:
        import dlv.disk.paths as paths
        from dlv.dql.outcome import QueryOptions

        self.call = call
        self.repository = call.repository
        self.how = how
        self.sections: list[Section] | None = None  # of a report, if there is to be one
        self.document: dict[str, Any] = {}
        self.ids: list[str] = []
        self.cache = paths.cache(call.environ)
        yes = bool(asked.pop("yes", False))
        self.watched = Watched(call)
        self.asked = QueryOptions(
            author=call.author,
            cache_folder=self.cache,
            directory=call.directory,
            jobs=call.jobs,
            say=call.output.message,
            progress=self.watched,
            agree=partial(call.confirm, yes=yes),
            **asked,
        )

    def ask(self, text: str) -> int:
        """Run all statements and print what they give; how much the last of them found.

        A text that is the name of a saved query, which no query is, stands for that one.
        """
        import dlv.dql.execute as execute
        import dlv.metadata.usage as usage
        import dlv.views.queried as view

        call, found = self.call, 0
        named = usage.saved_query(self.repository.database, text.strip().removesuffix(";").rstrip())
        if named is None and _NAME.fullmatch(text.strip()):
            known = [each.name for each in usage.saved_queries(self.repository.database)]
            raise NotFound(
                f"no saved query `{text.strip()}`",
                why=f"saved queries: {', '.join(known[:10])}" if known else "no queries are saved",
                did_you_mean=nearest(text.strip(), known),
                hint="to save one: dlv query 'define NAME as ...'",
            )
        text = text if named is None else named.text
        documents: list[dict[str, Any]] = []
        screen = view.screen_of(
            call.output.terminal, call.output.width, call.output.can_print("│●")
        )
        outcomes = execute.run(self.repository, text, self.asked)
        for place, outcome in enumerate(self._watched(outcomes)):
            if self.sections is not None:
                found = self._collect(outcome)
                continue
            shown = view.shown(outcome, self.repository, screen, verbose=self.call.verbose)
            for warning in shown.warnings:
                call.output.warn(warning)
            self._print(shown, place, documents)
            found = shown.count
            for line in shown.messages():
                call.output.message(line)
        if self.how == "json" and self.sections is None:
            self._emit(documents)
        return found

    def _collect(self, outcome: Outcome) -> int:
        """Make sections of a report of an outcome."""
        import dlv.ui.answer as pages
        import dlv.ui.frame as frames

        assert self.sections is not None
        frame = frames.Frame(self.call.output.now)
        found = pages.sections(self.repository, outcome, frame)
        self.sections += found.sections
        self.document, self.ids = found.document, found.ids
        return found.count

    def report(self, path: Path, query: str, command: str) -> None:
        import dlv.ui.frame as frames

        frames.write(path, "Query", self.sections or [], about=query, command=command)

    def _watched(self, outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
        """What trials show is over before anything is printed, or has failed."""
        try:
            for outcome in outcomes:
                self.watched.close()
                yield outcome
        finally:
            self.watched.close()

    def _emit(self, documents: Sequence[dict[str, Any]]) -> None:
        several = {"kind": "several", "results": documents}
        self.call.output.emit("query", documents[0] if len(documents) == 1 else several)

    def _print(self, shown: Shown, place: int, documents: list[dict[str, Any]]) -> None:
        output = self.call.output
        if self.how == "json":
            documents.append(shown.document())
        elif self.how in STREAMED:
            for line in shown.lines(self.how):
                output.write(line + "\n")
        else:
            blocks = list(shown.blocks())
            output.emit("query", {}, *([""] if place and output.terminal else []), *blocks)

    def prompt(self) -> None:
        """Queries typed one after the other; what is wrong with one ends nothing."""
        import dlv.dql.words.parser as parser
        import dlv.terminal.completion as completion

        call = self.call
        look = partial(completion.complete, directory=str(call.directory), environ=call.environ)

        def complete(text: str) -> list[tuple[str, int, str]]:
            import dlv.dql.words.completing as completing

            found = completing.completions(
                text, look, lambda before: parser.accepted(before, self.cache)
            )
            return [(each.text, each.replaced, each.kind) for each in found]

        import dlv.disk.paths as paths
        import dlv.terminal.prompt as prompt

        typing = prompt.Typing(
            ready=lambda text: prompt.ready(
                text, lambda so_far: parser.unfinished(so_far, self.cache)
            ),
            complete=complete,
            say=call.output.message,
        )
        history = paths.state(os.environ) / HISTORY
        for text in prompt.texts(history, typing):
            try:
                self.ask(text)
            except DlvError as error:
                call.output.error(error)
            except KeyboardInterrupt:
                call.output.message("interrupted")


EACH = 60.0  # seconds between two lines on how far it is


class Watched:
    """Shows progress from the first that there is, until it is closed."""

    def __init__(self, call: Invocation) -> None:
        self._call = call
        self._shown = ExitStack()
        self._show: Callable[[Progress], None] | None = None

    def __call__(self, progress: Progress) -> None:
        if self._show is None:
            self._show = self._shown.enter_context(watching(self._call))
        self._show(progress)

    def close(self) -> None:
        self._show = None
        self._shown.close()


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
    """A line on stderr: stdout is for the one document that the command prints."""
    text = json.dumps(json.loads(call.output.dumps(document)), ensure_ascii=True)
    call.output.stderr.write(text + "\n")
    call.output.stderr.flush()


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


def typed(call: Invocation, words: Sequence[str], file: str | None) -> str | None:
    """The text of the query, wherever it comes from; None: it is to be typed at a prompt."""
    if len(words) > 1:
        raise UsageError(
            "a query is one argument",
            why=f"here are {len(words)}, of which the first is `{words[0]}`",
            hint="use single quotes: dlv query 'select m where m.lr < 0.1'",
        )
    if words and file is not None:
        raise UsageError("give either a query or --file")
    if "-" in (*words, file):
        return sys.stdin.read()
    if file is not None:
        return _read(Path(file))
    if words:
        return words[0]
    if sys.stdin.isatty() and call.output.terminal:
        return None
    raise UsageError("no query given", hint="dlv query 'select m', or - to read stdin")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise NotFound(f"no such file: `{path}`", hint="dlv query 'select m'") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"`{path}` is not a string", why=f"{error.reason} at {error.start}"
        ) from error
