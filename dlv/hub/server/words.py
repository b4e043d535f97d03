"""Words of cards and of searches, in a form in which all databases agree on what a word is.

A word becomes ASCII letters and digits, so that no database divides or folds it by its own rules:
`z` begins a code of a character, and codes of characters keep the order of prefixes. A word of a
field, such as task:vision, begins with a code that no plain word can begin with.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dlv.dataclass import dataclass

MOST_WORD = 48  # characters of a word that count
MOST_VALUE = 96  # of the value of a field
MOST_WORDS = 4000  # of one card
_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"  # written without blanks: each is a word
_WORD = re.compile(f"[{_CJK}]|[^\\W_{_CJK}]+")
_CODED = re.compile("[^a-y0-9]")
# One letter behind `z`, none of which begins the code of a character (z, 0-9, a-f).
_FIELDS = {"name": "n", "task": "k", "license": "l", "tag": "t", "author": "u"}
# What a word in a field says about a version; everything else counts one.
_SHOWN = {"name": 8, "task": 5, "tags": 4, "message": 2}
_MOST_RANKED = 400  # characters of a field that are compared for the ranking


@dataclass(frozen=True)
class Word:
    """A word that is looked for. `prefix`: with any ending. `plain`: as it is in texts."""

    code: str
    prefix: bool = False
    plain: bool = True


def normal(text: str) -> str:
    """Return a text in lower case and in one of the forms that Unicode has for it."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def clean(text: str, most: int) -> str:
    """Return a text that all databases can store."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text.replace("\0", "\ufffd")[:most]


def split(text: str) -> Iterator[str]:
    """Yield the codes of the words of a text."""
    for word in _WORD.findall(normal(text)):
        yield _code(word[:MOST_WORD])


def wanted(text: str) -> list[Word]:
    """Return the words of a term that was typed; a star at its end stands for any ending."""
    codes = list(split(text))
    words = [Word(code) for code in codes]
    if codes and text.endswith("*"):
        words[-1] = Word(codes[-1], prefix=True)
    return words


def wanted_value(field: str, value: str) -> list[Word]:
    """Return the words that a field of a card must have; a star at the end: with any ending."""
    letter = _FIELDS[field]
    prefix, value = value.endswith("*"), normal(value.rstrip("*"))
    if field != "author":
        return [Word(f"z{letter}{_code(value[:MOST_VALUE])}", prefix, plain=False)]
    codes = list(split(value))
    found = [Word(f"z{letter}{code}", plain=False) for code in codes]
    if found and prefix:
        found[-1] = Word(found[-1].code, prefix=True, plain=False)
    return found


def _code(text: str) -> str:
    return text if text.isascii() and text.isalnum() and "z" not in text else _coded(text)


def _coded(text: str) -> str:
    return _CODED.sub(lambda match: "zz" if match[0] == "z" else f"z{ord(match[0]):06x}", text)


def of_card(record: Mapping[str, Any], operations: Iterable[str]) -> tuple[str, str]:
    """Return (all words of a card between blanks, lines with the words of the ranked fields)."""
    fields = {
        "name": record["name"],
        "task": record["task"] or "",
        "tags": " ".join(record["tags"]),
        "message": record["message"],
    }
    ranked = {key: list(split(text[:_MOST_RANKED])) for key, text in fields.items()}
    words: dict[str, None] = {}
    for word in _values(record):
        words[word] = None
    for codes in ranked.values():
        words.update(dict.fromkeys(codes))
    texts = [record["author"], *operations, *fields.values(), record["text"]]
    for text in texts:
        words.update(dict.fromkeys(split(text)))
    listed = list(words)[:MOST_WORDS]
    lines = "\n".join(f" {' '.join(dict.fromkeys(ranked[key]))} " for key in _SHOWN)
    return f" {' '.join(listed)} ", lines


def _values(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words of the fields of a card."""
    values = [("name", record["name"]), *(("tag", tag) for tag in record["tags"][:200])]
    values += [(key, record[key]) for key in ("task", "license") if record[key]]
    for field, value in values:
        yield f"z{_FIELDS[field]}{_code(normal(value)[:MOST_VALUE])}"
    for code in split(record["author"]):
        yield f"z{_FIELDS['author']}{code}"


def score(lines: str, looked_for: Iterable[Word]) -> int:
    """Return how well a card fits words that it has, from the lines of `of_card`."""
    fields = list(zip(lines.split("\n"), _SHOWN.values(), strict=True))
    total = 0
    for word in looked_for:
        if word.plain:
            text = f" {word.code}" if word.prefix else f" {word.code} "
            total += next((weight for line, weight in fields if text in line), 1)
    return total
