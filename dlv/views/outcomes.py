"""What statements of a query gave, in each of the forms that it can be printed in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import dlv.views.queried as queried
from dlv.dql.outcome import Defined, Explained, Networks, Outcome, Trials
from dlv.metadata.saved import SavedQuery
from dlv.repository.handle import Repository
from dlv.terminal.output import Block, Line, Verbatim
from dlv.terminal.table import Cell, Column, Table, Text, Time
from dlv.views.values import Screen

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
    def __init__(self, found: Any, repository: Repository) -> None:
        self.found = found
        self.warnings = found.warnings
        self.rows = queried.Rows(found, repository.database)

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
            yield from queried.nothing(self.found.reasons, self.rows.db)


class ShownNetworks(Shown):
    def __init__(self, found: Networks, repository: Repository, screen: Screen | None) -> None:
        import dlv.views.derived as derived

        self.found = found
        self.repository = repository
        self.screen = screen
        self.warnings = [*found.warnings, *derived.left_out(found)]
        self.count = len(found.models)

    def document(self) -> dict[str, Any]:
        import dlv.views.derived as derived

        return {"kind": "networks", **derived.document(self.found)}

    def blocks(self) -> Iterator[Block]:
        import dlv.views.derived as derived

        return derived.blocks(self.found, self.repository, self.screen)

    def records(self) -> Iterator[Any]:
        yield from self.document()["networks"]

    def csv(self) -> Iterator[str]:
        import dlv.views.derived as derived

        yield from derived.table(self.found).csv()

    def ids(self) -> Iterator[str]:
        """Of the versions that the networks became, else of the networks."""
        import dlv.repository.revisions as revisions

        db = self.repository.database
        for model in self.found.models:
            made = model.committed
            yield model.id if made is None else revisions.version(db, made).id

    def messages(self) -> Iterator[str]:
        import dlv.views.derived as derived

        if (text := derived.skipped(self.found)) is not None:
            yield text
        waiting = self.found.into is not None and not any(m.committed for m in self.found.models)
        if waiting and self.count:
            yield f"not committed as {self.found.into}: only tried"


class ShownTrials(Shown):
    def __init__(self, found: Trials, repository: Repository) -> None:
        self.found = found
        self.repository = repository
        self.warnings = found.warnings
        self.count = len(found.trials)

    def document(self) -> dict[str, Any]:
        import dlv.views.ranked as ranked

        return {"kind": "trials", **ranked.document(self.found)}

    def blocks(self) -> Iterator[Block]:
        import dlv.views.ranked as ranked

        yield ranked.table(self.found)

    def records(self) -> Iterator[Any]:
        yield from self.document()["trials"]

    def ids(self) -> Iterator[str]:
        """Of the versions that trials became, else of the trials."""
        import dlv.repository.revisions as revisions

        db = self.repository.database
        for trial in self.found.trials:
            made = trial.committed
            yield trial.id if made is None else revisions.version(db, made).id

    def messages(self) -> Iterator[str]:
        import dlv.views.ranked as ranked

        return ranked.messages(self.found)


class ShownDefinition(Shown):
    def __init__(self, found: Defined) -> None:
        self.found = found

    def document(self) -> dict[str, Any]:
        told = self.found
        return {"kind": "defined", "name": told.name, "text": told.text, "replaced": told.replaced}

    def blocks(self) -> Iterator[Block]:
        done = "put in place of the old one" if self.found.replaced else "saved"
        yield Line(Text(self.found.name, "bold"), done)

    def csv(self) -> Iterator[str]:
        return iter(())


class ShownPlan(Shown):
    def __init__(self, found: Explained) -> None:
        self.found = found
        self.warnings = found.warnings

    def document(self) -> dict[str, Any]:
        return {"kind": "plan", "plan": dict(self.found.document)}

    def blocks(self) -> Iterator[Block]:
        yield Verbatim(list(self.found.lines))


def shown(outcome: Outcome, repository: Repository, screen: Screen | None) -> Shown:
    if isinstance(outcome, Networks):
        return ShownNetworks(outcome, repository, screen)
    if isinstance(outcome, Trials):
        return ShownTrials(outcome, repository)
    if isinstance(outcome, Defined):
        return ShownDefinition(outcome)
    if isinstance(outcome, Explained):
        return ShownPlan(outcome)
    return ShownRows(outcome, repository)


def screen_of(terminal: bool, width: int, boxes: bool) -> Screen | None:
    """What a drawing may take; None where nobody looks at one."""
    if not terminal:
        return None
    return Screen(width, not boxes)


def saved(found: Sequence[SavedQuery]) -> tuple[dict[str, Any], Table]:
    """Saved queries: as a document and as a table."""
    rows: list[list[Cell]] = [
        [Text(q.name, "bold"), Time(q.created), " ".join(q.text.split())] for q in found
    ]
    records = [{"name": q.name, "text": q.text, "created": q.created} for q in found]
    columns = [Column("name", fixed=True), Column("age", "created"), Column("text", least=20)]
    return {"kind": "saved", "queries": records}, Table(columns, rows)
