"""Frames: how blocks become sections, with the current time and links between pages."""

from __future__ import annotations

import datetime
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import dlv.disk.user_files as user_files
from dlv.dataclass import dataclass
from dlv.report import markup, page
from dlv.report.markup import Html, Links, Part
from dlv.report.page import Section
from dlv.terminal.output import Heading, Output
from dlv.terminal.table import Column, Table, Text
from dlv.ui.addresses import Addresses


def paper(now: datetime.datetime | None = None) -> Output:
    """An output as views want it: no terminal, any character."""
    return Output(io.StringIO(), io.StringIO(), {}, form="html", now=now)


@dataclass(frozen=True)
class Frame:
    """The context of sections: the time now, links from versions to their pages, all addresses."""

    now: datetime.datetime
    links: Links | None = None
    addresses: Addresses = Addresses()

    @classmethod
    def of_pages(cls, now: datetime.datetime, addresses: Addresses) -> Frame:
        return cls(now, addresses.links, addresses)

    def leading(self, links: Links) -> Frame:
        """Return the frame with links of another kind."""
        return Frame(self.now, links, self.addresses)

    @property
    def output(self) -> Output:
        return paper(self.now)

    def html(self, *blocks: Part) -> Html:
        return markup.parts(blocks, self.now, self.links)

    def table(self, table: Table, *, caption: str = "", fold: int | None = markup.FOLDED) -> Html:
        return markup.table(table, self.now, self.links, caption=caption, fold=fold)

    def sections(self, blocks: Iterable[Part], first: str = "") -> list[Section]:
        """Blocks as a command prints them: each heading begins a section."""
        found: list[tuple[str, list[Part]]] = [(first, [])]
        for block in blocks:
            if isinstance(block, Heading):
                found.append((block.text, []))
            else:
                found[-1][1].append(block)
        return [Section(title, self.html(*parts)) for title, parts in found if any(parts)]


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def write(
    path: Path, title: str, sections: Iterable[Section], *, about: str = "", command: str = ""
) -> None:
    """A report, whole or not at all; what was there before is replaced."""
    text = page.page(title, about, command, sections)
    with user_files.replacing(path) as out:
        out.write(text.encode("utf-8", "backslashreplace"))


def without(table: Table, *titles: str) -> Table:
    """The table without columns of these titles."""
    kept = [place for place, column in enumerate(table.columns) if column.title not in titles]
    rows = [[row[place] for place in kept] for row in table.rows]
    return Table([table.columns[place] for place in kept], rows)


def same_names(table: Table, name: str, alias: str) -> bool:
    """Whether a column only repeats another one."""
    titles = [column.title for column in table.columns]
    if name not in titles or alias not in titles:
        return False
    a, b = titles.index(name), titles.index(alias)

    def plain(value: object) -> object:
        return value.value if isinstance(value, Text) else value

    return all(row[b] is None or plain(row[a]) == plain(row[b]) for row in table.rows)


def with_column(table: Table, title: str, cells: Sequence[Html]) -> Table:
    """The table with one more column, of drawings."""
    rows = [(*row, cell) for row, cell in zip(table.rows, cells, strict=True)]
    return Table([*table.columns, Column(title)], rows)
