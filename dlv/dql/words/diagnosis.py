"""What is wrong with a text that is no query: where, what was expected, what was meant."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any

from dlv.dataclass import dataclass
from dlv.errors import Spot, UsageError, nearest

AT_END = "the end"
MOST_EXPECTED = 8
TAB = 4

_PASTED = {
    **dict.fromkeys("“”„‟«»", '"'),
    **dict.fromkeys("‘’‚‛", "'"),
    **dict.fromkeys("\u00a0\u2007\u202f\u200b\ufeff", "a plain blank"),
    **dict.fromkeys("−–—", "-"),
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
}


class SyntaxFault(UsageError):
    """A text that is no query. `start`, `length`: the stretch of it that is at fault.

    `called`: what the text is, where it is not the one that was typed.
    """

    kind = "query"

    def __init__(
        self,
        message: str,
        text: str,
        start: int,
        length: int,
        *,
        expected: Iterable[str] = (),
        hint: str | None = None,
        did_you_mean: Iterable[str] = (),
        why: str | None = None,
        called: str = "dql",
    ) -> None:
        self.text = text
        self.start = start
        self.length = length
        self.expected = list(expected)
        self.line, self.column = place(text, start)
        super().__init__(
            f"{called}:{self.line}:{self.column}: {message}",
            why=why,
            hint=hint,
            did_you_mean=list(did_you_mean),
        )
        line, mark = self.caret()
        self.spots = [Spot(self.message, line, mark, hint, self.did_you_mean)]

    def caret(self) -> list[str]:
        """The line at fault, and under it a mark."""
        line = _line(self.text, self.start)
        begin = self.start - line.start
        end = min(begin + max(self.length, 1), max(len(line.text), begin + 1))
        before, marked = line.text[:begin], line.text[begin:end]
        return [_shown(line.text), " " * _width(before) + "^" * max(_width(marked), 1)]

    def move_into(self, condition: str) -> None:
        """Point into a condition instead of the query that `query_of` made of it.

        A fault of another text, such as that of a saved query, stays where it is.
        """
        if self.text != query_of(condition):
            return
        before = f"{self.line}:{self.column}: "
        self.text, self.start = condition, max(self.start - len(_BEFORE), 0)
        ends = self.start >= len(condition)
        self.start = min(self.start, len(condition.rstrip()))
        self.line, self.column = place(condition, self.start)

        def moved(message: str) -> str:
            _, _, said = message.partition(before)
            said = said.replace('unexpected ")"', "unexpected end of condition") if ends else said
            return f"condition:{self.line}:{self.column}: {said}"

        self.message = moved(self.message)
        line, mark = self.caret()
        self.spots = [
            spot._replace(message=moved(spot.message), line=line, mark=mark) for spot in self.spots
        ]

    def as_json(self) -> dict[str, object]:
        document: dict[str, Any] = super().as_json()
        document["error"].update(
            line=self.line, column=self.column, length=self.length, expected=self.expected
        )
        return document


_BEFORE = "select m where ("


def query_of(condition: str) -> str:
    """Return the query for the versions that fulfil a condition on m."""
    return f"{_BEFORE}{condition}\n)"


@dataclass(frozen=True)
class Word:
    """The last word that was taken, and what else was accepted in its place."""

    text: str
    start: int
    length: int
    name: bool  # it was taken for a name, which a misspelt keyword is too
    accepted: frozenset[str]


@dataclass(frozen=True)
class Refused:
    """Where parsing stopped. `fault`: (start, length), None at the end of the text."""

    fault: tuple[int, int] | None
    accepted: frozenset[str]
    previous: Word | None
    words: frozenset[str]  # every keyword and sign


@dataclass(frozen=True)
class _Line:
    start: int
    text: str


def place(text: str, start: int) -> tuple[int, int]:
    """Line and column, from 1."""
    line = _line(text, start)
    return len(re.findall("\n", text[: line.start])) + 1, start - line.start + 1


def diagnose(text: str, refused: Refused) -> SyntaxFault:
    """The fault that a person should be told of."""
    quote = _unclosed(text)
    if quote is not None:
        return SyntaxFault(
            "the string is not closed",
            text,
            quote,
            1,
            expected=[text[quote]],
            hint=f"a string ends on its line, with {text[quote]}",
        )
    expected = _expected(refused.accepted)
    if refused.fault is None:
        return _at_the_end(text, refused, expected)
    start, length = refused.fault
    word = _word_at(text, start, length)
    if (fault := _bare_query(text, start, word, refused.previous)) is not None:
        return fault
    special = _special(text, start, word, refused)
    if special is not None:
        message, length, hint = special
        return SyntaxFault(message, text, start, length, expected=expected, hint=hint)
    meant = [] if word.lower() in refused.words else _near(word, refused.accepted)
    if not meant and (fault := _misspelt(text, refused.previous)) is not None:
        return fault
    return SyntaxFault(
        _unexpected(word, expected), text, start, len(word), expected=expected, did_you_mean=meant
    )


def _bare_query(text: str, start: int, word: str, previous: Word | None) -> SyntaxFault | None:
    """A query where a value should stand: `select` was taken for a name, or did not fit at all."""
    if previous is not None and previous.name and previous.text.lower() == "select":
        start, word = previous.start, previous.text
    if word.lower() != "select":
        return None
    called = re.search(r"([A-Za-z_]\w*)\s*\(\s*\Z", text[:start])
    name = called[1].lower() if called else ""
    message = "a query inside an expression must be in parentheses"
    hint = "(select ..)"
    if name == "in":
        message, hint = "nothing is compared with this query", "m in (select ..)"
    elif name in ("all", "any", "some"):
        message = f"`{name}` cannot be used with a query"
        hint = "> (select max(..) from n) for all, > (select min(..) from n) for any"
    elif name:
        message, hint = f"`{name}` cannot be used on a query", f"(select {name}(..) from n)"
    return SyntaxFault(message, text, start, len(word), hint=hint)


def _misspelt(text: str, word: Word | None) -> SyntaxFault | None:
    """A keyword that was taken for a name, so that only the next word did not fit."""
    if word is None or not word.name:
        return None
    meant = _near(word.text, word.accepted)
    if not meant:
        return None
    return SyntaxFault(
        f'unexpected "{word.text}"',
        *(text, word.start, word.length),
        expected=_expected(word.accepted),
        did_you_mean=meant,
    )


def _unexpected(word: str, expected: list[str]) -> str:
    shown = word if len(word) <= 30 else f"{word[:29]}…"
    return f'unexpected "{shown}"; expected {_or(expected)}'


def _at_the_end(text: str, refused: Refused, expected: list[str]) -> SyntaxFault:
    word = refused.previous
    if (fault := _misspelt(text, word)) is not None:
        return fault
    what = "unexpected end of query" if word else "no query given"
    end = word.start + word.length if word else len(text)
    hint = _MUTATE if "mutate" in refused.accepted else None
    message = f"{what}; expected {_or(expected)}"
    return SyntaxFault(message, text, end, 0, expected=expected, hint=hint)


def _or(words: list[str]) -> str:
    shown = [word if " " in word or word == "…" else f"`{word}`" for word in words]
    if len(shown) < 2:
        return shown[0] if shown else "nothing more"
    return ", ".join(shown[:-1]) + " or " + shown[-1]


def _expected(accepted: Iterable[str]) -> list[str]:
    """What could stand there: signs and kinds first, keywords last, not too many."""
    words = set(accepted)
    for kind, parts, sure in _KINDS:
        if sure <= words:
            words = words - parts | {kind}
    found = sorted(words - {AT_END}, key=lambda word: (word.isidentifier(), word))
    found += [AT_END] * (AT_END in words)
    return [*found[: MOST_EXPECTED - 1], "…"] if len(found) > MOST_EXPECTED else found


# What is summed up by one word, and which words have to be there for it.
_KINDS = (
    (
        "a value",
        {"$name", "(", "-", "[", "a name", "a number", "a string", "case", "true", "false", "null"},
        {"$name", "a name", "a number", "a string"},
    ),
    ("an operator", {"+", "-", "*", "/", "%"}, {"+", "-", "*", "/", "%"}),
)
_MUTATE = "slice and construct require `mutate`"


def _word_at(text: str, start: int, length: int) -> str:
    found = re.compile(r"[A-Za-z_0-9]+").match(text, start)
    return found[0] if found and len(found[0]) > length else text[start : start + length]


def _near(word: str, accepted: Iterable[str]) -> list[str]:
    keywords = [each for each in accepted if each.isidentifier()]
    if not re.fullmatch(r"[A-Za-z_]\w*", word) or word.lower() in keywords:
        return []
    return nearest(word, keywords)


def _special(text: str, start: int, word: str, refused: Refused) -> tuple[str, int, str] | None:
    """Faults with a name of their own: (message, length, hint)."""
    sign = text[start]
    if sign in _PASTED:
        said = unicodedata.name(sign, "a character").lower()
        return f"unexpected {said}", 1, f"it was pasted from text; type {_PASTED[sign]} instead"
    for wrong, right in (("=>", ">="), ("=<", "<=")):
        for at in (start, start - 1):
            if at >= 0 and text.startswith(wrong, at):
                return f'unexpected "{word}"', max(len(word), 1), f"write {right}, not {wrong}"
    if re.match(r"\$\d", text[start:]):
        return 'unexpected "$"', 2, 'captures such as $1 belong inside strings: "relu$1"'
    if sign == "," and "and" in refused.accepted:
        return 'unexpected ","', 1, "conditions and actions are joined by `and`"
    if sign == "&" or text.startswith("||", start):
        right = "and" if sign == "&" else "or"
        return f'unexpected "{word}"', 1, f"write `{right}`"
    if word.lower() in _ORDER and word.lower() in refused.words:
        return (
            f'unexpected "{word}"; expected {_or(_expected(refused.accepted))}',
            len(word),
            "the order of clauses is: " + " ".join(_ORDER),
        )
    if refused.accepted == {"when"} and word:
        return f'unexpected "{word}"; expected `when`', len(word), "case when m.lr > 1 then .. end"
    if word.lower() == "join":
        return 'unexpected "join"', len(word), "select a, b from a, b where .."
    if "mutate" in refused.accepted and sign == ";":
        return 'unexpected ";"', 1, _MUTATE
    return None


_ORDER = (
    *("from", "where", "group", "having", "mutate", "with", "vary", "using", "keep", "budget"),
    *("on", "into", "order", "limit"),
)


def _unclosed(text: str) -> int | None:
    """Where a string begins that its line does not end. Strings are looked at before comments."""
    for kind, start, end in _pieces(text):
        if kind in "\"'" and not _closed(text[start:end]):
            return start
    return None


def _pieces(text: str) -> Iterator[tuple[str, int, int]]:
    at = 0
    strings = re.compile(r"""(["'])(?:[^\\\n]|\\[^\n])*?(?:\1|\\?(?=\n|\Z))""")
    comments = re.compile(r"(?:--(?=\s|\Z)|\#)[^\n]*")
    while at < len(text):
        if text[at] in "\"'":
            found = strings.match(text, at)
            end = found.end() if found else len(text)
            yield text[at], at, max(end, at + 1)
            at = max(end, at + 1)
        elif found := comments.match(text, at):
            at = max(found.end(), at + 1)
        else:
            at += 1


def _closed(piece: str) -> bool:
    return re.fullmatch(r"""(["'])(?:[^\\\n]|\\.)*\1""", piece) is not None and len(piece) > 1


def _line(text: str, start: int) -> _Line:
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", start)
    line = text[begin : len(text) if end < 0 else end]
    return _Line(begin, line.rstrip("\r"))


def _shown(text: str) -> str:
    """As a terminal shows it: tabs expanded, control characters not acted on."""
    return "".join(
        " " * TAB if sign == "\t" else sign if sign.isprintable() else "·" for sign in text
    )


def _width(text: str) -> int:
    wide = 0
    for sign in text:
        if sign == "\t":
            wide += TAB
        elif unicodedata.east_asian_width(sign) in "WF":
            wide += 2
        elif not unicodedata.combining(sign):
            wide += 1
    return wide
