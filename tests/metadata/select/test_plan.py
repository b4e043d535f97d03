"""Plans give the same rows, take the indexes that they are made for, and are told."""

from __future__ import annotations

import itertools
import json
import math
import random
import re

import pytest

from dlv.metadata.select import plan as select_plan
from dlv.metadata.select import relations as r
from dlv.metadata.select import statement as select
from dlv.metadata.select.plan import spread
from tests.metadata.made_up import (
    AVG,
    CROSSED,
    MAX,
    PLAIN,
    TORCH,
    WIDE,
    Catalogue,
    chain,
    node,
    nodes,
    test_of,
    versions,
)

PLANS = ("pair seek", "scan", "net_pair", "probe", None)
NAME = r.Column("m", "name")
BEHIND = r.AnyNode(nodes("conv[1,3]", "next"), r.Fits((MAX,)))


@pytest.fixture(scope="module")
def made() -> Catalogue:
    lot = random.Random(5)
    made = Catalogue()
    wide = [
        chain(
            *(node(f"conv{n}", "CONV", out=8 * n, kernel=[3, 3]) for n in range(1, 3)),
            *(node(f"pool{n}", "POOL", variant="MAX", kernel=[n, n]) for n in range(1, size)),
        )
        for size in range(2, 5)
    ]
    for number in range(200):
        network = lot.choice([None, PLAIN, TORCH, CROSSED, *wide])
        parameters = {"lr": lot.choice((0.1, 0.2, "x", True, 1))}
        series = {"loss": lot.choice((math.nan, 0.5, 0.25))} if lot.random() < 0.8 else {}
        made.add(f"v{number}", name=lot.choice(("alexnet-1", "alexnet_b", "vgg", "AlexNet")),
            network=network, parameters=parameters, series=series, tags=[f"t{number}"],
            parents=[f"v{number - 1}"] if number % 3 else [])  # fmt: skip
    return made


CONDITIONS: list[r.Condition] = [
    BEHIND,
    r.AnyNode(nodes("conv*", "next"), r.Fits((MAX, AVG))),
    r.AnyNode(nodes("pool*", "prev"), test_of("op", "=", "CONV")),
    r.AnyNode(nodes(MAX, "next", "next", "prev")),
    r.AnyNode(nodes("conv2", "prev", WIDE)),
    r.AnyNode(nodes("relu*")),
    r.Not(r.AnyNode(nodes("conv1", "next"), r.Fits((MAX,)))),
    r.EveryNode(nodes("conv*", "next"), r.Fits((MAX,))),
    r.Compare(">", r.NodeCount(nodes("pool*")), r.Constant(1)),
    r.Compare("=", r.NodeCount(nodes("pool*")), r.Constant(0)),
]
FILTERS: list[r.Condition] = [
    r.Truth(True),
    r.Like(NAME, r.Constant("alexnet_%")),
    r.Compare("=", r.Hyperparameter("m", "lr"), r.Constant(0.1)),
    r.Compare(">=", r.Hyperparameter("m", "lr"), r.Constant("a")),
    r.Compare("<", r.Constant(0.3), r.Metric("m", "loss", "last")),
    r.OneOf(NAME, (r.Constant("vgg"),)),
    r.AnyOf("m", "tag", r.Like(r.ManyValue(), r.Constant("t1%"))),
    r.Compare("<", r.Column("m", "creation_time"), r.Constant(40 * 86_400_000_000)),
]


