"""Statements run whole: rows of one moment, nested derivations, and what is left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dlv.dql.execute as execute
import dlv.dql.saved as saved
from dlv.dql.bind.binder import Faults
from dlv.dql.outcome import Defined, Explained, Networks, Outcome, QueryOptions, Table
from dlv.errors import DlvError, NotFound
from dlv.metadata import versions
from dlv.metadata.rows import VersionCell
from dlv.repository.handle import Repository
from tests.dql.brute_networks import alexnet


@pytest.fixture
def repository(tmp_path: Path, commit_model: Callable[..., str]) -> Iterator[Repository]:
    with Repository.init(tmp_path)[0] as made:
        for number, (name, pool) in enumerate((("one", "MAX"), ("two", "AVG"), ("bare", None))):
            nodes = None if pool is None else alexnet(pool, relu=False)
            commit_model(
                made, name, {}, nodes, root=True, shape=[4, 8, 8], parameters={"lr": number / 10}
            )
        yield made


def run(repository: Repository, text: str, **asked: Any) -> list[Outcome]:
    """All outcomes; rows are read as they come."""
    found: list[Outcome] = []
    for outcome in execute.run(repository, text, QueryOptions(**asked)):
        if isinstance(outcome, Table):
            rows = list(outcome.rows)
            outcome = Table(outcome.columns, iter(rows), outcome.warnings, outcome.reasons)
        found.append(outcome)
    return found


def rows(repository: Repository, text: str, **parameters: Any) -> list[Any]:
    (table,) = run(repository, text, parameters=parameters)
    assert isinstance(table, Table)
    return [row[0] if len(row) == 1 else row for row in table.rows]


def test_rows_are_those_of_the_moment_of_the_first(repository: Repository) -> None:
    other = Repository.find(repository.root)
    results = execute.run(repository, "select m.name order by m.name; select m.name")
    table = next(results)
    assert isinstance(table, Table)
    assert next(table.rows) == ("bare",)
    with other, other.database.atomic():
        other.database.execute("UPDATE version SET name = 'later' WHERE name = 'two'")
    assert [row[0] for row in table.rows] == ["one", "two"]
    second = next(results)
    assert isinstance(second, Table)
    assert {row[0] for row in second.rows} == {"bare", "one", "later"}


def test_rows_that_nobody_reads_hold_nothing(repository: Repository) -> None:
    for outcome in execute.run(repository, "select m; select m.name"):
        assert isinstance(outcome, Table)
    with repository.database.atomic():
        pass


def test_networks_are_derived_from_derived_ones_and_asked_for(repository: Repository) -> None:
    text = """
        select d.name, d["*"].count as n from (
          construct d from (
            slice s from (select x where x.name = "one") as y
            mutate s.input = y["conv1"] and s.output = y["fc7"]
          ) as z mutate z["conv1"].insert = [RELU("r1"), DROPOUT("d1")]
        ) where d["conv1"].next[RELU].next has DROPOUT
    """
    ((name, count),) = rows(repository, text)
    (sliced,) = run(
        repository,
        'slice s from m where m.name = "one" mutate s.input = m["conv1"] and s.output = m["fc7"]',
    )
    assert isinstance(sliced, Networks)
    assert name == "one"
    assert count == len(sliced.models[0].network.nodes) + 2


def test_a_derived_network_stands_for_itself_in_rows(repository: Repository) -> None:
    text = 'select d, d.lr from (construct d from m mutate m["conv1"].out in [4, 6]) order by d.lr'
    results = execute.run(repository, text)
    table = next(results)
    assert isinstance(table, Table)
    found = list(table.rows)
    assert [row[1] for row in found] == [0.0, 0.0, 0.1, 0.1]
    cells = [row[0] for row in found]
    assert all(isinstance(cell, VersionCell) and cell.derived is not None for cell in cells)
    assert len({cell.id for cell in cells}) == 4
    assert {table.model(cell).network.node("conv1").attrs["out"] for cell in cells} == {4, 6}


def test_into_commits_and_dry_runs_do_not(repository: Repository) -> None:
    text = 'construct d from m where m.name = "one" mutate m["conv1"].insert = RELU("r") into "new"'
    (dry,) = run(repository, text, dry_run=True)
    assert isinstance(dry, Networks)
    assert dry.models[0].committed is None
    assert not versions.is_name(repository.database, "new")
    (done,) = run(repository, text)
    assert isinstance(done, Networks)
    assert done.models[0].committed == "new@1"
    assert rows(repository, 'select m.name where m["conv1"].next has RELU("r")') == ["new"]
    assert rows(repository, 'select m.name where m child_of "one@1"') == ["new"]


def test_a_query_is_defined_used_and_explained(repository: Repository) -> None:
    defined, table = run(
        repository, 'define small as select m where m.lr < $most; select m.name from m in "small"',
        parameters={"most": 0.15},
    )  # fmt: skip
    assert isinstance(defined, Defined)
    assert defined.text == "select m where m.lr < $most"
    assert isinstance(table, Table)
    assert sorted(row[0] for row in table.rows) == ["one", "two"]
    run(repository, "define other as select m", dry_run=True)
    assert [each.name for each in saved.list_queries(repository)] == ["small"]
    (plan,) = run(repository, 'select m from "small"', parameters={"most": 1}, explain=True)
    assert isinstance(plan, Explained)
    assert any("lr < 1" in line for line in plan.lines)


def test_where_nothing_is_found_reasons_are_at_hand(repository: Repository) -> None:
    (table,) = run(repository, "select m where m.lr > 5 and m.lr < 6")
    assert isinstance(table, Table)
    assert list(table.rows) == []
    assert list(table.reasons()) == ["0 versions: m.lr > 5", "3 versions: m.lr < 6"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("select m where m.nothing = 1", Faults),
        ('select m where m = "nobody@3"', NotFound),
        ('construct d from m mutate m["nowhere"].delete', NotFound),
        ("evaluate m from m", DlvError),
    ],
)
def test_what_fails_leaves_no_transaction(
    repository: Repository, text: str, kind: type[DlvError]
) -> None:
    with pytest.raises(kind):
        run(repository, text)
    with repository.database.atomic():
        pass
    assert len(rows(repository, "select m")) == 3


def test_the_source_of_a_derived_network_is_a_version(repository: Repository) -> None:
    made = '(construct d from m where m.lr < 0.15 mutate m["conv1"].out = 6)'
    found = rows(repository, f"select d.source from d in {made} order by d.name")
    assert [(cell.id, cell.derived) for cell in found] == [
        (cell.id, None) for cell in rows(repository, "select m where m.lr < 0.15 order by m.name")
    ]
    joined = (
        f"select m.name from d in {made}, m where d.source = m and d.net != m.net order by 1 * m.lr"
    )
    assert rows(repository, joined) == ["one", "two"]
    assert rows(repository, f'select d.name from d in {made} where d.source = "two@1"') == ["two"]
