"""From the text of a query to its tree, or to what is wrong with it."""

from __future__ import annotations

import re
from pathlib import Path

from dlv.dql.words import ast
from dlv.dql.words.diagnosis import END, Refused, SyntaxFault, Word, diagnose
from dlv.dql.words.reducing import Stopped, Way, tree, way
from dlv.dql.words.tables import Tables, tables

DEEPEST = 200  # SQLite and Python both stop somewhere above
LONGEST = 200_000  # characters: of each, some kilobytes may be needed to see what is wrong
_HALF = re.compile("[\ud800-\udfff]")  # what comes of bytes that are no UTF-8


def parse(text: str, cache_folder: Path | None = None) -> tuple[ast.Statement, ...]:
    """The statements of a text; SyntaxFault with place, what was expected, and what was meant.

    `cache_folder` is the user's own, for tables that take long to build.
    """
    if len(text) > LONGEST:
        raise SyntaxFault(
            "the query is too long", text, LONGEST, 0, hint=f"at most {LONGEST:,} characters"
        )
    if (broken := _HALF.search(text)) is not None:
        raise SyntaxFault(
            "half a character", text, broken.start(), 1, hint="a query is Unicode text, as UTF-8"
        )
    known = tables(cache_folder)
    try:
        whole = tree(known, text)
    except Stopped:
        raise diagnose(text, _refused(known, text)) from None
    if whole.depth > DEEPEST and whole.deepest is not None:
        start, end = whole.deepest.start, whole.deepest.end
        raise SyntaxFault(
            "the query is nested too deeply",
            text,
            start,
            end - start,
            hint=f"at most {DEEPEST} levels; a long sum is nested too",
        )
    found: tuple[ast.Statement, ...] = whole.made
    return found


def accepted(text: str, cache_folder: Path | None = None) -> frozenset[str]:
    """What may come behind a text, as a person writes it; nothing if the text is wrong already."""
    found = way(tables(cache_folder), text)
    return frozenset() if found.stopped else _accepted(found)


def unfinished(text: str, cache_folder: Path | None = None) -> bool:
    """Whether nothing is wrong with a text but that it stops before the query does."""
    found = way(tables(cache_folder), text)
    return not found.stopped and END not in _accepted(found)


def _refused(known: Tables, text: str) -> Refused:
    """Where a text stops being a query, and what might have stood there."""
    found = way(known, text)
    fault = None if found.stopped is None else found.stopped.fault
    previous = None
    if found.taken:
        kind, start, end = found.taken[-1]
        before = _accepted(found.without_last())
        previous = Word(text[start:end], start, end - start, kind == "NAME", before)
    every = frozenset(_said(known, name) for name in (*known.written, *_KINDS))
    return Refused(fault, _accepted(found), previous, every)


def _accepted(found: Way) -> frozenset[str]:
    return frozenset(_said(found.tables, name) for name in found.accepted())


def _said(known: Tables, name: str) -> str:
    """A terminal as a person writes it."""
    return _KINDS.get(name) or known.written[name]


_KINDS = {
    "$END": END,
    "NAME": "a name",
    "STRING": "a string",
    "NUMBER": "a number",
    "INT": "a whole number",
    "PARAM": "$name",
    "REGEX": 're"pattern"',
    "CMP": "a comparison",
    "_DOTS": "..",
}