@pytest.mark.parametrize("few", [0, 64, 10_000])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_every_plan_gives_the_same(
    made: Catalogue, condition: r.Condition, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(select_plan, "_FEW", few)
    alone = made.found(condition)
    for other in FILTERS:
        right = alone & made.found(other)
        both = r.All((condition, other))
        for plan in PLANS:
            found = made.rows(versions(both), plan=plan)
            assert {row[0] for row in found} == right
            assert len(found) == len(right)


def told(made: Catalogue, where: r.Condition) -> str:
    return "\n".join(select.explain(made.db, versions(where)).machine)


def test_indexes_of_drivers(made: Catalogue) -> None:
    found = told(made, r.Like(NAME, r.Constant("vgg%")))
    assert "(name>? AND name<?)" in found
    found = told(made, r.Compare("=", r.Hyperparameter("m", "lr"), r.Constant(0.2)))
    assert "hyperparameter_num (key=? AND num=?)" in found
    assert "SEARCH v1 USING INTEGER PRIMARY KEY" in found
    found = told(made, r.Compare(">", r.Metric("m", "loss", "last"), r.Constant(0.4)))
    assert "metric_last (tag=? AND last>? AND last<?)" in found


def searches(made: Catalogue, plan: str | None, where: r.Condition) -> list[str]:
    writing = select.statement(made.db)
    writing.forced = plan
    sql, _ = writing.column_of(versions(where))
    found = [row[3] for row in made.db.stream(f"EXPLAIN QUERY PLAN {sql}", writing.parameters)]
    writing.drop()
    return found


@pytest.mark.parametrize(
    ("plan", "index"),
    [
        ("pair seek", "COVERING INDEX edge_pair (src_layer=? AND dst_layer=?)"),
        ("scan", "COVERING INDEX edge_pair (src_layer=?)"),
        ("net_pair", "net_pair USING PRIMARY KEY (dst_op=? AND dst_variant=? AND src_op=?"),
    ],
)
def test_indexes_of_plans(made: Catalogue, plan: str, index: str) -> None:
    where = r.AnyNode(nodes(MAX, "next"), r.Fits((MAX,)))
    assert index in " ".join(searches(made, plan, where))


@pytest.mark.parametrize(
    ("where", "index"),
    [
        (r.AnyNode(nodes("conv1", "next"), r.Fits((MAX,))), "p_ USING PRIMARY KEY (src_layer=?)"),
        (r.AnyNode(nodes("*", "next"), test_of("name", "=", "pool2")), "(dst_layer=?)"),
        (
            r.AnyNode(nodes("pool2", "prev")),
            "p_ USING COVERING INDEX layer_pair_back (dst_layer=?)",
        ),
        (r.AnyNode(nodes("pool2", "prev", "prev")), "layer_pair_back (dst_layer=?)"),
    ],
)
def test_pairs_are_looked_for_from_the_side_that_has_fewer(
    made: Catalogue, where: r.Condition, index: str
) -> None:
    """And edges by both their layers: no index has them by the second one alone."""
    found = re.sub(r"\bp\d+\b", "p_", " ".join(searches(made, "pair seek", where)))
    assert index in found
    assert "edge_pair (src_layer=? AND dst_layer=?)" in found


def test_a_probe_reads_one_network_after_the_other(made: Catalogue) -> None:
    """With edge_pair it would read the edges of all networks for each of them."""
    found = searches(made, "probe", r.All((BEHIND, r.Compare("=", NAME, r.Constant("vgg")))))
    edges = [line for line in found if line.startswith("SEARCH e")]
    assert edges
    assert all("USING PRIMARY KEY (net_id=?" in line for line in edges)


def test_what_is_explained(made: Catalogue) -> None:
    where = r.All((r.Like(NAME, r.Constant("alexnet_%")), BEHIND))
    plan = select.explain(made.db, versions(where), analyze=True)
    right = len(made.found(where))
    assert plan.rows == right
    scan, match = plan.document()["steps"]
    assert (scan["step"], scan["variable"], scan["of"]) == ("scan", "m", 200)
    assert scan["rows"] == len(made.found(FILTERS[1]))
    assert (match["step"], match["rows"]) == ("match", right)
    assert match["chosen"]["plan"]
    assert match["rejected"]
    assert plan.document()["parameters"]["p1"] == "alexnet?*"
    lines = list(plan.lines())
    assert lines[0].startswith("Scan m  ")
    assert "rejected: " in "".join(lines)
    assert "SQL" not in lines
    assert "SQL" in list(plan.details())
    assert select.explain(made.db, versions(where)).rows is None


@pytest.mark.parametrize("condition", [FILTERS[1], FILTERS[7]])
def test_what_many_versions_fulfil_is_estimated(made: Catalogue, condition: r.Condition) -> None:
    """Within three standard deviations of a sample of 64."""
    (scan,) = select.explain(made.db, versions(condition)).steps
    part = len(made.found(condition)) / 200
    assert abs(scan.rows / 200 - part) < 3 * (part * (1 - part) / 64) ** 0.5


def test_what_few_versions_fulfil_is_counted(made: Catalogue) -> None:
    early = r.Compare("<", r.Column("m", "creation_time"), r.Constant(5 * 86_400_000_000))
    (scan,) = select.explain(made.db, versions(early)).steps
    assert 0 < scan.rows == len(made.found(early)) < 8


def test_ids_of_a_sample() -> None:
    assert json.loads(spread(4, 64)) == [1, 2, 3, 4]
    assert json.loads(spread(0, 64)) == []
    for last in (65, 1000, 10**6):
        ids = sorted(json.loads(spread(last, 64)))
        assert ids[0] >= 1
        assert ids[-1] <= last
        gaps = [after - before for before, after in itertools.pairwise([0, *ids, last + 1])]
        assert max(gaps) < 3 * last / 64 + 2


def test_how_many_each_condition_keeps(made: Catalogue) -> None:
    lineage = r.Related("child_of", "m", "x")
    where = r.All((FILTERS[1], BEHIND, lineage))
    sources = (r.Source("m"), r.Source("x"))
    query = r.Query(r.Select((r.Item("m", r.Whole("m")),), sources, where))
    alone = [FILTERS[1], BEHIND, r.AnyOf("m", "parents", r.Truth(True))]
    right = [len(made.found(condition)) for condition in alone]
    assert [count for _, count in select.survivors(made.db, query)] == right
    assert select.survivors(made.db, r.Query(r.Combined("union", versions(), versions()))) == []
