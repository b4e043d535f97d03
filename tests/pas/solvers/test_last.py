from __future__ import annotations

from dlv.pas.plan import make_plan
from dlv.pas.storage_graph import StorageGraph
from tests.conformance.solver import SolverSuite


class TestSuite(SolverSuite):
    algorithm = "last"


def test_a_snapshot_of_the_empty_matrix() -> None:
    graph = StorageGraph.build(1, [(0, 0, "", 0, 0)], [[0]])
    assert make_plan(graph, [0], "independent", "last").plan.edges.tolist() == [-1]
