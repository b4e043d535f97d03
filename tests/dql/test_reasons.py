"""Why nothing was found."""

from __future__ import annotations

from pathlib import Path

from dlv.dql import execute
from dlv.metadata.select.relations import (
    All,
    Column,
    Compare,
    Constant,
    Item,
    Query,
    Select,
    Source,
    Whole,
)
from dlv.repository.handle import Repository


def test_each_condition_tells_how_many_it_keeps_alone(tmp_path: Path) -> None:
    name = Column("m", "name")
    parts = (Compare("=", name, Constant("a")), Compare("!=", name, Constant("a")))
    with Repository.init(tmp_path)[0] as repository:
        query = Query(Select((Item("m", Whole("m")),), (Source("m"),), All(parts)))
        assert execute.survivor_reasons(repository.database, query) == [
            '0 versions: m.name = "a"',
            '0 versions: m.name != "a"',
        ]
