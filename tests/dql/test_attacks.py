"""Queries that are meant to break things."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dlv.metadata.usage as usage
from dlv.dql import execute
from dlv.dql.outcome import QueryOptions, Table
from dlv.errors import UsageError
from dlv.repository.handle import Repository

LONG = "a" * 40 + "!"
REPEATING = "aX" * 60
HALF = "\ud800"


@pytest.fixture(scope="module")
def repository(
    tmp_path_factory: pytest.TempPathFactory, commit_model: Callable[..., str]
) -> Iterator[Repository]:
    with Repository.init(tmp_path_factory.mktemp("attacked"))[0] as made:
        names = ("x", LONG, REPEATING, "last")
        nodes = [
            {"name": name, "op": "RELU", "attrs": {}, "inputs": [before]}
            for before, name in itertools.pairwise(names)
        ]
        commit_model(made, "long", {}, nodes)
        yield made


def ask(repository: Repository, text: str, **parameters: Any) -> list[Any]:
    found: list[Any] = []
    for outcome in execute.run(repository, text, QueryOptions(parameters=parameters)):
        found += outcome.rows if isinstance(outcome, Table) else [outcome]
    return found


@pytest.mark.parametrize(
    "text",
    [
        'select m where m[re"(a+)+$"].count > 0',
        'select m where m[re"(a|a)*$"].next has RELU',
        'construct d from m mutate m[re"(a+)+$"].delete',
    ],
)
def test_regular_expressions_do_not_run_for_ever(repository: Repository, text: str) -> None:
    with pytest.raises(UsageError, match="takes too long"):
        ask(repository, text)


def test_many_wildcards_are_no_slower(repository: Repository) -> None:
    pattern = "%a%X" * 12 + "%q"
    began = time.process_time()
    for text in (
        f'select m where m["*"].name like "{pattern}"',
        f'slice s from m where m["*"].name like "{pattern}"'
        ' mutate s.input = m["*"] and s.output = m["last"]',
        f'construct d from m where not m["*"].name like "{pattern}" mutate m["last"].delete',
    ):
        ask(repository, text)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("value", [HALF, [HALF], [[HALF]], {HALF: 1}, {"a": HALF}])
@pytest.mark.parametrize(
    "text",
    [
        "select m where m.name = $p",
        "select m where m in $p",
        "select $p as x",
        'construct d from m mutate m["last"].insert = RELU($p)',
    ],
)
def test_half_a_character_is_no_parameter(repository: Repository, text: str, value: Any) -> None:
    with pytest.raises(UsageError, match="invalid character"):
        ask(repository, text, p=value)


@pytest.mark.parametrize("name", [HALF, "\udcff", "a\0b", "\x1b[31m"])
def test_what_cannot_be_printed_names_no_saved_query(repository: Repository, name: str) -> None:
    assert usage.saved_query(repository.database, name) is None


def test_many_conditions_take_little_memory(repository: Repository) -> None:
    text = " and ".join(['m["last"].prev has RELU'] * 1000)
    tracemalloc.start()
    try:
        ask(repository, f"select m where {text}")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 60e6
