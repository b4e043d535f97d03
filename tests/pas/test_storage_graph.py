from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.errors import Damaged, DlvError, NotFound, UsageError
from dlv.pas.storage_graph import (
    Infeasible,
    Scheme,
    StorageGraph,
    StoragePlan,
    budgets_of,
    problem_of,
    read_problem,
    shortfalls,
)
from tests.conformance.solver import SCHEMES, all_plans, costs, graphs

GRAPH = StorageGraph.build(
    4,
    [(0, 1, "", 10, 5), (1, 2, "", 3, 4), (2, 3, "", 2, 1), (3, 2, "", 1, 1), (0, 2, "", 9, 5)],
    [[1, 2], [3], []],
)


@settings(max_examples=100, deadline=None)
@given(st.data(), graphs(), st.sampled_from(SCHEMES))
def test_costs_are_those_of_walking_every_path(
    data: st.DataObject, graph: StorageGraph, scheme: Scheme
) -> None:
    chosen = data.draw(st.sampled_from(all_plans(graph)))
    plan = StoragePlan.of(graph, data.draw(st.permutations(chosen)))
    size, whole = costs(graph, chosen, scheme)
    assert plan.storage(graph) == size
    assert plan.snapshot_costs(graph, scheme) == whole
    assert plan.keeps(graph, whole, scheme)
    assert plan.keeps(graph, [None] * len(whole), scheme)
    for at, cost in enumerate(whole):
        assert not plan.keeps(graph, [*whole[:at], cost - 1, *whole[at + 1 :]], scheme)
    again = StoragePlan.of(graph, json.loads(json.dumps(plan.as_json()))["edges"])
    assert np.array_equal(again.edges, plan.edges)


def test_bases_and_depths() -> None:
    plan = StoragePlan.of(GRAPH, [2, 0, 1])
    assert plan.parents(GRAPH).tolist() == [0, 0, 1, 2]
    assert plan.depths(GRAPH).tolist() == [0, 1, 2, 3]
    assert plan.recreation(GRAPH).tolist() == [0, 5, 9, 10]
    assert plan.snapshot_costs(GRAPH, "independent") == [14, 10, 0]
    assert plan.snapshot_costs(GRAPH, "parallel") == [9, 10, 0]


def test_a_long_chain() -> None:
    count = 1000
    rows = [(v - 1, v, "", 1, v) for v in range(1, count)]
    graph = StorageGraph.build(count, rows, [])
    plan = StoragePlan.of(graph, list(range(count - 1)))
    assert plan.depths(graph).tolist() == list(range(count))
    assert plan.recreation(graph)[-1] == sum(range(count))


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ([0, 1], "0 edges into vertex 3"),
        ([0, 1, 2, 4], "2 edges into vertex 2"),
        ([0, 2, 3], "cycle"),
        ([0, 1, 5], "edge 5"),
        ([0, 1, -1], "edge -1"),
    ],
)
def test_bad_plans(chosen: list[int], words: str) -> None:
    with pytest.raises(Damaged) as refused:
        StoragePlan.of(GRAPH, chosen)
    assert words in f"{refused.value.message} {refused.value.why}"


def test_an_edge_into_the_empty_matrix() -> None:
    graph = StorageGraph.build(2, [(0, 1, "", 1, 1), (1, 0, "", 1, 1)], [])
    with pytest.raises(Damaged, match="into the empty tensor"):
        StoragePlan.of(graph, [0, 1])


def test_an_edge_of_another_vertex() -> None:
    with pytest.raises(Damaged, match="another one's edge"):
        StoragePlan(np.array([-1, 0, 0, 2])).check(GRAPH)
    with pytest.raises(Damaged, match="every tensor"):
        StoragePlan(np.array([-1, 0, 1])).check(GRAPH)


def test_budgets_of() -> None:
    assert budgets_of([10, 20, 30], [1.5, None, float("inf")]) == [15, None, None]
    for slacks in ([1.0], [1.0, -1.0, 2.0], [1.0, float("nan"), 1.0]):
        with pytest.raises(UsageError):
            budgets_of([10, 20, 30], slacks)


