"""What a query gave, in each form that it can be printed in: rows, networks, trials, a plan."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dlv.canonical import is_hash
from dlv.dql.outcome import Defined, Explained, Networks, Outcome, Trials
from dlv.metadata import versions
from dlv.metadata.database import Database
from dlv.metadata.rows import Column as Told
from dlv.metadata.rows import Row, VersionCell
from dlv.metadata.usage import SavedQuery
from dlv.metadata.versions import Version
from dlv.repository.handle import Repository
from dlv.terminal.output import Block, Line, Verbatim
from dlv.terminal.table import Cell, Column, Id, Items, Moment, Table, Text, Time, raw
from dlv.views.values import Screen

if TYPE_CHECKING:
    from dlv.dql.outcome import Table as Found


# Rows


TOGETHER = 256  # rows whose versions are looked up at once


class Rows:
    """The rows of a query with what is to be said of the versions in them."""

    def __init__(self, results: Found, db: Database) -> None:
        self.result_columns = results.columns
        self.titles = _unique([column.title for column in results.columns])
        self.rows = results.rows
        self.model = results.model
        self.db = db
        self.count = 0  # of the rows that were read
        self._known: dict[str, Version] = {}

    @property
    def columns(self) -> list[dict[str, str]]:
        return [
            {"name": title, "kind": column.kind}
            for title, column in zip(self.titles, self.result_columns, strict=True)
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
        places = [i for i, column in enumerate(self.result_columns) if column.kind == "version"]
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
        return [column.kind for column in self.result_columns] == ["version"]

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
            for title, column in zip(self.titles, self.result_columns, strict=True)
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
        return [
            self._cell(value, column)
            for value, column in zip(row, self.result_columns, strict=True)
        ]

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
            return {"version": None, "id": value.id, "derived": True, "sources": self._from(value)}
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
    yield "no versions match" + (". Matches per condition:" if told else "")
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


# Outcomes of all kinds


STREAMED = ("jsonl", "csv", "ids")


class Shown:
    """One outcome. `count` is known when it was read: rows, networks, or 1."""

    count = 1
    warnings: Sequence[str] = ()

    def document(self) -> dict[str, Any]:
        raise NotImplementedError

    def blocks(self) -> Iterator[Block]:
        raise NotImplementedError

    def records(self) -> Iterator[Any]:
        """For jsonl, a line each."""
        yield self.document()

    def csv(self) -> Iterator[str]:
        for block in self.blocks():
            if isinstance(block, Table):
                yield from block.csv()

    def ids(self) -> Iterator[str]:
        return iter(())

    def messages(self) -> Iterator[str]:
        """What is to be said behind the result."""
        return iter(())

    def lines(self, how: str) -> Iterator[str]:
        """The outcome in one of the forms that are printed while it is read."""
        if how == "csv":
            return self.csv()
        if how == "ids":
            return self.ids()
        return (json.dumps(each, ensure_ascii=False) for each in self.records())


class ShownRows(Shown):
    def __init__(self, results: Any, repository: Repository) -> None:
        self.results = results
        self.warnings = results.warnings
        self.rows = Rows(results, repository.database)

    @property
    def count(self) -> int:  # type: ignore[override]
        return self.rows.count

    def document(self) -> dict[str, Any]:
        rows = list(self.rows.records())
        return {"kind": "rows", "columns": self.rows.columns, "rows": rows}

    def blocks(self) -> Iterator[Block]:
        yield self.rows.table()

    def records(self) -> Iterator[Any]:
        return self.rows.records()

    def csv(self) -> Iterator[str]:
        return self.rows.csv()

    def ids(self) -> Iterator[str]:
        return self.rows.ids()

    def messages(self) -> Iterator[str]:
        if not self.count:
            yield from nothing(self.results.reasons, self.rows.db)


class ShownNetworks(Shown):
    def __init__(self, networks: Networks, repository: Repository, screen: Screen | None) -> None:
        import dlv.views.derived as derived

        self.networks = networks
        self.repository = repository
        self.screen = screen
        self.warnings = [*networks.warnings, *derived.left_out(networks)]
        self.count = len(networks.models)

    def document(self) -> dict[str, Any]:
        import dlv.views.derived as derived

        return {"kind": "networks", **derived.networks_document(self.networks)}

    def blocks(self) -> Iterator[Block]:
        import dlv.views.derived as derived

        return derived.networks_blocks(self.networks, self.repository, self.screen)

    def records(self) -> Iterator[Any]:
        yield from self.document()["networks"]

    def csv(self) -> Iterator[str]:
        import dlv.views.derived as derived

        yield from derived.networks_table(self.networks).csv()

    def ids(self) -> Iterator[str]:
        """Of the versions that the networks became, else of the networks."""
        import dlv.repository.revisions as revisions

        db = self.repository.database
        for model in self.networks.models:
            made = model.committed
            yield model.id if made is None else revisions.version(db, made).id

    def messages(self) -> Iterator[str]:
        import dlv.views.derived as derived

        if (text := derived.skipped(self.networks)) is not None:
            yield text
        waiting = self.networks.into is not None and not any(
            m.committed for m in self.networks.models
        )
        if waiting and self.count:
            yield f"not committed as {self.networks.into}: only tried"


class ShownTrials(Shown):
    def __init__(self, trials: Trials, repository: Repository) -> None:
        self.trials = trials
        self.repository = repository
        self.warnings = trials.warnings
        self.count = len(trials.trials)

    def document(self) -> dict[str, Any]:
        import dlv.views.trials as ranked

        return {"kind": "trials", **ranked.trials_document(self.trials)}

    def blocks(self) -> Iterator[Block]:
        import dlv.views.trials as ranked

        yield ranked.trials_table(self.trials)

    def records(self) -> Iterator[Any]:
        yield from self.document()["trials"]

    def ids(self) -> Iterator[str]:
        """Of the versions that trials became, else of the trials."""
        import dlv.repository.revisions as revisions

        db = self.repository.database
        for trial in self.trials.trials:
            made = trial.committed
            yield trial.id if made is None else revisions.version(db, made).id

    def messages(self) -> Iterator[str]:
        import dlv.views.trials as ranked

        return ranked.trials_messages(self.trials)


class ShownDefinition(Shown):
    def __init__(self, defined: Defined) -> None:
        self.defined = defined

    def document(self) -> dict[str, Any]:
        told = self.defined
        return {"kind": "defined", "name": told.name, "text": told.text, "replaced": told.replaced}

    def blocks(self) -> Iterator[Block]:
        done = "replaced the old one" if self.defined.replaced else "saved"
        yield Line(Text(self.defined.name, "bold"), done)

    def csv(self) -> Iterator[str]:
        return iter(())


class ShownPlan(Shown):
    def __init__(self, explained: Explained, verbose: bool) -> None:
        self.explained = explained
        self.verbose = verbose
        self.warnings = explained.warnings

    def document(self) -> dict[str, Any]:
        return {"kind": "plan", "plan": dict(self.explained.document)}

    def blocks(self) -> Iterator[Block]:
        yield Verbatim([*self.explained.lines, *(self.explained.details if self.verbose else ())])


def shown(
    outcome: Outcome, repository: Repository, screen: Screen | None, *, verbose: bool
) -> Shown:
    if isinstance(outcome, Networks):
        return ShownNetworks(outcome, repository, screen)
    if isinstance(outcome, Trials):
        return ShownTrials(outcome, repository)
    if isinstance(outcome, Defined):
        return ShownDefinition(outcome)
    if isinstance(outcome, Explained):
        return ShownPlan(outcome, verbose)
    return ShownRows(outcome, repository)


def screen_of(terminal: bool, width: int, boxes: bool) -> Screen | None:
    """What a drawing may take; None where nobody looks at one."""
    if not terminal:
        return None
    return Screen(width, not boxes)


def saved(queries: Sequence[SavedQuery]) -> tuple[dict[str, Any], Table]:
    """Saved queries: as a document and as a table."""
    rows: list[list[Cell]] = [
        [Text(q.name, "bold"), Time(q.created), " ".join(q.text.split())] for q in queries
    ]
    records = [{"name": q.name, "text": q.text, "created": q.created} for q in queries]
    columns = [Column("name", fixed=True), Column("age", "created"), Column("text", least=20)]
    return {"kind": "saved", "queries": records}, Table(columns, rows)
