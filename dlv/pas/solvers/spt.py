"""The fastest recreation of every matrix at once: the shortest path tree, by Dijkstra.

What it cannot keep, no plan keeps: each budget's reachable minimum comes from its distances.
"""

from __future__ import annotations

import heapq

import numpy as np

from dlv.kinds import Longs
from dlv.pas.storage_graph import (
    Budgets,
    Scheme,
    StorageGraph,
    StoragePlan,
    of_snapshots,
    refuse_unreachable,
)

ROUNDS = 16


def solve(graph: StorageGraph, _budgets: Budgets, _scheme: Scheme) -> StoragePlan:
    """Budgets are not looked at. Of equally fast paths the one with the smaller last edge."""
    return StoragePlan(shortest(graph)[1])


def minima(graph: StorageGraph, scheme: Scheme) -> list[int]:
    """The fastest possible recreation of each snapshot."""
    return of_snapshots(graph, shortest(graph)[0], scheme)


def shortest(graph: StorageGraph) -> tuple[Longs, Longs]:
    """Distance and in-edge of each vertex."""
    refuse_unreachable(graph)
    distance = in_rounds(graph)
    if distance is None:
        return with_heap(graph)
    # An edge that is on a shortest path and makes time grow cannot close a cycle.
    tight = distance[graph.tails] + graph.recreation == distance[graph.heads]
    grows = np.flatnonzero(tight & (graph.recreation > 0) & graph.usable)
    tied = np.lexsort((grows, graph.storage[grows], graph.heads[grows]))[::-1]
    edges = np.full(graph.vertices, -1, np.int64)
    edges[graph.heads[grows[tied]]] = grows[tied]
    return (distance, edges) if np.all(edges[1:] >= 0) else with_heap(graph)


def in_rounds(graph: StorageGraph) -> Longs | None:
    """Distances by relaxing all edges at once; None where paths are long. Usually they are not."""
    distance = np.full(graph.vertices, np.iinfo(np.int64).max // 2)
    distance[0] = 0
    for _ in range(ROUNDS):
        better = distance.copy()
        np.minimum.at(better, graph.heads, distance[graph.tails] + graph.recreation)
        if np.array_equal(better, distance):
            return distance
        distance = better
    return None


def with_heap(graph: StorageGraph) -> tuple[Longs, Longs]:
    """Dijkstra. A vertex's base is always settled before it: no cycle, even where edges cost 0."""
    order = np.argsort(graph.tails, kind="stable")
    starts = np.searchsorted(graph.tails[order], np.arange(graph.vertices + 1)).tolist()
    out, heads = order.tolist(), graph.heads.tolist()
    storage, recreation = graph.storage.tolist(), graph.recreation.tolist()
    distance, edges = [-1] * graph.vertices, [-1] * graph.vertices
    heap = [(0, 0, -1, 0)]
    while heap:
        at, _, edge, vertex = heapq.heappop(heap)
        if distance[vertex] >= 0:
            continue
        distance[vertex], edges[vertex] = at, edge
        for position in range(starts[vertex], starts[vertex + 1]):
            after = out[position]
            if distance[heads[after]] < 0:
                heapq.heappush(heap, (at + recreation[after], storage[after], after, heads[after]))
    return np.array(distance, np.int64), np.array(edges, np.int64)
