from __future__ import annotations

import inspect
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dlv.pas.solvers.greedy as greedy
from dlv.pas.solvers import spt
from dlv.pas.solvers.compiled import longs
from dlv.pas.solvers.instance import Instance
from dlv.pas.solvers.tree import Flat, Tree, swap
from dlv.pas.storage_graph import Budgets, Scheme, StorageGraph
from tests.conformance.solver import (
    INHERITED,
    SCHEMES,
    SolverSuite,
    budgets_for,
    graphs,
    repository,
)


class TestSuite(SolverSuite):
    algorithm = "pt"


def grown(
    instance: Instance, grow: Callable[..., None] | None = None
) -> tuple[list[int], list[int]]:
    """Which vertices are inside, and the in-edges, as dlv grows the tree."""
    tree = instance.tree(instance.fastest)
    inside = instance.loops.zeros(instance.graph.vertices)
    (grow or instance.loops.run.grow)(instance.flat, tree, inside)
    chosen = longs(tree.edge).tolist()
    marks = longs(inside).tolist()
    # What is kept up to date along the way is what the edges give.
    again = instance.tree(np.where(longs(inside) > 0, longs(tree.edge), instance.fastest))
    for v, mark in enumerate(marks):
        if mark:
            assert tree.distance[v] == again.distance[v]
    return marks, [e if mark else -1 for e, mark in zip(chosen, marks, strict=True)]


def by_the_book(
    instance: Instance, graph: StorageGraph, budgets: Budgets, scheme: Scheme
) -> tuple[list[int], list[int]]:
    """Algorithm 2 with nothing kept up to date: every path is walked, every sum added up anew."""
    tails, heads = instance.tails.tolist(), instance.heads.tolist()
    storage, recreation = instance.storage.tolist(), instance.recreation.tolist()
    fastest = instance.fastest_distance.tolist()
    edge: dict[int, int] = {}

    def path(v: int) -> list[int]:
        found = [v]
        while found[-1]:
            found.append(tails[edge[found[-1]]])
        return found

    def time(v: int) -> int:
        return sum(recreation[edge[x]] for x in path(v)[:-1])

    def keeps(v: int, e: int) -> bool:
        for members, budget in zip(graph.snapshots, budgets, strict=True):
            if budget is None or v not in members:
                continue
            times = {
                m: time(m) if m in edge or not m else fastest[m] for m in set(members.tolist())
            }
            times[v] = time(tails[e]) + recreation[e]
            # In parallel a budget binds each member by itself, here the new one.
            if (times[v] if scheme == "parallel" else sum(times.values())) > budget:
                return False
        return True

    heap: list[tuple[int, int]] = []

    def out(u: int) -> list[int]:
        return [e for e, tail in enumerate(tails) if tail == u]

    for e in out(0):
        heappush(heap, (storage[e], e))
    while heap:
        _, e = heappop(heap)
        v = heads[e]
        if v in edge or not v or not keeps(v, e):
            continue
        edge[v] = e
        for f in out(v):
            x = heads[f]
            if x not in edge:
                heappush(heap, (storage[f], f))
            elif (
                storage[f] < storage[edge[x]]
                and time(v) + recreation[f] <= time(x)
                and x not in path(v)
            ):
                edge[x] = f
    marks = [int(v in edge) for v in range(graph.vertices)]
    return marks, [edge.get(v, -1) for v in range(graph.vertices)]


def same(
    graph: StorageGraph, budgets: Budgets, scheme: Scheme, grow: Callable[..., None] | None = None
) -> None:
    instance = Instance(graph, budgets, scheme, prune=False)
    marks, chosen = grown(instance, grow)
    expected = by_the_book(instance, graph, budgets, scheme)
    assert marks[1:] == expected[0][1:]
    assert chosen[1:] == expected[1][1:]


@settings(max_examples=150, deadline=None, suppress_health_check=INHERITED)
@given(st.data(), graphs(vertices=8, edges=24), st.sampled_from(SCHEMES))
def test_it_grows_as_in_the_book(data: st.DataObject, graph: StorageGraph, scheme: Scheme) -> None:
    same(graph, data.draw(budgets_for(graph, scheme)), scheme)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("alpha", [1.2, 2.0])
def test_it_grows_as_in_the_book_on_a_repository(scheme: Scheme, alpha: float) -> None:
    graph = repository(3, 3, 4, 4)
    same(graph, [int(alpha * one) for one in spt.minima(graph, scheme)], scheme)


# A line of the step, and what a slip of the pen might make of it.
SLIPS = [
    ("if total[g] + slower > flat.budget[g]:", "if total[g] + slower >= flat.budget[g]:"),
    ("total[flat.group[at]] += slower", "total[flat.group[at]] += 0"),
    ("flat.storage[f] < flat.storage[edge[x]]", "flat.storage[f] <= flat.storage[edge[x]]"),
    ("flat.recreation[f] <= distance[x]", "flat.recreation[f] < distance[x]"),
    ("distance[v] + flat.recreation[f] <= distance[x]", "True"),
    ("if smaller and no_slower and", "if no_slower and"),
    ("                swap(flat, tree, f)", "                relink(flat, tree, f)"),
    ("                swap(flat, tree, f)", "                pass"),
    ("heappush(heap, (flat.storage[f], f))", "heappush(heap, (flat.recreation[f], f))"),
    ("        distance[v] += slower", "        pass"),
]


def relink(flat: Flat, tree: Tree, e: int) -> None:
    """A swap that forgets who is slower or faster by it."""
    distance, total = list(tree.distance), list(tree.total)
    swap(flat, tree, e)
    tree.distance[:], tree.total[:] = distance, total


@pytest.mark.parametrize(("right", "wrong"), SLIPS)
def test_a_slip_is_seen(right: str, wrong: str) -> None:
    """The test itself: with each of these in the step, some plan is another."""
    text = inspect.getsource(greedy.grow)
    assert text.count(right) == 1
    scope: dict[str, Any] = vars(greedy) | {"relink": relink}
    exec("from __future__ import annotations\n" + text.replace(right, wrong), scope)
    with pytest.raises(AssertionError):
        many(scope["grow"])


def test_without_a_slip_nothing_is_seen() -> None:
    many(greedy.grow)


def many(grow: Callable[..., None]) -> None:
    for seed in range(200):
        some(seed, grow)


def some(seed: int, grow: Callable[..., None]) -> None:
    """A small graph with ties, held against the book."""
    rng = np.random.default_rng(seed)
    count = 8
    rows = [(0, v, "whole", int(rng.integers(6, 12)), int(rng.integers(1, 4))) for v in range(1, 8)]
    for _ in range(24):
        u, v = map(int, rng.integers(1, count, 2))
        rows.append((u, v, "delta", int(rng.integers(1, 9)), int(rng.integers(0, 4))))
    members = [rng.choice(np.arange(1, count), 3, replace=False).tolist() for _ in range(2)]
    graph = StorageGraph.build(count, rows, members)
    minima = spt.minima(graph, "independent")
    same(graph, [least + int(rng.integers(0, 8)) for least in minima], "independent", grow)
