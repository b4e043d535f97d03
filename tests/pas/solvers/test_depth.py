from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlv.errors import UsageError
from dlv.pas.plan import SOLVERS, make_plan
from dlv.pas.storage_graph import Scheme, StorageGraph
from tests.conformance.solver import SCHEMES, all_plans, budgets_for, costs, graphs, keeps


def deepest(graph: StorageGraph, chosen: tuple[int, ...]) -> int:
    """By walking up from every vertex."""
    found = 0
    for vertex in range(1, graph.vertices):
        steps = 0
        while vertex:
            vertex = int(graph.tails[chosen[vertex - 1]])
            steps += 1
        found = max(found, steps)
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), graphs(vertices=5), st.sampled_from(SCHEMES), st.integers(1, 3))
def test_chains_within_the_limit_or_refused(
    data: st.DataObject, graph: StorageGraph, scheme: Scheme, most: int
) -> None:
    budgets = data.draw(budgets_for(graph, scheme))
    algorithm = data.draw(st.sampled_from([name for name in SOLVERS if name != "mst"]))
    try:
        plan = make_plan(graph, budgets, scheme, algorithm, max_depth=most).plan
    except UsageError:
        fastest = make_plan(graph, budgets, scheme, "spt").plan
        assert fastest.depths(graph).max(initial=0) > most
        return
    chosen = tuple(plan.edges[1:].tolist())
    assert chosen in all_plans(graph)
    assert deepest(graph, chosen) <= most
    assert keeps(costs(graph, chosen, scheme)[1], budgets)


@pytest.mark.parametrize("most", [1, 2, 5, 31])
def test_a_chain_is_cut_where_it_is_cheapest(most: int) -> None:
    count = 32
    rows = [(v - 1, v, "delta", 10, 1) for v in range(1, count + 1)]
    rows += [(0, v, "materialise", 1000 + v, 1) for v in range(2, count + 1)]
    graph = StorageGraph.build(count + 1, rows, [])
    plan = make_plan(graph, [], "independent", "best", max_depth=most).plan
    assert plan.depths(graph).max() <= most
    assert np.count_nonzero(plan.parents(graph)[1:] == 0) == -(-count // most)
    free = make_plan(graph, [], "independent", "best").plan
    assert free.depths(graph).max() == count
