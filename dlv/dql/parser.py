"""From the text of a query to its tree: LALR(1), with tables kept in the user's cache."""

from __future__ import annotations

import contextlib
import io
import os
import re
import stat
import sys
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import lark
from lark import Lark, Token

from dlv.canonical import hash_bytes
from dlv.dql import ast
from dlv.dql.building import build, depth
from dlv.dql.diagnosis import END, Refused, SyntaxFault, Word, diagnose

DEEPEST = 200  # SQLite and Python both stop somewhere above
LONGEST = 200_000  # characters: of each, some kilobytes may be needed to see what is wrong
_HALF = re.compile("[\ud800-\udfff]")  # what comes of bytes that are no UTF-8

_OPTIONS: dict[str, Any] = {
    "parser": "lalr",
    "propagate_positions": True,
    "maybe_placeholders": True,
}


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
    grammar = _grammar(cache_folder)
    try:
        tree = grammar.parse(text)
    except lark.exceptions.UnexpectedInput:
        raise diagnose(text, _refused(grammar, text)) from None
    deep, node = depth(tree)
    if deep > DEEPEST:
        start = node.meta.start_pos
        raise SyntaxFault(
            "the query is nested too deeply",
            text,
            start,
            node.meta.end_pos - start,
            hint=f"at most {DEEPEST} levels; a long sum is nested too",
        )
    found: tuple[ast.Statement, ...] = build(tree)
    return found


def accepted(text: str, cache_folder: Path | None = None) -> frozenset[str]:
    """What may come behind a text, as a person writes it; nothing if the text is wrong already."""
    grammar = _grammar(cache_folder)
    walk = grammar.parse_interactive(text)
    try:
        for _ in walk.iter_parse():
            pass
    except lark.exceptions.UnexpectedInput:
        return frozenset()
    return _accepted(walk, _words(grammar))


def unfinished(text: str, cache_folder: Path | None = None) -> bool:
    """Whether nothing is wrong with a text but that it stops before the query does."""
    grammar = _grammar(cache_folder)
    walk = grammar.parse_interactive(text)
    try:
        for _ in walk.iter_parse():
            pass
    except lark.exceptions.UnexpectedInput:
        return False
    return "$END" not in walk.accepts()  # type: ignore[no-untyped-call]


def grammar_text() -> str:
    return files("dlv.dql").joinpath("grammar.lark").read_text(encoding="utf-8")


@cache
def _grammar(cache_folder: Path | None) -> Lark:
    text = grammar_text()
    path = None if cache_folder is None else cache_folder / _file(text)
    if path is not None and (kept := _kept(path)) is not None:
        return kept
    made = Lark(text, **_OPTIONS)
    if path is not None:
        _keep(path, made)
    return made


def _file(grammar: str) -> str:
    python = ".".join(map(str, sys.version_info[:3]))
    name = hash_bytes(f"{lark.__version__} {python} {sorted(_OPTIONS)} {grammar}".encode())
    return f"dql-{name[:32]}.tables"


def _kept(path: Path) -> Lark | None:
    """Tables of an earlier start. They are a pickle: taken from nobody but the user."""
    try:
        for place in (path, path.parent):
            found = place.lstat()
            if stat.S_ISLNK(found.st_mode) or not _own(found):
                return None
        data = path.read_bytes()
    except OSError:
        return None
    name, tables = data[:64], data[64:]
    if hash_bytes(tables).encode() != name:
        return None
    return Lark.load(io.BytesIO(tables))


def _own(found: os.stat_result) -> bool:
    if not hasattr(os, "getuid"):
        return True
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _keep(path: Path, made: Lark) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        tables = io.BytesIO()
        made.save(tables)
        fresh.write_bytes(hash_bytes(tables.getvalue()).encode() + tables.getvalue())
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)


def _refused(grammar: Lark, text: str) -> Refused:
    """Where a text stops being a query, found by feeding its words one by one."""
    tokens: list[Token] = []
    fault: tuple[int, int] | None = None
    try:
        tokens.extend(grammar.parse_interactive(text).iter_parse())
    except lark.exceptions.UnexpectedCharacters as error:
        fault = (error.pos_in_stream or 0, 1)
    except lark.exceptions.UnexpectedToken as error:
        fault = _stretch(error.token)
    # Once more, now that the last word that was taken is known.
    walk = grammar.parse_interactive(text)
    tokens, last = [], None
    before: frozenset[str] = frozenset()
    with contextlib.suppress(lark.exceptions.UnexpectedInput):
        for token in walk.lexer_thread.lex(walk.parser_state):  # type: ignore[no-untyped-call]
            if fault is not None and _stretch(token) == fault:
                break
            last = token
            tokens.append(token)
            walk.feed_token(token)
    words = _words(grammar)
    accepted = _accepted(walk, words)
    if last is not None:
        walk = grammar.parse_interactive(text)
        for token in tokens[:-1]:
            walk.feed_token(token)
        before = _accepted(walk, words)
    previous = None
    if last is not None:
        previous = Word(str(last), *_stretch(last), last.type == "NAME", before)
    return Refused(fault, accepted, previous, frozenset(words.values()))


def _stretch(token: Token) -> tuple[int, int]:
    """Where a word begins, and its length."""
    start = token.start_pos or 0
    return start, (token.end_pos or start) - start


def _accepted(
    walk: lark.parsers.lalr_interactive_parser.InteractiveParser, words: Mapping[str, str]
) -> frozenset[str]:
    names: set[str] = walk.accepts()  # type: ignore[no-untyped-call]
    return frozenset(words[name] for name in names)


def _words(grammar: Lark) -> dict[str, str]:
    """Terminal -> how a person writes it."""
    found = dict(_KINDS)
    for terminal in grammar.terminals:
        if terminal.name not in found:
            found[terminal.name] = terminal.pattern.value.removesuffix(r"\b")
    return found


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
