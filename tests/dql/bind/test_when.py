"""Conditions on a configuration, behind `when`: the same language as behind `where`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dlv.dql.bind.queries as queries
from dlv.dql.bind.binder import WrongQuery
from dlv.dql.bind.bound import ConfigFile
from dlv.dql.words import ast
from dlv.dql.words.parser import parse
from dlv.metadata.database import Database
from dlv.metadata.usage import KnownNames
from tests.dql import name_catalogue

TRIAL = {
    ("optimizer",): "sgd",
    ("steps",): 100,
    ("nesterov",): True,
    ("widths",): [8, 16],
    ("table",): {"a": 1},
}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    database = name_catalogue.made(Path(tmp_path_factory.mktemp("when")))
    yield database
    database.close()


def varied(db: Database, when: str, trainer: Any = ("python", "train.py")) -> Any:
    text = f'evaluate m from m with config = "own.toml" vary config.lr in [1] when ({when})'
    (query,) = parse(text)
    assert isinstance(query, ast.Query)
    file = ConfigFile("own.toml", {"trainer": trainer})
    bound = queries.resolve(text, query, KnownNames(db), config_file=lambda _: file)
    assert bound.evaluation is not None
    return bound.evaluation.varied[0]


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ('config.optimizer = "sgd" and config.steps > 50', True),
        ('config.optimizer in ["adam", "sgd"]', True),
        ('not config.optimizer = "sgd"', False),
        ("config.nesterov", True),
        ("50 < config.steps", True),
        ("config.steps between 1 and 99", False),
        ("config.steps / 2 = 50", True),
        ('config.optimizer like "s_d"', True),
        ('config.optimizer ilike "SG%"', True),
        ('config.optimizer matches "[a-s]*"', True),
        ("config.absent is null", True),
        ("config.absent = 3 or config.steps = 100", True),
        ("config.absent != 3", False),
        ("not config.absent = 3", False),  # unknown, as everywhere
        ("coalesce(config.absent, config.steps) = 100", True),
        ("config.widths = [8, 16]", True),
        ("config.table < 3", False),
    ],
)
def test_when_it_applies(db: Database, when: str, expected: bool) -> None:
    assert varied(db, when).applies(TRIAL.get) is expected


def test_which_keys_decide(db: Database) -> None:
    when = 'config.a = 1 or not (config.net["conv*"].lr > config.b and config.c in [1])'
    assert varied(db, when).reads == {("a",), ("net", "conv*", "lr"), ("b",), ("c",)}


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("config.steps in (select m.lr)", "a list is required here"),
        ("exists (select m)", "a list is required here"),
        ("config.steps", "config.steps is a number, and a condition is required here"),
        ("config.steps has CONV", "config.steps is a number, and a set of nodes is required here"),
        ('config.steps > "a"', 'config.steps is a number, and "a" is a string'),
        ("config.steps = 1.5", "config.steps is 1.5"),
        ("config.nesterov = 1", "config.nesterov is 1"),
        ("config.optimizer < 3", "config.optimizer is a string, and 3 is a number"),
        ("m.lr = 3", "`m` is not part of the configuration"),
        ("count(config.steps) = 1", "count is not allowed in when"),
        ("any config.steps = 1", "`any` requires nodes"),
    ],
)
def test_what_is_refused(db: Database, when: str, message: str) -> None:
    with pytest.raises(WrongQuery) as caught:
        varied(db, when)
    assert message in caught.value.message
