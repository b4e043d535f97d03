"""Rows of a query as people, pipes and programs see them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dlv.canonical import is_hash
from dlv.metadata import versions
from dlv.metadata.database import Database
from dlv.metadata.rows import Column as Told
from dlv.metadata.rows import Row, VersionCell
from dlv.metadata.versions import Version
from dlv.terminal.table import Cell, Column, Id, Items, Moment, Table, Text, Time, raw

if TYPE_CHECKING:
    from dlv.dql.outcome import Table as Found

TOGETHER = 256  # rows whose versions are looked up at once


class Rows:
    """The rows of a query with what is to be said of the versions in them."""

    def __init__(self, found: Found, db: Database) -> None:
        self.told = found.columns
        self.titles = _unique([column.title for column in found.columns])
        self.rows = found.rows
        self.model = found.model
        self.db = db
        self.count = 0  # of the rows that were read
        self._known: dict[str, Version] = {}

    @property
    def columns(self) -> list[dict[str, str]]:
        return [
            {"name": title, "kind": column.kind}
            for title, column in zip(self.titles, self.told, strict=True)
        ]

    def table(self) -> Table:
        """All of them. A version that stands alone is told of as `list` does."""
        alone = self._alone()
        cells = self._alone_cells if alone else self._cells
        return Table(self._headings(alone), [cells(row) for row in self._read()])

    def csv(self) -> Iterator[str]:
        alone = self._alone()
        cells = self._alone_cells if alone else self._cells
        headings = self._headings(alone)
        yield Table(headings, []).csv()[0]
        for row in self._read():
            yield Table(headings, [cells(row)]).csv()[1]

    def records(self) -> Iterator[dict[str, Any]]:
        """Each row as an object."""
        for row in self._read():
            yield {
                title: self._record(value) for title, value in zip(self.titles, row, strict=True)
            }

    def ids(self) -> Iterator[str]:
        """The id of the first version in each row, or what stands first if there is none."""
        places = [i for i, column in enumerate(self.told) if column.kind == "version"]
        place = places[0] if places else 0
        for row in self._read():
            value = row[place]
            yield value.id if isinstance(value, VersionCell) else _plain(value)

    def _read(self) -> Iterator[Row]:
        rows = iter(self.rows)
        while some := list(itertools.islice(rows, TOGETHER)):
            self._load(some)
            for row in some:
                self.count += 1
                yield row

    def _load(self, rows: Sequence[Row]) -> None:
        wanted = {
            cell.id
            for row in rows
            for value in row
            for cell in (value if isinstance(value, (list, tuple)) else (value,))
            if isinstance(cell, VersionCell) and cell.derived is None
        }
        self._look_up(wanted)
        bases = (base for key in wanted & self._known.keys() for base, _ in self._parents(key))
        self._look_up(bases)

    def _look_up(self, ids: Iterable[str]) -> None:
        missing = set(ids) - self._known.keys()
        if missing:
            self._known |= versions.by_ids(self.db, missing)

    def _parents(self, key: str) -> Sequence[tuple[str, str]]:
        return self._known[key].parents

    def _alone(self) -> bool:
        return [column.kind for column in self.told] == ["version"]

    def _headings(self, alone: bool) -> list[Column]:
        if alone:
            first = [Column("version", fixed=True), Column("id", fixed=True)]
            return [
                *first,
                Column("age", "created", fixed=True),
                Column("parents"),
                Column("message"),
            ]
        return [
            Column(title, title, fixed=column.kind in ("version", "time"))
            for title, column in zip(self.titles, self.told, strict=True)
        ]

    def _alone_cells(self, row: Row) -> list[Cell]:
        cell = row[0]
        if cell.derived is not None:
            return [Text("(not committed)", "dim"), Id(cell.id), None, Items(self._from(cell)), ""]
        version = self._known[cell.id]
        return [
            Text(version.label, "bold"),
            Id(version.id),
            Time(version.created),
            Items([self._label(base) for base, _ in version.parents]),
            version.message.partition("\n")[0],
        ]

    def _cells(self, row: Row) -> list[Cell]:
        return [self._cell(value, column) for value, column in zip(row, self.told, strict=True)]

    def _cell(self, value: Any, column: Told) -> Cell:
        if isinstance(value, VersionCell):
            return Id(value.id) if value.derived else self._label(value.id)
        if isinstance(value, (list, tuple)):
            return Items([self._cell(item, column) for item in value])
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, Mapping):
            return json.dumps(value, ensure_ascii=False)
        if isinstance(value, str) and is_hash(value):
            return Id(value)
        if column.kind == "time" and isinstance(value, str):
            return Moment(value)
        cell: Cell = value
        return cell

    def _from(self, cell: VersionCell) -> list[Cell]:
        """What a derived network comes from."""
        return list(self.model(cell).origins)

    def _label(self, digest: str) -> Cell:
        version = self._known.get(digest)
        return Id(digest) if version is None else version.label

    def _record(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._record(item) for item in value]
        if not isinstance(value, VersionCell):
            return raw(value)
        if value.derived is not None:
            return {
                "version": None,
                "id": value.id,
                "derived": True,
                "sources": self._from(value),
            }
        version = self._known[value.id]
        return {
            "version": version.label,
            "id": version.id,
            "derived": False,
            "name": version.name,
            "number": version.number,
            "created": version.created,
            "message": version.message,
            "network": version.network,
            "parents": [
                {"version": self._base(base), "id": base, "kind": kind}
                for base, kind in version.parents
            ],
        }

    def _base(self, digest: str) -> str | None:
        version = self._known.get(digest)
        return None if version is None else version.label


def nothing(reasons: Callable[[], Sequence[str]], db: Database) -> Iterator[str]:
    """Why there was no row: what each condition alone keeps."""
    if not versions.names(db):
        yield "no versions yet"
        return
    told = reasons()
    yield "no version fits" + ("; each condition alone keeps" if told else "")
    yield from (f"  {line}" for line in told)


def _plain(value: Any) -> str:
    return "" if value is None else str(raw(value))


def _unique(titles: Sequence[str]) -> list[str]:
    """The titles as keys: of two that are alike, the second gets a number."""
    found: dict[str, None] = {}
    for title in titles:
        name, number = title, 2
        while name in found:
            name, number = f"{title}_{number}", number + 1
        found[name] = None
    return list(found)
