"""Names that would silently mean nothing, or everything, are refused with what was meant."""

from __future__ import annotations

from functools import cache

import pytest

import dlv.dql.bind.queries as queries
from dlv.dql.bind.binder import WrongQuery
from dlv.dql.words import ast
from dlv.dql.words.parser import parse
from dlv.metadata.select import statement as select
from dlv.metadata.usage import KnownNames
from tests.dql.brute_repositories import Made, make

made = cache(make)


def rows(repository: Made, text: str) -> int:
    (statement,) = parse(text)
    assert isinstance(statement, ast.Query)
    bound = queries.resolve(text, statement, KnownNames(repository.db), {})
    assert bound.query is not None
    return sum(1 for _ in select.run(repository.db, bound.query)[1])


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("select name, loss", "m.name"),
        ("select m, name", "m.name"),
        ("select m order by loss", 'm["loss"]'),
        ("select count(loss)", 'm["loss"]'),
        ("select lr, m", "m.lr"),
        ("select name, loss from m", "m.name"),
        ("select m.name from m group by name", "m.name"),
    ],
)
def test_bare_columns(text: str, meant: str) -> None:
    with pytest.raises(WrongQuery) as caught:
        rows(made(0), text)
    assert meant in [each for fault in caught.value.faults for each in fault.did_you_mean]


@pytest.mark.parametrize("text", ["select m", "select n", "select loss where loss.lr > 1"])
def test_variables_of_any_name(text: str) -> None:
    rows(made(0), text)


@pytest.mark.parametrize(
    "text",
    [
        'select m where m["conv*"].next has RELU("relu$1")',
        'select m where m[CONV].next has RELU("relu$1")',
        'select m where m["conv*($1)"].next has RELU("relu$2")',
        'select m where exists m["relu$1"]',
        'select m where exists m["conv*($1)"].next[RELU("relu$1")]',
        'select m where m["conv*($1)"].next["relu$1"].count > 1',
    ],
)
def test_captures_that_are_none(text: str) -> None:
    with pytest.raises(WrongQuery, match=r"\$[12]"):
        rows(made(0), text)


def test_captures() -> None:
    assert rows(made(0), 'select m where m["conv*($1)"].next has RELU("relu$1")') > 0
