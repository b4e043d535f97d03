from __future__ import annotations

from hypothesis import given, settings

from dlv.pas.plan import make_plan
from dlv.pas.storage_graph import StorageGraph
from tests.conformance.solver import SolverSuite, all_plans, costs, graphs


class TestSuite(SolverSuite):
    algorithm = "mst"
    budgeted = False


@settings(max_examples=1500, deadline=None)
@given(graphs())
def test_the_least_storage_of_all_plans(graph: StorageGraph) -> None:
    plan = make_plan(graph, [None] * len(graph.snapshots), "independent", "mst").plan
    sizes = [costs(graph, chosen, "independent")[0] for chosen in all_plans(graph)]
    assert plan.storage(graph) == min(sizes)
