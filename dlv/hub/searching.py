"""Search the cards of a remote: words, fields such as task:vision, and figures such as acc>0.9."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection

from dlv.dataclass import dataclass
from dlv.errors import NotFound, UsageError, nearest
from dlv.metadata import cards
from dlv.metadata.cards import Clause, Hit, Wanted
from dlv.metadata.database import Database
from dlv.repository.revisions import direction_of

FIELDS = ("name", "task", "license", "tag", "author", "net")
KINDS = ("last", "min", "max")  # of figures of a metric
FIGURE = re.compile(r"(?P<name>[^\s<>=!]+?)(?P<op><=|>=|==|=|<|>)(?P<value>[^\s<>=!]+)\Z")
_WORD = re.compile(r"\w")


@dataclass(frozen=True)
class Found:
    """The best hits, and how many versions match: at least so many if there are `more`."""

    hits: list[Hit]
    count: int
    more: bool

    @property
    def total(self) -> str:
        """The count for people."""
        return f"over {self.count:,}" if self.more else f"{self.count:,}"


def search(
    db: Database,
    text: str,
    *,
    among: Collection[str] | None = None,
    sort: str | None = None,
    most: int = 20,
) -> Found:
    """Return the versions that fit all terms of a text; `among`: only these ids."""
    words: list[str] = []
    clauses: list[Clause] = []
    for term in terms_of(text):
        figure = figure_of(term)
        field, colon, value = term.partition(":")
        if figure is not None:
            clauses.append(_figure(db, term, figure))
        elif colon and value:
            clause = cards.clause(field.lower(), value)
            if clause is None:
                raise UsageError(
                    f"`{field}:` is not a field of cards",
                    why=f"fields: {', '.join(FIELDS)}",
                    did_you_mean=[f"{near}:{value}" for near in nearest(field, FIELDS)],
                )
            clauses.append(clause)
        elif _WORD.search(term):
            words.append(term)
    wanted = Wanted(words, clauses, among, most=max(most, 0))
    if sort in cards.ORDERS:
        wanted.column = sort
    elif sort is not None:
        wanted.metric, _, way = sort.partition(":")
        _check_name(db, wanted.metric)
        wanted.ascending = (way or direction_of(wanted.metric)) == "min"
    hits, count = cards.search(db, wanted)
    return Found(hits, count, count >= cards.COUNTED)


def terms_of(text: str) -> list[str]:
    """Return the terms of a search; quotes keep words together."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def figure_of(term: str) -> re.Match[str] | None:
    """Divide a condition such as accuracy>0.9; None for a word."""
    match = FIGURE.match(term)
    if match is None and ("<" in term or ">" in term):
        raise UsageError(f"`{term}` is not a condition", hint="write it like accuracy>0.9")
    return match


def missing_figure(name: str, known: Collection[str]) -> NotFound:
    return NotFound(
        f"no version has the metric or hyperparameter `{name}`", did_you_mean=nearest(name, known)
    )


def _figure(db: Database, term: str, match: re.Match[str]) -> Clause:
    try:
        value = float(match["value"])
    except ValueError:
        raise UsageError(f"`{term}` does not compare with a number") from None
    name, dot, column = match["name"].rpartition(".")
    if not dot or column not in KINDS:
        name, column = match["name"], "last"
    _check_name(db, name)
    op = "=" if match["op"] == "==" else match["op"]
    return cards.figure(name, column, op, value)


def _check_name(db: Database, name: str) -> None:
    known = cards.names(db)
    if name not in known:
        raise missing_figure(name, known)