def test_shortfalls_and_the_slack_that_would_do() -> None:
    short = shortfalls([9, None, 30], [10, 99, 30])
    assert [(s.snapshot, s.budget, s.minimum) for s in short] == [(0, 9, 10)]
    refused = Infeasible(short)
    assert refused.exit_code == 9
    assert "all budgets times 1.112 would do" in (refused.why or "")  # 1.111... rounded up
    assert refused.as_json()["snapshots"] == [{"snapshot": 0, "budget": 9, "minimum": 10}]
    assert Infeasible(shortfalls([0], [1])).alpha is None
    with pytest.raises(UsageError):
        shortfalls([1], [])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_empty_matrix_alone(scheme: Scheme) -> None:
    graph = StorageGraph.build(1, [], [[0], []])
    plan = StoragePlan.of(graph, [])
    assert plan.storage(graph) == 0
    assert plan.snapshot_costs(graph, scheme) == [0, 0]


GOOD: dict[str, Any] = {
    "vertices": 3,
    "snapshots": [[1, 2], [2]],
    "edges": [[0, 1, "materialise", 10, 5], [1, 2, "xor", 3, 4], [0, 2, "materialise", 9, 5]],
    "budgets": [12.7, None],
    "scheme": "parallel",
}


@settings(max_examples=50)
@given(graphs())
def test_json_round_trip(graph: StorageGraph) -> None:
    budgets = [None] * len(graph.snapshots)
    document = json.loads(json.dumps(graph.as_json(budgets, "parallel")))
    again = problem_of(document)
    assert again.scheme == "parallel"
    assert again.graph.as_json(again.budgets, again.scheme) == document


def test_a_good_file(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(GOOD))
    problem = read_problem(path)
    assert problem.budgets == [12, None]
    assert problem.graph.kinds == ["materialise", "xor", "materialise"]
    with pytest.raises(NotFound):
        read_problem(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vertices": 0}, "vertices"),
        ({"vertices": True}, "vertices"),
        ({"vertices": 10**9}, "too few edges"),
        ({"vertices": 10**30}, "vertices"),
        ({"vertices": None}, "vertices"),
        ({"edges": {}}, "not a storage graph"),
        ({"edges": [[0, 1]] * 3}, "edge 0"),
        ({"edges": [[0, 1, 7, 1, 1]] * 3}, "edge 0"),
        ({"edges": [[0, 1, "a", -1, 1]] * 3}, "negative storage"),
        ({"edges": [[0, 1, "a", 1, -1]] * 3}, "negative recreation"),
        ({"edges": [[0, 9, "a", 1, 1]] * 3}, "enters vertex 9"),
        ({"edges": [[-1, 1, "a", 1, 1]] * 3}, "leaves vertex -1"),
        ({"edges": [[0, 1, "a", 1.5, 1]] * 3}, "1.5 is not a whole number"),
        ({"edges": [[0, 1, "a", "1", 1]] * 3}, "'1' is not a whole number"),
        ({"edges": [[0, 1, "a", 2**70, 1]] * 3}, "64 bits"),
        ({"edges": [[0, 1, "a", 2**61, 1]] * 3}, "too large"),
        ({"edges": [[0, 1, "a", float("inf"), 1]] * 3}, "whole number"),
        ({"snapshots": [[1, 1], []]}, "twice"),
        ({"snapshots": [[3], []]}, "does not exist"),
        ({"snapshots": [1, 2]}, "snapshots"),
        ({"budgets": [1]}, "one budget per checkpoint"),
        ({"budgets": [-1, None]}, "budget 0"),
        ({"budgets": ["1", None]}, "budget 0"),
        ({"scheme": "reusable"}, "scheme"),
        ({"extra": 1}, "unknown key 'extra'"),
    ],
)
def test_bad_graphs(change: dict[str, Any], words: str) -> None:
    with pytest.raises(Damaged) as refused:
        problem_of({**GOOD, **change})
    assert words in f"{refused.value.message} {refused.value.why}"


@pytest.mark.parametrize("text", ["", "[]", "NaN", '{"vertices": NaN}', "[" * 100_000, "\xff"])
def test_bad_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "graph.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DlvError) as refused:
        read_problem(path)
    assert refused.value.exit_code == 6
