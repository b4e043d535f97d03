"""What whole arrays leave out is what the loops, edge by edge, would not have taken."""

from __future__ import annotations

import numpy as np
import pytest

from dlv.pas.solvers import greedy, spt
from dlv.pas.solvers.best import Search
from dlv.pas.solvers.compiled import longs
from dlv.pas.solvers.instance import Instance, prices_of
from dlv.pas.solvers.tree import Tree
from dlv.pas.storage_graph import Scheme
from tests.conformance.solver import SCHEMES, repository


def instance_of(scheme: Scheme, alpha: float) -> Instance:
    graph = repository(11, 4, 5, 4)
    budgets = [int(alpha * one) for one in spt.minima(graph, scheme)]
    return Instance(graph, budgets, scheme, prune=True)


def path(instance: Instance, tree: Tree, v: int) -> list[int]:
    """v and all that it hangs from, with the root."""
    return [0] if v == 0 else [v, *path(instance, tree, int(instance.tails[tree.edge[v]]))]


def time(instance: Instance, tree: Tree, v: int) -> int:
    return sum(int(instance.recreation[tree.edge[x]]) for x in path(instance, tree, v) if x)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("price", [0.01, 1.0, 30.0])
def test_no_edge_worth_turning_is_left_out(scheme: Scheme, price: float) -> None:
    instance = instance_of(scheme, 1.5)
    tree = instance.tree(instance.cheapest())
    weights = prices_of(instance, np.full(len(instance.budgets), price))
    search = Search(instance, tree)
    turnable = set(search._turnable(search.view(weights)).tolist())
    count = instance.graph.vertices
    paths = [path(instance, tree, v) for v in range(count)]
    times = [time(instance, tree, v) for v in range(count)]
    storage, recreation = instance.storage.tolist(), instance.recreation.tolist()
    worth = 0
    for out, (low, top) in enumerate(zip(instance.tails, instance.heads, strict=True)):
        if low == top or int(top) not in paths[low]:
            continue
        for way in np.flatnonzero(instance.heads == low).tolist():
            source = int(instance.tails[way])
            if top in paths[source]:
                continue
            there = times[source] + recreation[way]
            change = storage[way] - storage[tree.edge[low]]
            change += storage[out] - storage[tree.edge[top]]
            for v in range(count):
                slower = there - times[low] if int(low) in paths[v] else None
                if slower is None and int(top) in paths[v]:
                    slower = there + recreation[out] - times[top]
                change += weights[v] * (slower or 0)
            if change < -0.001:
                worth += 1
                assert out in turnable
    assert worth or price != 1.0, "the test itself: some are worth it"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_swaps_that_are_offered_at_first(scheme: Scheme) -> None:
    instance = instance_of(scheme, 1.1)
    tree = instance.tree(instance.cheapest())
    load, unmet = ([0] * n for n in (instance.graph.vertices, len(instance.budgets)))
    assert greedy.unmet(instance.flat, tree, load, unmet) > 0
    keys = [greedy.NOTHING] * len(instance.kept)
    queue: list[tuple[float, int]] = []
    for e in range(len(keys)):
        greedy.offer(instance.flat, tree, load, keys, queue, e)
    made, first = instance._offers(tree, longs(load))
    assert made.tolist() == keys
    assert [(keys[e], e) for e in first.tolist()] == sorted(queue)
