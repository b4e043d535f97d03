"""A prompt for queries: history, several lines, completion; plain lines without prompt_toolkit."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from dlv.dataclass import dataclass
from dlv.errors import UsageError, require

FIRST, MORE = "dlv> ", "...> "
LEAVE = ("exit", "quit", "\\q")
ASK = ("help", "?", "\\?")
HELP = """\
A query ends with ; or where it is complete. Tab completes, Ctrl-C drops what is typed,
Ctrl-D or exit leaves.
  select m, m["accuracy"] where m.lr < 0.1 order by m["accuracy"] desc
  slice s from m where m.name = "lenet" mutate s.input = m["conv1"] and s.output = m["fc1"]
  define good as select m where m["accuracy"] > 0.9;  select m from m in "good"
"""


@dataclass(frozen=True)
class Typing:
    """What the prompt needs to know of queries."""

    ready: Callable[[str], bool]  # whether the lines typed so far are to be run
    complete: Callable[[str], Iterable[tuple[str, int, str]]]  # -> (word, length replaced, kind)
    say: Callable[[str], None]


def texts(history: Path, typing: Typing) -> Iterator[str]:
    """The queries that are typed, until the end of the input."""
    read = _reader(history, typing)
    while True:
        try:
            text = read()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        word = text.strip().removesuffix(";").strip().lower()
        if word in LEAVE:
            return
        if word in ASK:
            typing.say(HELP.rstrip("\n"))
        elif word:
            yield text


def ready(text: str, unfinished: Callable[[str], bool]) -> bool:
    """A `;`, an empty line or a word to the prompt itself ends what is typed; so does a query."""
    stripped = text.strip()
    if not stripped or stripped.endswith(";") or stripped.lower() in (*LEAVE, *ASK):
        return True
    return text.endswith("\n") or not unfinished(text)


def _reader(history: Path, typing: Typing) -> Callable[[], str]:
    try:
        return _comfortable(history, typing)
    except UsageError as error:
        typing.say(f"no completion and no history: {error.hint}")
        return lambda: _plain(typing)


def _plain(typing: Typing) -> str:
    lines = [input(FIRST)]
    while not typing.ready("\n".join(lines)):
        lines.append(input(MORE))
    return "\n".join(lines)


def _comfortable(history: Path, typing: Typing) -> Callable[[], str]:
    toolkit = require("prompt_toolkit", "prompt")
    bindings = require("prompt_toolkit.key_binding", "prompt").KeyBindings()
    words = require("prompt_toolkit.completion", "prompt")
    histories = require("prompt_toolkit.history", "prompt")

    class Words(words.Completer):  # type: ignore[misc,name-defined]
        def get_completions(self, document: Any, _: Any) -> Iterator[Any]:
            for word, replaced, kind in typing.complete(document.text_before_cursor):
                yield words.Completion(word, -replaced, display_meta=kind)

    @bindings.add("enter")  # type: ignore[untyped-decorator]
    def enter(event: Any) -> None:
        buffer = event.current_buffer
        if typing.ready(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    kept = histories.FileHistory(str(history)) if _own(history) else histories.InMemoryHistory()
    session = toolkit.PromptSession(
        FIRST,
        history=kept,
        multiline=True,
        prompt_continuation=MORE,
        key_bindings=bindings,
        completer=Words(),
        complete_while_typing=False,
    )
    prompt: Callable[[], str] = session.prompt
    return prompt


def _own(history: Path) -> bool:
    """Whether there is a file for the history that nobody else can read."""
    with contextlib.suppress(OSError):
        history.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(history, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
        return True
    return False
