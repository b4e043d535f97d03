"""Texts of queries read word by word: their tree, or what is wrong; and what may come next."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple

from dlv.dataclass import dataclass
from dlv.dql.words import ast
from dlv.dql.words.ast import Span
from dlv.dql.words.diagnosis import AT_END, Refused, SyntaxFault, Word, diagnose
from dlv.dql.words.tables import END, Rule, Tables, tables

# Blanks, then perhaps a word that is nothing but ASCII: re"x" is none, nor is what goes on in é.
# `next*` is looked at as a whole, too: whether its star is a sign of its own, the grammar says.
_NEXT = re.compile(
    r"""[ \t\f\r\n]*"""
    r"""(?:(?!(?:[Nn][Ee][Xx][Tt]|[Pp][Rr][Ee][Vv])\*)([A-Za-z_][A-Za-z0-9_]*)(?![\w"']))?"""
)


class Token(NamedTuple):
    """A word of the text, and as what the grammar takes it."""

    kind: str
    start: int
    end: int


class Part(NamedTuple):
    """What a symbol of the grammar became. It stands between `start` and `end`, brackets and all.

    `depth`: of how many parts within each other it is; `deepest`: where the innermost one stands.
    """

    tree: Any
    start: int
    end: int
    depth: int
    deepest: Span | None


class Stopped(Exception):
    """The text stops being a query, either at a span of it or (None) at its end."""

    def __init__(self, fault: tuple[int, int] | None) -> None:
        self.fault = fault


def words(tables: Tables, text: str, states: list[int]) -> Iterator[Token]:
    """The words; which they are depends on the last of the states, as it is when one is asked for.

    At last comes the end, as an empty one.
    """
    actions, keywords, size, at = tables.actions, tables.keywords, len(text), 0
    while True:
        found = _NEXT.match(text, at)
        assert found is not None
        state = states[-1]
        if found[1] is not None:
            start, at = found.span(1)
            kind = keywords.get(found[1].lower(), "NAME")
            if kind not in actions[state]:
                kind = "NAME"
                if kind not in actions[state]:
                    raise Stopped((start, _length(tables, text, start)))
            yield Token(kind, start, at)
            continue
        at = found.end()
        if at == size:
            yield Token(END, size, size)
            return
        sign = tables.scanner(state, text[at]).match(text, at)
        if sign is None:
            raise Stopped((at, _length(tables, text, at)))
        start, at = sign.span()
        if sign.lastgroup not in tables.ignored:
            yield Token(str(sign.lastgroup), start, at)


def _length(tables: Tables, text: str, start: int) -> int:
    """Of the word that stands where none like it may; a sign that is no word at all is one."""
    found = tables.everything.match(text, start)
    return 1 if found is None else found.end() - start


def tree(tables: Tables, text: str) -> Part:
    """The whole text as one part; Stopped if it is no query."""
    actions, rules, end = tables.actions, tables.rules, tables.end
    states, parts = [tables.start], []
    for word in words(tables, text, states):
        kind, start, stop = word
        while True:
            action = actions[states[-1]].get(kind)
            if action is None:
                raise Stopped(None if kind == END else (start, stop - start))
            if action >= 0:
                states.append(action)
                parts.append(Part(text[start:stop], start, stop, 0, None))
                break
            rule = rules[~action]
            size = rule.size
            del states[-size:]
            if not rule.plain:
                gone = parts[-size:]
                del parts[-size:]
                parts.append(_reduced(rule, gone))
            states.append(actions[states[-1]][rule.origin])
            if kind == END and states[-1] == end:
                return parts[-1]
    raise AssertionError("put the end last")


def _reduced(rule: Rule, parts: list[Part]) -> Part:
    start, end = parts[0].start, parts[-1].end
    if rule.single and len(rule.stay) == 1:
        only = parts[rule.stay[0][0]]
        return only._replace(start=start, end=end)
    found: list[Any] = []
    for place, run, absent in rule.stay:
        if absent:
            found += [None] * absent
        if run:
            found += parts[place].tree
        else:
            found.append(parts[place].tree)
    if rule.after:
        found += [None] * rule.after
    depth, deepest = 0, None
    for part in parts:
        if part.depth and part.depth >= depth:
            depth, deepest = part.depth, part.deepest
    if rule.make is None:
        return Part(found, start, end, depth, deepest)
    span = Span(start, end)
    return Part(rule.make(span, found), start, end, depth + 1, deepest or span)


# What may come next


@dataclass
class Way:
    """The states that words lead through, and where they stop, if they do."""

    tables: Tables
    states: list[int]
    words: list[Token] = field(default_factory=list)
    stopped: Stopped | None = None

    def accepted(self) -> frozenset[str]:
        """Which words may come now."""
        kinds = filter(str.isupper, self.tables.actions[self.states[-1]])
        return frozenset(kind for kind in kinds if self._behind(kind) is not None)

    def without_last(self) -> Way:
        """The same, but for the last word."""
        return _led(self.tables, self.words[:-1])

    def take(self, word: Token) -> bool:
        """Whether it may come."""
        found = self._behind(word.kind)
        if found is None:
            return False
        kept, fresh = found
        del self.states[kept:]
        self.states += fresh
        self.words.append(word)
        return True

    def _behind(self, kind: str) -> tuple[int, list[int]] | None:
        """How many of the states stay when this word comes, and which are put behind them."""
        actions, rules = self.tables.actions, self.tables.rules
        kept, fresh = len(self.states), list[int]()
        while True:
            action = actions[fresh[-1] if fresh else self.states[kept - 1]].get(kind)
            if action is None:
                return None
            if action >= 0:
                return kept, [*fresh, action]
            rule = rules[~action]
            kept -= max(rule.size - len(fresh), 0)
            del fresh[max(len(fresh) - rule.size, 0) :]
            fresh.append(actions[fresh[-1] if fresh else self.states[kept - 1]][rule.origin])
            if kind == END and fresh[-1] == self.tables.end:
                return kept, fresh


def way(tables: Tables, text: str) -> Way:
    """As far as the words of a text are those of a query; its end is not looked at."""
    found = Way(tables, [tables.start])
    try:
        for word in words(tables, text, found.states):
            if word.kind != END and not found.take(word):
                raise Stopped((word.start, word.end - word.start))
    except Stopped as stopped:
        found.stopped = stopped
    return found


def _led(tables: Tables, words: list[Token]) -> Way:
    found = Way(tables, [tables.start])
    for word in words:
        found.take(word)
    return found


# Whole texts

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
    found: tuple[ast.Statement, ...] = whole.tree
    return found


def accepted(text: str, cache_folder: Path | None = None) -> frozenset[str]:
    """What may come behind a text, as a person writes it; nothing if the text is wrong already."""
    found = way(tables(cache_folder), text)
    return frozenset() if found.stopped else _accepted(found)


def unfinished(text: str, cache_folder: Path | None = None) -> bool:
    """Whether nothing is wrong with a text but that it stops before the query does."""
    found = way(tables(cache_folder), text)
    return not found.stopped and AT_END not in _accepted(found)


def _refused(known: Tables, text: str) -> Refused:
    """Where a text stops being a query, and what might have stood there."""
    found = way(known, text)
    fault = None if found.stopped is None else found.stopped.fault
    previous = None
    if found.words:
        kind, start, end = found.words[-1]
        before = _accepted(found.without_last())
        previous = Word(text[start:end], start, end - start, kind == "NAME", before)
    every = frozenset(_terminal_words(known, name) for name in (*known.written, *_KINDS))
    return Refused(fault, _accepted(found), previous, every)


def _accepted(way: Way) -> frozenset[str]:
    return frozenset(_terminal_words(way.tables, name) for name in way.accepted())


def _terminal_words(known: Tables, name: str) -> str:
    """A terminal as a person writes it."""
    return _KINDS.get(name) or known.written[name]


_KINDS = {
    "$END": AT_END,
    "NAME": "a name",
    "STRING": "a string",
    "NUMBER": "a number",
    "INT": "a whole number",
    "PARAM": "$name",
    "CLOSURE": "`next*`",
    "REGEX": 're"pattern"',
    "CMP": "a comparison",
    "_DOTS": "..",
}
