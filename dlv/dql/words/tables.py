"""The grammar as tables, which are kept in the user's own cache: to make them takes long.

lark makes them, and takes longer to load than a query to be answered: what comes of it is plain
enough to be kept as JSON, and is read without it.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from dlv.canonical import hash_bytes
from dlv.dataclass import dataclass
from dlv.dql.words.building import MAKERS, Make

END = "$END"
_FORM = 1  # of the tables
_LETTER = re.compile(r"[A-Za-z_]|[^\x00-\x7f]")


@dataclass(frozen=True)
class Rule:
    """`size` symbols become one, `origin`.

    `stay`: the places of those that are parts of it, whether each is a run of parts, and how many
    absent ones stand before it; `after`: and behind the last. `single`: one part alone stands
    for the whole.
    """

    origin: str
    size: int
    stay: tuple[tuple[int, bool, int], ...]
    after: int
    single: bool
    make: Make | None  # None: it is a run of parts

    @property
    def plain(self) -> bool:
        """Whether nothing happens but that it gets another name."""
        return self.single and self.size == 1


class Tables:
    """`actions`: by state and symbol the next state, or ~ the number of a rule."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.actions: list[dict[str, int]] = document["actions"]
        self.start: int = document["start"]
        self.end: int = document["end"]
        self.rules = [_rule(each) for each in document["rules"]]
        self.ignored = frozenset(document["ignored"])
        self.keywords: dict[str, str] = {}
        self.written: dict[str, str] = {}  # a terminal, but for its boundary, as it is defined
        self._patterns: dict[str, str] = {}  # in the order in which they are tried
        for name, pattern, written, keyword in document["terminals"]:
            self._patterns[name] = pattern
            self.written[name] = written.removesuffix(r"\b")
            if keyword is not None:
                self.keywords[keyword] = name
        self._scanners: dict[frozenset[str] | None, re.Pattern[str]] = {}
        self._of_state: dict[tuple[int, bool], re.Pattern[str]] = {}

    def scanner(self, state: int, sign: str) -> re.Pattern[str]:
        """Finds what may stand in a state, its name as the last group; `sign`: it begins so."""
        letter = _LETTER.match(sign) is not None
        found = self._of_state.get((state, letter))
        if found is None:
            found = self._of_state[state, letter] = self._scanner_of(
                self.ignored.union(filter(str.isupper, self.actions[state])), letter
            )
        return found

    @property
    def everything(self) -> re.Pattern[str]:
        """Finds any word, wherever it may stand."""
        return self._scanner_of(frozenset(self._patterns), True)

    def _scanner_of(self, names: frozenset[str], letter: bool) -> re.Pattern[str]:
        if not letter:  # no keyword begins with anything else
            names = names.difference(self.keywords.values())
        if names not in self._scanners:
            parts = [f"(?P<{n}>{self._patterns[n]})" for n in self._patterns if n in names]
            self._scanners[names] = re.compile("|".join(parts))
        return self._scanners[names]


def _rule(written: Sequence[Any]) -> Rule:
    name, origin, size, stay, after, single = written
    make = None if name.startswith("_") else MAKERS.get(name)
    return Rule(origin, size, tuple(map(tuple, stay)), after, single, make)


def grammar_text() -> str:
    return Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")


@cache
def tables(cache_folder: Path | None) -> Tables:
    text = grammar_text()
    path = None if cache_folder is None else cache_folder / _file(text)
    if path is not None and (kept := read(path)) is not None:
        return Tables(kept)

    made = make_tables(text)
    if path is not None:
        _write(path, made)
    return Tables(made)


def _file(grammar: str) -> str:
    return f"dql-{hash_bytes(f'{_FORM} {grammar}'.encode())[:32]}.json"


def read(path: Path) -> dict[str, Any] | None:
    """Tables of an earlier start, if they are whole and nobody but the user could write them."""
    try:
        for place in (path, path.parent):
            found = place.lstat()
            if stat.S_ISLNK(found.st_mode) or not _own(found):
                return None
        data = path.read_bytes()
    except OSError:
        return None
    name, content = data[:64], data[64:]
    if hash_bytes(content).encode() != name:
        return None
    document: dict[str, Any] = json.loads(content)
    return document


def _own(status: os.stat_result) -> bool:
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _write(path: Path, document: Mapping[str, Any]) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = json.dumps(document, separators=(",", ":")).encode()
        fresh.write_bytes(hash_bytes(content).encode() + content)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)


# Tables made by lark: which word leads from which state to which


_KEYWORD = re.compile(r"([a-z_]+)\\b")


def make_tables(grammar: str) -> dict[str, Any]:
    """What `Tables` is made of."""
    from lark import Lark
    from lark.grammar import Rule as LarkRule

    found = Lark(grammar, parser="lalr", maybe_placeholders=True)
    table: Any = found.parser.parser._parse_table  # as in the parsers that lark writes itself
    places = {state: place for place, state in enumerate(table.states)}
    numbers = {rule: number for number, rule in enumerate(found.rules)}

    return {
        "actions": [
            {
                symbol: ~numbers[of] if isinstance(of, LarkRule) else places[of]
                for symbol, (_, of) in actions.items()
            }
            for actions in table.states.values()
        ],
        "start": places[table.start_states["start"]],
        "end": places[table.end_states["start"]],
        "rules": [_rule_row(rule) for rule in found.rules],
        "terminals": [
            (each.name, each.pattern.to_regexp(), each.pattern.value, _keyword(each.pattern))
            for each in sorted(found.terminals, key=_rank)
        ],
        "ignored": found.ignore_tokens,
    }


def _rank(terminal: Any) -> tuple[Any, ...]:
    """Where several terminals fit, lark takes the first one in this order."""
    pattern = terminal.pattern
    return -terminal.priority, -pattern.max_width, -len(pattern.value), terminal.name


def _keyword(pattern: Any) -> str | None:
    found = _KEYWORD.fullmatch(pattern.value)
    return found[1] if found and pattern.flags == {"i"} else None


def _rule_row(rule: Any) -> tuple[Any, ...]:
    """As `Rule` has it: what it makes, and which of its symbols are parts of that."""
    symbols: Sequence[Any] = rule.expansion
    options: Any = rule.options
    assert symbols, "there is no part without a place"
    absent = "".join("x" if empty else " " for empty in options.empty_indices)
    gaps = list(map(len, absent.split(" "))) if absent else [0] * (len(symbols) + 1)
    stay, before = [], 0
    for place, symbol in enumerate(symbols):
        before += gaps[place]
        if not (symbol.is_term and symbol.filter_out):
            stay.append((place, not symbol.is_term and symbol.name.startswith("_"), before))
            before = 0
    single = bool(options.expand1 and not rule.alias)
    assert not single or len(stay) > 1 or not symbols[stay[0][0]].is_term, "a word is no part"
    name = rule.alias or rule.origin.name
    return name, rule.origin.name, len(symbols), stay, before + gaps[-1], single
