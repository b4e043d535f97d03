"""Rules make of a query another one with the same answer.

`python -m tests.dql.bind.test_rewrite` writes the files of expected lines anew.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import pytest

import dlv.dql.bind.queries as queries
from dlv.dql.bind.binder import WrongQuery
from dlv.dql.bind.bound import Bound
from dlv.dql.bind.rewrite import RULES, Rule, applied, rewrite
from dlv.dql.words import ast
from dlv.dql.words.parser import parse
from dlv.metadata.database import Database
from dlv.metadata.rows import Row
from dlv.metadata.select import statement as select
from dlv.metadata.usage import KnownNames
from tests.dql import bound_text, name_catalogue
from tests.dql.brute_queries import REFUSED, Queries
from tests.dql.brute_repositories import Made, make
from tests.dql.brute_words import PARAMETERS

FOLDER = Path(__file__).parents[1] / "rules"
LABELS = name_catalogue.labels()
CASES = [
    (rule, text, expected)
    for rule in RULES
    for text, expected in bound_text.read(FOLDER / f"{rule.__name__}.txt")
]
made = cache(make)


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    with tempfile.TemporaryDirectory() as folder:
        database = name_catalogue.made(Path(folder))
        yield database
        database.close()


def resolve(db: Database, text: str) -> Bound:
    (statement,) = parse(text)
    assert isinstance(statement, ast.Query)
    return queries.resolve(text, statement, KnownNames(db), {"lr": 0.1, **PARAMETERS})


def after(db: Database, rule: Rule, text: str) -> str:
    bound = resolve(db, text)
    found = applied(rule, bound)
    lines = bound_text.of_bound(replace(found, warnings=()), LABELS)
    return "\n".join(lines if found is not bound else ["unchanged"])


@pytest.mark.parametrize(("rule", "text", "expected"), CASES)
def test_what_a_rule_makes(db: Database, rule: Rule, text: str, expected: str) -> None:
    assert after(db, rule, text) == expected
    once = applied(rule, resolve(db, text))
    assert applied(rule, once) == once


def test_every_rule_is_named_when_it_changes_something(db: Database) -> None:
    text = 'select m where m in "good" and not m.lr = 1 and 1 = 1'
    _, fired = rewrite(resolve(db, text))
    assert fired == [rule.__name__ for rule in RULES]
    bound = resolve(db, "select m where m.lr = 1")
    assert rewrite(bound) == (bound, [])


def rows(repository: Made, bound: Bound) -> list[Row]:
    assert bound.query is not None
    return list(select.run(repository.db, bound.query, metric_at=repository.at)[1])


def check(seed: int, count: int) -> None:
    repository = made(seed)
    lot = Random(seed)
    for _ in range(count):
        text = Queries(lot.randint, repository).query()
        try:
            bound = resolve(repository.db, text)
        except WrongQuery as refused:
            if any(words in str(refused) for words in REFUSED):
                continue
            raise
        wanted = rows(repository, bound)
        for rule in RULES:
            alone = applied(rule, bound)
            if alone is not bound:
                assert rows(repository, alone) == wanted, (rule.__name__, text)
        every, fired = rewrite(bound)
        if fired:
            assert rows(repository, every) == wanted, (fired, text)


@pytest.mark.parametrize("seed", [1, 2])
def test_answers_stay_the_same(seed: int) -> None:
    check(seed, 30)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 13))
def test_answers_of_many_stay_the_same(seed: int) -> None:
    check(seed, 100)


def test_deep_queries() -> None:
    text = "select m where " + "m.lr = 1 and (m.lr = 2 or (" * 60 + "m.lr = 3" + "))" * 60
    with tempfile.TemporaryDirectory() as folder:
        database = name_catalogue.made(Path(folder))
        assert rewrite(resolve(database, text))[0].query is not None
        long = "select m where " + " and ".join(f"m.lr = {n}" for n in range(1000))
        assert rewrite(resolve(database, long))[0].query is not None
        database.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        catalogue = name_catalogue.made(Path(place))
        for each in RULES:
            path = FOLDER / f"{each.__name__}.txt"
            pairs = [(text, after(catalogue, each, text)) for text, _ in bound_text.read(path)]
            bound_text.write(path, pairs)
