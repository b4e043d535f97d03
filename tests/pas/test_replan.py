from __future__ import annotations

import time

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlv.pas.plan import make_plan
from dlv.pas.replan import replan
from dlv.pas.solvers import spt
from dlv.pas.storage_graph import Longs, Scheme, StorageGraph
from tests.conformance.solver import SCHEMES, graphs, repository


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), graphs(vertices=8), st.sampled_from(SCHEMES))
def test_old_matrices_stay_and_new_ones_get_a_place(
    data: st.DataObject, graph: StorageGraph, scheme: Scheme
) -> None:
    budgets = [data.draw(st.none() | st.integers(0, 40)) for _ in graph.snapshots]
    stored = make_plan(graph, [None] * len(budgets), scheme, "mst").plan.edges.copy()
    depths = make_plan(graph, [None] * len(budgets), scheme, "mst").plan.depths(graph)
    known = data.draw(st.integers(0, max(int(depths.max()), 0)))
    stored[depths > known] = -1
    plan = replan(graph, stored, budgets, scheme)
    plan.check(graph)
    kept = np.flatnonzero(stored >= 0)
    assert np.array_equal(plan.edges[kept], stored[kept])


def without_last(graph: StorageGraph, count: int) -> tuple[StorageGraph, Longs]:
    """The graph before the last `count` vertices came, and its edges' numbers in the whole."""
    first = graph.vertices - count
    kept = np.flatnonzero((graph.tails < first) & (graph.heads < first))
    columns = (graph.tails, graph.heads, graph.storage, graph.recreation)
    tails, heads, storage, recreation = (column[kept] for column in columns)
    kinds = [""] * len(kept)
    groups = graph.snapshots[:-1]
    return StorageGraph(first, tails, heads, kinds, storage, recreation, groups), kept


def test_a_new_snapshot_within_its_budget() -> None:
    graph = repository(5, 6, 8, 6)
    new = np.arange(graph.vertices - 6, graph.vertices)
    before, kept = without_last(graph, 6)
    for scheme in SCHEMES:
        minima = spt.minima(graph, scheme)
        budgets: list[int | None] = [int(2.5 * m) for m in minima]
        first = make_plan(before, budgets[:-1], scheme, "best", clamp=True).plan
        stored = np.full(graph.vertices, -1)
        stored[1 : before.vertices] = kept[first.edges[1:]]
        fastest = make_plan(graph, budgets, scheme, "spt").plan
        plan = replan(graph, stored, budgets, scheme)
        assert plan.snapshot_costs(graph, scheme)[-1] <= (budgets[-1] or 0)
        assert graph.storage[plan.edges[new]].sum() < graph.storage[fastest.edges[new]].sum()


def test_speed() -> None:
    graph = repository(6, 54, 10, 16)
    stored = make_plan(graph, [None] * 540, "independent", "mst").plan.edges.copy()
    stored[-16:] = -1
    budgets: list[int | None] = [None] * 540
    replan(graph, stored, budgets)
    started = time.process_time()
    replan(graph, stored, budgets)
    assert time.process_time() - started < 0.25  # 50 ms is the goal on a quiet machine
