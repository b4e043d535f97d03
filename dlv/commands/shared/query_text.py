"""The text of a query: typed, in a file, or from standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from dlv.commands.shared.invocation import Invocation
from dlv.errors import NotFound, UsageError


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
