"""The plan at a commit: new matrices find their place, what is stored already stays as it is.

A full plan is `archive`'s business. Here each new vertex first gets the fastest in-edge from what
has a place, then the in-edges that save most bytes per microsecond are taken while the budgets
that the new vertices are part of hold.
"""

from __future__ import annotations

import numpy as np

from dlv.pas.solvers.reach import refuse_unreachable
from dlv.pas.storage_graph import Budgets, Longs, Scheme, StorageGraph
from dlv.pas.storage_plan import MAX_DEPTH, StoragePlan


def replan(
    graph: StorageGraph,
    stored: Longs,
    budgets: Budgets,
    scheme: Scheme = "independent",
    *,
    max_depth: int = MAX_DEPTH,
) -> StoragePlan:
    """`stored[v]` is the edge of a vertex that has its place, -1 of a new one. A budget that the
    fastest in-edges break stays broken: that is for `archive` to mend or refuse."""
    edges = np.array(stored, np.int64)
    edges[0] = -1
    new = np.flatnonzero(edges < 0)[1:]
    if not len(new):
        return StoragePlan(edges)
    placed = edges >= 0
    placed[0] = True
    old = np.where(placed, edges, -1)
    distance, depth = along(graph, old, graph.recreation), along(graph, old, None)
    ways = np.flatnonzero(~placed[graph.heads] & graph.usable)
    into: dict[int, list[int]] = {int(v): [] for v in new}
    for e, head in zip(ways.tolist(), graph.heads[ways].tolist(), strict=True):
        into[head].append(e)
    waiting = list(into)
    tails, storage, recreation = graph.tails, graph.storage, graph.recreation
    while waiting:
        later = []
        for v in waiting:
            open_ = [e for e in into[v] if placed[tails[e]] and depth[tails[e]] < max_depth]
            if not open_:
                later.append(v)
                continue
            edges[v] = min(open_, key=lambda e: (distance[tails[e]] + recreation[e], storage[e], e))
            distance[v] = distance[tails[edges[v]]] + recreation[edges[v]]
            depth[v] = depth[tails[edges[v]]] + 1
            placed[v] = True
        if len(later) == len(waiting):
            refuse_unreachable(graph)
            max_depth = graph.vertices  # nothing shallower leads there
        waiting = later
    improve(graph, into, edges, distance, depth, budgets, scheme, max_depth)
    return StoragePlan(edges)


def improve(
    graph: StorageGraph,
    into: dict[int, list[int]],
    edges: Longs,
    distance: Longs,
    depth: Longs,
    budgets: Budgets,
    scheme: Scheme,
    max_depth: int,
) -> None:
    """Smaller in-edges for new vertices that nothing hangs from yet, within the budgets."""
    groups: dict[int, list[int]] = {v: [] for v in into}
    room: dict[int, int] = {}
    for at, (members, budget) in enumerate(zip(graph.snapshots, budgets, strict=True)):
        mine = [v for v in members.tolist() if v in into] if budget is not None else []
        if budget is None or not mine:
            continue
        for v in mine:
            groups[v].append(at)
        room[at] = budget - (int(distance[members].sum()) if scheme == "independent" else 0)
    taken = set(graph.tails[edges[list(into)]].tolist())
    moves = []
    for v, ways in into.items():
        for e in ways:
            saved = int(graph.storage[edges[v]] - graph.storage[e])
            slower = int(distance[graph.tails[e]] + graph.recreation[e] - distance[v])
            if saved > 0:
                moves.append((-saved / max(slower, 1), e, v))
    for _, e, v in sorted(moves):
        u = int(graph.tails[e])
        there = int(distance[u] + graph.recreation[e])
        slower = there - int(distance[v])
        if v in taken or u == v or depth[u] >= max_depth:
            continue
        if graph.storage[e] >= graph.storage[edges[v]]:
            continue
        if scheme == "parallel":
            fits = all(there <= room[g] for g in groups[v])
        else:
            fits = all(slower <= max(room[g], 0) for g in groups[v])
        if not fits:
            continue
        edges[v], distance[v], depth[v] = e, there, depth[u] + 1
        taken.add(u)
        if scheme == "independent":
            for g in groups[v]:
                room[g] -= slower


def along(graph: StorageGraph, edges: Longs, costs: Longs | None) -> Longs:
    """Sums of costs (None: of ones) on the way to each vertex that has a place."""
    placed = np.flatnonzero(edges >= 0)
    total, up = np.zeros(graph.vertices, np.int64), np.zeros(graph.vertices, np.int64)
    total[placed] = 1 if costs is None else costs[edges[placed]]
    up[placed] = graph.tails[edges[placed]]
    while np.any(up):
        total = total + total[up]
        up = up[up]
    return total
