"""A query asked and its outcomes printed: once, or one after the other at a prompt."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dlv.commands.shared.evaluating import Watched
from dlv.commands.shared.invocation import Invocation
from dlv.errors import DlvError

if TYPE_CHECKING:
    from dlv.dql.outcome import Outcome
    from dlv.views.outcomes import Shown

STREAMED = ("jsonl", "csv", "ids")
HISTORY = "query-history"


class Session:
    """Queries asked in one way: with these parameters, printed in this form."""

    def __init__(self, call: Invocation, how: str, **asked: Any) -> None:
        import dlv.disk.folders as folders
        import dlv.dql.execute as execute

        self.call = call
        self.repository = call.repository
        self.how = how
        self.cache = folders.cache(call.environ)
        yes = bool(asked.pop("yes", False))
        self.watched = Watched(call)
        self.asked = execute.Asked(
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
        import dlv.metadata.saved as saved
        import dlv.views.outcomes as view

        call, found = self.call, 0
        named = saved.by_name(self.repository.database, text.strip().removesuffix(";").rstrip())
        text = text if named is None else named.text
        documents: list[dict[str, Any]] = []
        screen = view.screen_of(
            call.output.terminal, call.output.width, call.output.can_print("│●")
        )
        outcomes = execute.run(self.repository, text, self.asked)
        for place, outcome in enumerate(self._watched(outcomes)):
            shown = view.shown(outcome, self.repository, screen)
            for warning in shown.warnings:
                call.output.warn(warning)
            self._print(shown, place, documents)
            found = shown.count
            for line in shown.messages():
                call.output.message(line)
        if self.how == "json":
            self._emit(documents)
        return found

    def _watched(self, outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
        """What trials show is over before anything is printed, or has failed."""
        try:
            for outcome in outcomes:
                self.watched.close()
                yield outcome
        finally:
            self.watched.close()

    def _emit(self, documents: Sequence[dict[str, Any]]) -> None:
        output = self.call.output
        several = {"kind": "several", "results": documents}
        document = documents[0] if len(documents) == 1 else several
        if not self.watched.used:
            output.emit("query", document)
            return
        text = output.dumps({"schema": "dlv/query/1", **document})  # on the last line
        output.write(json.dumps(json.loads(text), ensure_ascii=True) + "\n")

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

        import dlv.disk.folders as folders
        import dlv.terminal.prompt as prompt

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
