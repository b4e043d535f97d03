from __future__ import annotations

import networkx
import numpy as np
from hypothesis import given, settings

from dlv.pas.plan import make_plan
from dlv.pas.solvers import spt
from dlv.pas.storage_graph import StorageGraph
from tests.conformance.solver import SolverSuite, graphs


class TestSuite(SolverSuite):
    algorithm = "spt"


def fastest(graph: StorageGraph) -> list[int]:
    """By networkx."""
    digraph = networkx.MultiDiGraph()
    digraph.add_nodes_from(range(graph.vertices))
    for u, v, cost in zip(graph.tails, graph.heads, graph.recreation, strict=True):
        digraph.add_edge(int(u), int(v), weight=int(cost))
    found = networkx.single_source_dijkstra_path_length(digraph, 0)
    return [int(found[v]) for v in range(graph.vertices)]


@settings(max_examples=80, deadline=None)
@given(graphs(vertices=16, edges=60, most=40))
def test_as_fast_as_another_programs(graph: StorageGraph) -> None:
    plan = make_plan(graph, [None] * len(graph.snapshots), "independent", "spt").plan
    assert plan.recreation(graph).tolist() == fastest(graph)
    assert spt.with_heap(graph)[0].tolist() == fastest(graph)


def test_long_paths() -> None:
    """Longer than what is relaxed in whole rounds."""
    count = 60
    rows = [(v - 1, v, "", 1, 1) for v in range(1, count)]
    rows += [(0, v, "", 1, 100) for v in range(2, count)]
    graph = StorageGraph.build(count, rows, [])
    plan = make_plan(graph, [], "independent", "spt").plan
    assert plan.recreation(graph).tolist() == fastest(graph) == list(range(count))
    assert np.array_equal(plan.parents(graph)[1:], np.arange(count - 1))
