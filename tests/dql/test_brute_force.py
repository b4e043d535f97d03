"""Brute force on a small repository, with answers that were worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dlv.weights.store import node_figures
from tests.dql.brute_force import run
from tests.dql.brute_model import Graph, Repository, Series, Version
from tests.dql.brute_networks import crossed, network, node, torch_like
from tests.dql.brute_truth import arithmetic, both, compared, either, like, moment

PLAIN = [
    node("conv1", "CONV", "x", out=4, kernel=3, pad=1),
    node("pool1", "POOL", "conv1", variant="MAX", kernel=2, stride=2),
    node("flat", "RESHAPE", "pool1", kind="flatten"),
    node("fc1", "FULL", "flat", out=10),
]


def graph(nodes: list[Any]) -> Graph:
    made = network(nodes)
    return Graph(made, node_figures(made))


@pytest.fixture(scope="module")
def repository() -> Repository:
    """p <- q <- r, and s from p and r; the network of r is another one, s has none."""
    day = 86_400_000_000
    plain, torch, other = graph(PLAIN), graph(torch_like()), graph(crossed())
    loss = Series([(1, 0.5), (2, 0.25), (3, math.nan)])
    made = [
        Version(
            "aa01", "p", 1, 1 * day, graph=plain, parameters={"lr": 0.5, "x": 1}, tags=["good"]
        ),
        Version("bb02", "q", 1, 2 * day, graph=torch, parameters={"lr": 0.25, "x": "1"}),
        Version("cc03", "p", 2, 3 * day, graph=other, parameters={"x": True}, dirty=True),
        Version("dd04", "s", 1, 4 * day, parameters={"lr": None, "x": [1]}),
        Version("ee05", "gone", 1, 5 * day, state="removed", graph=plain),
    ]
    made[1].parents, made[2].parents, made[3].parents = ["aa01"], ["bb02"], ["aa01", "cc03"]
    made[0].series, made[1].series = {"loss": loss}, {"loss": Series([(1, 0.125)])}
    made[1].results = {"acc": 1.0}
    return Repository(made, {"good": "select g where g.lr > 0.3"})


VERSIONS = {
    "select m": "s@1 p@2 q@1 p@1",
    "select m where m.lr > 0.3": "p@1",
    "select m where not m.lr > 0.3": "q@1",
    "select m where m.lr is null": "s@1 p@2",
    "select m where m.x = 1": "p@1",
    "select m where m.x != 1": "s@1 p@2 q@1",
    "select m where m.x < 2": "p@1",
    'select m where m["loss"] is null': "s@1 p@2",
    'select m where m["loss"] > 0': "q@1",
    'select m where m["loss"].min.step = 2 and m["loss"].steps = 3': "p@1",
    'select m where m["loss"].at(2) = 0.25': "p@1",
    'select m where m["acc"] = 1 and m["acc"].step is null': "q@1",
    'select m where m["loss"] is nan': "p@1",
    'select m where m["loss"] is not nan': "s@1 p@2 q@1",
    'select m where not m["loss"] > 0': "p@1",
    'select m where m["loss"] != 1': "q@1 p@1",
    'select m where m["loss"] = m["loss"]': "q@1",
    'select m order by m["loss"] desc': "q@1 p@1 p@2 s@1",
    'select m where m.name like "P%" or m.name ilike "S"': "s@1",
    'select m where m.creation_time < "1970-01-03T00:00:00+01:00"': "p@1",
    "select m where m.dirty": "p@2",
    "select m where not m.dirty": "",
    'select m where m["conv1"].next has POOL("MAX")': "p@1",
    'select m where m["conv2"].next has POOL("MAX")': "q@1",
    'select m where m["conv*"].next has POOL("AVG")': "",
    'select m where m["sum"].next has POOL("AVG")': "p@2",
    'select m where m["pool1"].next has FULL': "p@1",
    'select m where m["pool1"].next_raw has RESHAPE': "p@1",
    'select m where m["pool2"].next has FULL(out=10)': "q@1",
    "select m where m[CONV].kernel = 3": "p@2 q@1 p@1",
    "select m where every m[CONV].kernel = 3": "p@1",
    "select m where no m[CONV].kernel = 1": "s@1 q@1 p@1",
    "select m where m[CONV].bias = false": "q@1",
    "select m where every m[CONV].out >= 4": "p@2 q@1 p@1",
    "select m where m[CONV].count = 2": "p@2 q@1",
    'select m where m["conv*"][0].name = "conv2"': "p@2",
    "select m where exists m[ADD].prev[CONV]": "p@2",
    "select m where m[CONCAT].prev.count = 3": "p@2",
    "select m where m[CONCAT].prev_raw has RESHAPE": "p@2",
    "select m where m[RESHAPE].next has FULL": "q@1 p@1",
    "select m where m[RESHAPE].prev has POOL": "q@1 p@1",
    "select m where m[RESHAPE].prev has CONV": "p@2",
    'select m where m["conv*"].next_raw.next[0] has ADD': "p@2",
    'select m where m derived_from "p@1"': "s@1 p@2 q@1",
    'select m where m derived_from "p@1" within 1': "s@1 q@1",
    'select m where m ancestor_of "s@1"': "p@2 q@1 p@1",
    'select m where m sibling_of "q"': "s@1",
    'select m where m sibling_of "p@2" within 2': "s@1 q@1",
    'select m where m.parents = "aa01"': "s@1 q@1",
    "select m where m.parents is null": "p@1",
    'select m where m.tag = "good"': "p@1",
    'select m where m.tag != "x"': "p@1",
    'select m where not m.tag = "good"': "s@1 p@2 q@1",
    'select m where m in "good"': "p@1",
    'select m where m.id in ("bb02", "p@2")': "p@2 q@1",
    "select m where exists (select c where c child_of m and c.lr < m.lr)": "p@1",
    "select m where m.lr in (select n.lr where n.number = 1)": "q@1 p@1",
    "select m where m.lr not in (select n.lr where n.lr is not null and n.lr < 0.3)": "p@1",
    "select m where m.lr not in (select n.lr)": "",
    "select m from m in (select n where n.number = 1 limit 2) order by m.lr": "q@1 s@1",
    "select m order by m.lr desc nulls first": "p@2 s@1 p@1 q@1",
    "select m order by m.lr limit 2 offset 1": "p@1 p@2",
    "select m where m.number = 1 except select n where n.lr = 0.5": "s@1 q@1",
    'select a where a = "p@1" union all select b where b.name = "p"': "p@2 p@1 p@1",
}


@pytest.mark.parametrize("text", VERSIONS)
def test_versions(repository: Repository, text: str) -> None:
    found = [row[0] for row in run(repository, text)]
    assert " ".join(f"{version.name}@{version.number}" for version in found) == VERSIONS[text]


ROWS: dict[str, list[tuple[Any, ...]]] = {
    "select count(*), count(m.lr), avg(m.lr), stddev(m.lr) from m": [(4, 2, 0.375, 0.125 * 2**0.5)],
    "select count(*), sum(m.lr) from m where m.lr > 1": [(0, None)],
    "select m.name, count(*) from m group by m.name": [("p", 2), ("q", 1), ("s", 1)],
    "select m.name from m group by m.name having count(m.lr) = 1": [("p",), ("q",)],
    "select m.lr, count(*) from m group by m.lr order by m.lr": [(0.25, 1), (0.5, 1), (None, 2)],
    "select distinct m.name from m": [("p",), ("q",), ("s",)],
    "select distinct m.name from m order by m.name desc": [("s",), ("q",), ("p",)],
    'select m["conv*"], m.tag from m where m.number = 1': [
        ((), ()),
        (("features.0", "features.4"), ()),
        (("conv1",), ("good",)),
    ],
    "select m.name as called, m.lr * 2 from m where m.lr > 0 order by called": [
        ("p", 1.0),
        ("q", 0.5),
    ],
    "select median(m.number), max(m.name) from m": [(1, "s")],
    "select a.name, b.name from a, b where b child_of a and b.name != a.name": [
        ("p", "s"),
        ("q", "p"),
        ("p", "s"),
        ("p", "q"),
    ],
    "select a.name from a union select b.name from b": [("p",), ("q",), ("s",)],
    "select -m.lr % 0.4 from m where m.name = 'p' and m.number = 1": [(pytest.approx(0.3),)],
}


@pytest.mark.parametrize("text", ROWS)
def test_rows(repository: Repository, text: str) -> None:
    assert run(repository, text) == [tuple(map(approximate, row)) for row in ROWS[text]]


def approximate(value: Any) -> Any:
    return pytest.approx(value) if isinstance(value, float) else value


def test_three_truth_values() -> None:
    assert [both(each) for each in ([], [True, None], [None, False])] == [True, None, False]
    assert [either(each) for each in ([], [False, None], [None, True])] == [False, None, True]
    assert compared("=", 1, True) is False
    assert compared("!=", 1, "1") is True
    assert compared("<", 1, "1") is None
    assert compared("=", None, None) is None
    assert compared("<", moment("1970-01-01"), "1970-01-01T00:00:01") is True
    assert like("a%b", "a!%_", False, "!") is True
    assert like("ÄRGER", "är%", True, None) is True
    assert like(3, "%", False, None) is None
    assert arithmetic("%", -1, 3) == 2
    assert arithmetic("/", 1, 0) is None
    assert arithmetic("+", True, 1) is None
