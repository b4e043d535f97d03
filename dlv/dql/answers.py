"""What a query gives to a program: rows with versions in them, or networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dlv.dql.execute as execute
import dlv.folders as folders
from dlv.dql.outcome import Explained, Model, Networks, Outcome, Table
from dlv.errors import UsageError, require
from dlv.metadata import versions
from dlv.metadata.rows import VersionCell
from dlv.network.graph import Network
from dlv.network.verify import Problem
from dlv.network.wiring import Edit
from dlv.repository import Repository
from dlv.version import Version

TOGETHER = 500  # versions that are looked up at once


@dataclass(frozen=True)
class DerivedNetwork:
    """A network that a query has made. `origins`: labels of the models that give just this one.

    `source` is the version that its weights come from, `version` the one that `into` made of it.
    """

    network: Network
    origins: tuple[str, ...]
    edits: tuple[Edit, ...]
    problems: tuple[Problem, ...]
    source: Version
    version: Version | None = None

    @property
    def id(self) -> str:
        return self.network.id

    def __repr__(self) -> str:
        return f"<dlv network {self.id[:12]} from {', '.join(self.origins)}>"


class Answer(Sequence[tuple[Any, ...]]):
    """The rows of a query, each a tuple; `networks` where it was slice or construct.

    Versions in rows are `dlv.version.Version`, networks not committed are `DerivedNetwork`.
    """

    def __init__(
        self,
        columns: Sequence[str] = (),
        rows: Sequence[tuple[Any, ...]] = (),
        networks: Sequence[DerivedNetwork] = (),
        warnings: Sequence[str] = (),
        plan: Sequence[str] = (),
    ) -> None:
        self.columns = list(columns)
        self.rows = list(rows)
        self.networks = list(networks)
        self.warnings = list(warnings)
        self.plan = list(plan)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: Any) -> Any:
        return self.rows[place]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def __repr__(self) -> str:
        if self.networks:
            return f"<dlv answer: {len(self.networks)} networks>"
        return f"<dlv answer: {len(self.rows)} rows of {', '.join(self.columns) or 'nothing'}>"

    def to_pandas(self) -> Any:
        """A DataFrame, in which versions stand by their labels."""
        try:
            pandas = require("pandas", "pandas")
        except UsageError as error:
            error.hint = "pip install pandas"
            raise
        rows = [[_plain(value) for value in row] for row in self.rows]
        return pandas.DataFrame(rows, columns=self.columns)


def ask(
    repository: Repository, text: str, parameters: Mapping[str, Any], environ: Mapping[str, str]
) -> Answer:
    """Run all statements; the answer of the last one."""
    asked = execute.Asked(parameters=parameters, cache_folder=folders.cache(environ))
    answer = Answer()
    for outcome in execute.run(repository, text, asked):
        answer = _answer(repository, outcome)
    return answer


def _answer(repository: Repository, outcome: Outcome) -> Answer:
    if isinstance(outcome, Networks):
        made = [_derived(repository, model) for model in outcome.models]
        left = [f"{each.origin}: {each.reason}" for each in outcome.dropped]
        return Answer(networks=made, warnings=[*outcome.warnings, *left])
    if isinstance(outcome, Explained):
        return Answer(plan=outcome.lines, warnings=outcome.warnings)
    if isinstance(outcome, Table):
        rows = list(outcome.rows)
        known = _known(repository, rows)

        def value(cell: Any) -> Any:
            if isinstance(cell, (list, tuple)):
                return [value(item) for item in cell]
            if not isinstance(cell, VersionCell):
                return cell
            if cell.derived is not None:
                return _derived(repository, outcome.model(cell))
            return known[cell.id]

        return Answer(
            [column.title for column in outcome.columns],
            [tuple(map(value, row)) for row in rows],
            warnings=outcome.warnings,
        )
    return Answer()


def _known(repository: Repository, rows: Sequence[tuple[Any, ...]]) -> dict[str, Version]:
    cells = (cell for row in rows for value in row for cell in _each(value))
    wanted = list(dict.fromkeys(c.id for c in cells if c.derived is None))
    found: dict[str, Version] = {}
    for start in range(0, len(wanted), TOGETHER):
        known = versions.by_ids(repository.database, wanted[start : start + TOGETHER])
        found |= {key: Version(repository, row) for key, row in known.items()}
    return found


def _each(value: Any) -> Iterator[VersionCell]:
    for item in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(item, VersionCell):
            yield item


def _derived(repository: Repository, model: Model) -> DerivedNetwork:
    source = versions.by_id(repository.database, model.source_id)
    assert source is not None, "a network is derived from a version that was just read"
    made = None
    if model.committed is not None:
        name, _, number = model.committed.rpartition("@")
        made = versions.by_number(repository.database, name, int(number))
    return DerivedNetwork(
        *(model.network, model.origins, model.edits, model.problems),
        Version(repository, source),
        None if made is None else Version(repository, made),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Version):
        return value.row.label
    return value.id if isinstance(value, DerivedNetwork) else value
