"""What commands print, as HTML: tables, fields, headings and sentences, and drawings among them.

Everything that comes from a repository is escaped here: as HTML, and characters that would turn
or hide what follows them as they are escaped on a terminal.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Sequence
from html import escape as html_escape
from typing import TypeAlias

from dlv.terminal.output import Block, Fields, Heading, Line, Verbatim
from dlv.terminal.table import (
    Cell,
    Id,
    Items,
    Moment,
    Number,
    Table,
    Text,
    Time,
    escape,
    full,
    is_numeric,
    short,
    style_of,
)

_LONG_NUMBER = re.compile(r"-?\d+\.\d{7,}(?:e[-+]?\d+)?\Z")  # more digits than tell anything
LONG = 48  # characters from which a cell may have several lines
FOLDED = 40  # rows of a table from which the rest is folded


class Html(str):
    """Markup that is shown as it is; templates know it by `__html__`."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


Part: TypeAlias = Block | Html
# Where a cell leads: (title of its column, the cell) -> an address, or None.
Links: TypeAlias = Callable[[str, Cell], str | None]


def text(value: object) -> Html:
    """A string of a repository as harmless markup."""
    lines = str(value).split("\n")
    return Html(html_escape("\n".join(escape(line) for line in lines)))


def join(parts: Iterable[str]) -> Html:
    return Html("".join(parts))


def parts(blocks: Iterable[Part], now: datetime.datetime, links: Links | None = None) -> Html:
    """Blocks below each other."""
    return join(part(block, now, links) for block in blocks)


def part(block: Part, now: datetime.datetime, links: Links | None = None) -> Html:
    if isinstance(block, Html):
        return block
    if isinstance(block, Table):
        return table(block, now, links)
    if isinstance(block, Fields):
        return fields(block, now, links)
    if isinstance(block, Heading):
        return Html(f"<h3>{text(_title(block.text))}</h3>")
    if isinstance(block, Verbatim):
        return Html(f"<pre>{text(chr(10).join(block.lines))}</pre>")
    if isinstance(block, Line):
        return Html(f"<p>{' '.join(cell(each, now) for each in block.cells)}</p>")
    return Html(f"<p>{text(block)}</p>") if block else Html("")


def _title(words: str) -> str:
    return words[:1].upper() + words[1:]


def fields(block: Fields, now: datetime.datetime, links: Links | None = None) -> Html:
    rows = [
        f"<dt>{text(name)}</dt><dd>{_linked(name, value, now, links)}</dd>"
        for name, value in block.values.items()
    ]
    return Html(f"<dl>{''.join(rows)}</dl>") if rows else Html("")


def table(
    block: Table,
    now: datetime.datetime,
    links: Links | None = None,
    *,
    caption: str = "",
    fold: int | None = FOLDED,
) -> Html:
    """A table; rows from `fold` on are folded away, which needs no script."""
    if not block.rows:
        return Html("")
    right = block.right()
    head = "".join(
        f'<th scope="col"{_class("n" if right[place] else "")}>{text(column.title)}</th>'
        for place, column in enumerate(block.columns)
    )
    rows = [
        "<tr>"
        + "".join(
            _data(block.columns[place].title, value, now, links, right=right[place])
            for place, value in enumerate(row)
        )
        + "</tr>"
        for row in block.rows
    ]

    def whole(some: Sequence[str]) -> str:
        body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(some)}</tbody>"
        return scrolling(caption or "table", f"<table>{body}</table>")

    if fold is None or len(rows) <= fold + fold // 4:
        return Html(whole(rows))
    more = f"<summary>{len(rows) - fold:,} more</summary>{whole(rows[fold:])}"
    return Html(f"{whole(rows[:fold])}<details>{more}</details>")


def scrolling(label: str, body: str) -> Html:
    """What may be wider than the page: it scrolls by itself, by keyboard, too."""
    region = f'tabindex="0" role="region" aria-label="{text(label)}"'
    return Html(f'<div class="table" {region}>{body}</div>')


def _class(*names: str) -> str:
    given = " ".join(filter(None, names))
    return f' class="{given}"' if given else ""


def _data(
    title: str, value: Cell, now: datetime.datetime, links: Links | None, *, right: bool
) -> str:
    long = "" if right or len(full(value)) <= LONG or isinstance(value, Id) else "long"
    return f"<td{_class('n' if right else '', long)}>{_linked(title, value, now, links)}</td>"


def _linked(title: str, value: Cell, now: datetime.datetime, links: Links | None) -> str:
    if isinstance(value, Items) and links is not None:
        return ", ".join(_linked(title, item, now, links) for item in value.values) or "–"
    shown = cell(value, now)
    address = None if links is None or value is None else links(title, value)
    return shown if address is None else f'<a href="{html_escape(address)}">{shown}</a>'


def cell(value: Cell, now: datetime.datetime) -> Html:
    """A value as a person reads it; what was rounded away stands in its title."""
    if isinstance(value, Html):
        return value
    if value is None:
        return Html('<span class="dim">–</span>')
    if isinstance(value, Items):
        return Html(", ".join(cell(item, now) for item in value.values) or "–")
    if isinstance(value, str) and _LONG_NUMBER.match(value):
        value = Number(float(value), 6)
    shown, whole = text(short(value, now)), full(value)
    if isinstance(value, Id):
        return Html(f'<code title="{text(whole)}">{shown}</code>')
    if isinstance(value, (Time, Moment)):
        return Html(f'<time datetime="{text(whole)}" title="{text(whole)}">{shown}</time>')
    style = style_of(value)
    about = f' title="{text(whole)}"' if is_numeric(value) and short(value, now) != whole else ""
    if style or about:
        return Html(f"<span{_class(style)}{about}>{shown}</span>")
    if isinstance(value, (str, Text)) and not shown:
        return Html('<span class="dim">–</span>')
    return shown
