from __future__ import annotations

import networkx
import numpy as np
import pytest
from hypothesis import given, settings

from dlv.pas.plan import make_plan
from dlv.pas.storage_graph import StorageGraph
from tests.conformance.solver import SolverSuite, all_plans, costs, graphs, repository


class TestSuite(SolverSuite):
    algorithm = "mst"
    budgeted = False


@settings(max_examples=500, deadline=None)
@given(graphs())
def test_the_least_storage_of_all_plans(graph: StorageGraph) -> None:
    plan = make_plan(graph, [None] * len(graph.snapshots), "independent", "mst").plan
    sizes = [costs(graph, chosen, "independent")[0] for chosen in all_plans(graph)]
    assert plan.storage(graph) == min(sizes)


def least(graph: StorageGraph) -> int:
    """By networkx, the smallest of parallel edges only."""
    digraph = networkx.DiGraph()
    digraph.add_nodes_from(range(graph.vertices))
    for u, v, size in zip(graph.tails, graph.heads, graph.storage, strict=True):
        known = digraph.get_edge_data(int(u), int(v), {"weight": size})["weight"]
        if v != 0 and u != v:
            digraph.add_edge(int(u), int(v), weight=int(min(size, known)))
    tree = networkx.minimum_spanning_arborescence(digraph)
    return int(tree.size(weight="weight"))


@settings(max_examples=60, deadline=None)
@given(graphs(vertices=16, edges=60, most=40))
def test_as_small_as_another_programs(graph: StorageGraph) -> None:
    plan = make_plan(graph, [None] * len(graph.snapshots), "independent", "mst").plan
    assert plan.storage(graph) == (least(graph) if graph.vertices > 1 else 0)


@pytest.mark.parametrize("seed", range(3))
def test_nested_cycles(seed: int) -> None:
    """Deltas far cheaper than whole matrices, at random: cycles of cycles."""
    rng = np.random.default_rng(seed)
    rows = [(0, v, "", int(rng.integers(500, 900)), 1) for v in range(1, 60)]
    for _ in range(400):
        u, v = rng.integers(1, 60, 2).tolist()
        rows.append((u, v, "", int(rng.integers(1, 90)), 1))
    graph = StorageGraph.build(60, rows, [])
    plan = make_plan(graph, [], "independent", "mst").plan
    assert plan.storage(graph) == least(graph)


def test_a_repository_as_small() -> None:
    graph = repository(9, 3, 4, 3)
    plan = make_plan(graph, [None] * len(graph.snapshots), "independent", "mst").plan
    assert plan.storage(graph) == least(graph)
