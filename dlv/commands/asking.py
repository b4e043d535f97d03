"""A query asked and its outcomes printed: once, or one after the other at a prompt."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlv.commands.invocation import Invocation
from dlv.errors import DlvError, NotFound, UsageError
from dlv.lazy import lazy

if TYPE_CHECKING:
    import dlv.completion as completion
    import dlv.dql.completing as completing
    import dlv.dql.execute as execute
    import dlv.dql.parser as parser
    import dlv.folders as folders
    import dlv.metadata.saved as saved
    import dlv.prompt as prompt
    import dlv.views.outcomes as view
    from dlv.views.outcomes import Shown
else:
    completion = lazy("dlv.completion")
    completing = lazy("dlv.dql.completing")
    execute = lazy("dlv.dql.execute")
    parser = lazy("dlv.dql.parser")
    folders = lazy("dlv.folders")
    saved = lazy("dlv.metadata.saved")
    prompt = lazy("dlv.prompt")
    view = lazy("dlv.views.outcomes")

STREAMED = ("jsonl", "csv", "ids")
HISTORY = "query-history"


def typed(call: Invocation, words: Sequence[str], file: str | None) -> str | None:
    """The text of the query, wherever it comes from; None: it is to be typed at a prompt."""
    if len(words) > 1:
        raise UsageError(
            "a query is one argument",
            why=f"here are {len(words)}, of which the first is `{words[0]}`",
            hint="put it into single quotes: dlv query 'select m where m.lr < 0.1'",
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
    raise UsageError(
        "there is no query", hint="dlv query 'select m', or - to read it from standard input"
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise NotFound(f"there is no file `{path}`", hint="dlv query 'select m'") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"`{path}` is no text", why=f"{error.reason} at {error.start}") from error


class Session:
    """Queries asked in one way: with these parameters, printed in this form."""

    def __init__(self, call: Invocation, how: str, **asked: Any) -> None:
        self.call = call
        self.repository = call.repository
        self.how = how
        self.cache = folders.cache(call.environ)
        self.asked = execute.Asked(author=call.author, cache_folder=self.cache, **asked)

    def ask(self, text: str) -> int:
        """Run all statements and print what they give; how much the last of them found.

        A text that is the name of a saved query, which no query is, stands for that one.
        """
        call, found = self.call, 0
        named = saved.by_name(self.repository.database, text.strip().removesuffix(";").rstrip())
        text = text if named is None else named.text
        documents: list[dict[str, Any]] = []
        screen = view.screen_of(
            call.output.terminal, call.output.width, call.output.can_print("│●")
        )
        for place, outcome in enumerate(execute.run(self.repository, text, self.asked)):
            shown = view.shown(outcome, self.repository, screen)
            for warning in shown.warnings:
                call.output.warn(warning)
            self._print(shown, place, documents)
            found = shown.count
            for line in shown.messages():
                call.output.message(line)
        if self.how == "json":
            several = {"kind": "several", "results": documents}
            call.output.emit("query", documents[0] if len(documents) == 1 else several)
        return found

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
        call = self.call
        look = partial(completion.complete, directory=str(call.directory), environ=call.environ)

        def complete(text: str) -> list[tuple[str, int, str]]:
            found = completing.completions(
                text, look, lambda before: parser.accepted(before, self.cache)
            )
            return [(each.text, each.replaced, each.kind) for each in found]

        typing = prompt.Typing(
            ready=lambda text: prompt.ready(
                text, lambda so_far: parser.unfinished(so_far, self.cache)
            ),
            complete=complete,
            say=call.output.message,
        )
        history = folders.state(os.environ) / HISTORY
        for text in prompt.texts(history, typing):
            try:
                self.ask(text)
            except DlvError as error:
                call.output.error(error)
            except KeyboardInterrupt:
                call.output.message("interrupted")
