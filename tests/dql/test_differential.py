"""What queries give, asked of the catalogue and of brute force: the same rows in the same order."""

from __future__ import annotations

import json
import math
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlv.dql.bind.binder import WrongQuery
from dlv.dql.bind.queries import resolve
from dlv.dql.bind.rewrite import rewrite
from dlv.dql.words import ast
from dlv.dql.words.parser import parse
from dlv.metadata.rows import VersionCell
from dlv.metadata.select import statement as select
from dlv.metadata.usage import KnownNames
from tests.dql import brute_force
from tests.dql.brute_model import Version
from tests.dql.brute_queries import REFUSED, Queries
from tests.dql.brute_repositories import Made, make, time_of
from tests.dql.brute_truth import Moment, Other
from tests.dql.brute_words import PARAMETERS

Rows = list[tuple[Any, ...]]
made = cache(make)
PLANS = (None, "pair seek", "scan", "probe", "net_pair")


def asked(repository: Made, text: str, *, rewritten: bool = True, plan: str | None = None) -> Rows:
    """By dlv; `rewritten` or as its names were resolved, by the best plan or a certain one."""
    (statement,) = parse(text)
    assert isinstance(statement, ast.Query)
    bound = resolve(text, statement, KnownNames(repository.db), PARAMETERS)
    if rewritten:
        bound, _ = rewrite(bound)
    assert bound.query is not None
    _, rows = select.run(repository.db, bound.query, metric_at=repository.at, plan=plan)
    return [tuple(map(plain, row)) for row in rows]


def wanted(repository: Made, text: str) -> Rows:
    rows = brute_force.run(repository.model, text, PARAMETERS)
    return [tuple(map(plain, row)) for row in rows]


def plain(value: Any) -> Any:
    match value:
        case VersionCell() | Version():
            return "version", value.id
        case Moment(at):
            return time_of(at)
        case Other(text):
            return json.loads(text)
        case bool():
            return "boolean", value
        case tuple():
            return list(value)
    return value


def alike(found: Rows, right: Rows) -> bool:
    """Equal, but for how sums were rounded."""
    return len(found) == len(right) and all(
        len(a) == len(b) and all(map(_close, a, b)) for a, b in zip(found, right, strict=True)
    )


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) or (a != a and b != b)
    return type(a) is type(b) and bool(a == b)


def check(repository: Made, text: str) -> None:
    right = wanted(repository, text)
    try:
        found = asked(repository, text, plan=PLANS[len(text) % len(PLANS)])
    except WrongQuery as refused:
        if any(words in str(refused) for words in REFUSED):
            return
        raise
    assert alike(found, right), f"{text}\nfound {found}\nright {right}"


@st.composite
def queries(draw: st.DrawFn) -> tuple[int, str]:
    """A repository's number and a text."""
    seed = draw(st.integers(0, 2))
    return seed, Queries(lambda low, high: draw(st.integers(low, high)), made(seed)).query()


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(queries())
def test_queries(of: tuple[int, str]) -> None:
    seed, text = of
    check(made(seed), text)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_many_queries(seed: int) -> None:
    repository = made(seed)
    lot = Random(seed)
    for _ in range(500):  # 10,000 in all
        check(repository, Queries(lot.randint, repository).query())
