"""The grammar as tables, which are kept in the user's own cache: to make them takes long."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dlv.canonical import hash_bytes
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
            found = self._of_state[state, letter] = self._made(
                self.ignored.union(filter(str.isupper, self.actions[state])), letter
            )
        return found

    @property
    def everything(self) -> re.Pattern[str]:
        """Finds any word, wherever it may stand."""
        return self._made(frozenset(self._patterns), True)

    def _made(self, names: frozenset[str], letter: bool) -> re.Pattern[str]:
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
    import dlv.dql.words.table_making as table_making

    made = table_making.make_tables(text)
    if path is not None:
        _keep(path, made)
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


def _own(found: os.stat_result) -> bool:
    if not hasattr(os, "getuid"):
        return True
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _keep(path: Path, made: Mapping[str, Any]) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = json.dumps(made, separators=(",", ":")).encode()
        fresh.write_bytes(hash_bytes(content).encode() + content)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
