"""The two ways to a storage plan.

`make_plan` takes a solver by name: budgets are checked first, the plan last.

`replan` is for a commit: new matrices find their place, what is stored already stays as it is.
Each new vertex first gets the fastest in-edge from what has a place, then the in-edges that save
most bytes per microsecond are taken while the budgets that the new vertices are part of hold.
Last, what is stored already and may move (a new version's parents) does so where that is smaller,
with all that rests on it: no cycle, no chain too long, no budget broken of any snapshot below.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dlv.dataclass import dataclass
from dlv.errors import UsageError, nearest
from dlv.kinds import Longs
from dlv.pas.solvers import best, mst, spt
from dlv.pas.solvers.instance import Instance
from dlv.pas.solvers.paper import solve_last, solve_mt, solve_pt
from dlv.pas.storage_graph import (
    MAX_DEPTH,
    Budgets,
    Infeasible,
    Scheme,
    StorageGraph,
    StoragePlan,
    raised,
    refuse_unreachable,
    shortfalls,
)

Solver = Callable[[StorageGraph, Budgets, Scheme], StoragePlan]
SOLVERS: dict[str, Solver] = {
    "best": best.solve,
    "mt": solve_mt,
    "pt": solve_pt,
    "last": solve_last,
    "mst": mst.solve,
    "spt": spt.solve,
}
REFERENCE = {"mst"}  # shows what storage could be without budgets, and so may break them


@dataclass(frozen=True)
class Planned:
    plan: StoragePlan
    budgets: list[int | None]  # as they were kept: raised where they were clamped
    minima: list[int]  # the fastest possible recreation of each snapshot


def make_plan(
    graph: StorageGraph,
    budgets: Budgets,
    scheme: Scheme = "independent",
    algorithm: str = "best",
    *,
    clamp: bool = False,
    max_depth: int | None = None,
) -> Planned:
    """A plan within the budgets, or Infeasible; `clamp` raises a budget to what is possible.

    `mst` ignores budgets, so that its plan can be compared with. Of deltas one on the other more
    than `max_depth` (the first matrix counts, too) are cut, with as little storage as may be.
    """
    solver = SOLVERS.get(algorithm)
    if solver is None:
        raise UsageError(f"no algorithm `{algorithm}`", did_you_mean=nearest(algorithm, SOLVERS))
    minima = spt.minima(graph, scheme)
    short = shortfalls(budgets, minima)
    if short and not clamp and algorithm not in REFERENCE:
        raise Infeasible(short)
    kept = raised(budgets, short)
    plan = solver(graph, kept, scheme)
    if max_depth is not None:
        limits = [None] * len(kept) if algorithm in REFERENCE else kept
        plan = cut_chains(graph, plan, limits, scheme, max_depth)
    plan.check(graph)
    return Planned(plan, kept, minima)


def cut_chains(
    graph: StorageGraph, plan: StoragePlan, budgets: Budgets, scheme: Scheme, most: int
) -> StoragePlan:
    """The plan, or one in which no vertex is further than `most` edges from the empty matrix.

    Every chain that is too long is cut by the swap that costs least storage and keeps all
    budgets. Where there is none, the fastest plan keeps the budgets, and may be shallow enough.
    """
    if most < 1:
        raise UsageError("a chain has at least one edge, that of the tensor itself")
    if plan.depths(graph).max(initial=0) <= most:
        return plan
    instance = Instance(graph, budgets, scheme, prune=False)
    number = np.full(graph.edges, -1, np.int64)
    number[instance.kept] = np.arange(len(instance.kept))
    edges = plan.edges.copy()
    edges[1:] = number[edges[1:]]
    tree = instance.tree(edges)
    left = instance.loops.run.shorten(instance.flat, tree, most)
    if left < 0:
        return StoragePlan(instance.chosen(tree))
    fastest = StoragePlan(spt.shortest(graph)[1])
    if fastest.depths(graph).max(initial=0) <= most:
        return fastest
    raise UsageError(
        f"no plan within the budgets was found that stores vertex {left} with {most} edges",
        hint="allow longer chains, or more time",
    )


def replan(
    graph: StorageGraph,
    stored: Longs,
    budgets: Budgets,
    scheme: Scheme = "independent",
    *,
    movable: Longs | None = None,
    max_depth: int = MAX_DEPTH,
) -> StoragePlan:
    """`stored[v]` is the edge of a vertex that has its place, -1 of a new one; `movable`: vertices
    that may leave their place. A budget that the fastest in-edges break stays broken: that is for
    `archive` to mend or refuse."""
    edges = np.array(stored, np.int64)
    edges[0] = -1
    new = np.flatnonzero(edges < 0)[1:]
    if not len(new) and movable is None:
        return StoragePlan(edges)
    placed = edges >= 0
    placed[0] = True
    old = np.where(placed, edges, -1)
    distance, depth = costs_along(graph, old, graph.recreation), costs_along(graph, old, None)
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
    take_smaller_edges(graph, into, edges, distance, depth, budgets, scheme, max_depth)
    if movable is not None and len(movable):
        moving = np.zeros(graph.vertices, np.bool_)
        moving[movable] = True
        moving[new] = moving[0] = False
        Moves(graph, edges, budgets, scheme, max_depth).make(moving)
    return StoragePlan(edges)


def take_smaller_edges(
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


class Moves:
    """Vertices that move with all that rests on them. `edges` are changed in place."""

    def __init__(
        self, graph: StorageGraph, edges: Longs, budgets: Budgets, scheme: Scheme, max_depth: int
    ) -> None:
        self.graph, self.edges = graph, edges
        self.scheme, self.max_depth = scheme, max_depth
        limited = [(m, b) for m, b in zip(graph.snapshots, budgets, strict=True) if b is not None]
        sizes = [len(members) for members, _ in limited]
        none = np.zeros(0, np.int64)
        self.members = np.concatenate([none, *(members for members, _ in limited)])
        self.group = np.repeat(np.arange(len(limited)), sizes)
        self.budgets = np.array([budget for _, budget in limited], np.int64)
        self.refresh()

    def refresh(self) -> None:
        self.distance = costs_along(self.graph, self.edges, self.graph.recreation)
        self.depth = costs_along(self.graph, self.edges, None)
        self.parent = np.zeros(len(self.edges), np.int64)
        self.parent[1:] = self.graph.tails[self.edges[1:]]
        self.order = np.argsort(self.parent, kind="stable")
        self.first = np.searchsorted(self.parent[self.order], np.arange(len(self.edges) + 1))
        self.room = self.budgets.copy()
        if self.scheme == "independent":
            np.subtract.at(self.room, self.group, self.distance[self.members])

    def make(self, moving: NDArray[np.bool_]) -> None:
        """The swaps that save most, as long as there are any; a vertex moves once."""
        graph = self.graph
        ways = np.flatnonzero(moving[graph.heads] & graph.usable)
        saved = graph.storage[self.edges[graph.heads[ways]]] - graph.storage[ways]
        ways, saved = ways[saved > 0], saved[saved > 0]
        for e in ways[np.lexsort((ways, graph.recreation[ways], -saved))].tolist():
            v = int(graph.heads[e])
            if moving[v] and self.fits(e, v):
                self.edges[v] = e
                moving[v] = False
                self.refresh()

    def fits(self, e: int, v: int) -> bool:
        """Whether the swap to e makes no cycle and keeps depth and budgets of all below v."""
        u = int(self.graph.tails[e])
        below = self.below(v)
        if below[u]:
            return False
        deeper = int(self.depth[u] + 1 - self.depth[v])
        if self.depth[below].max() + deeper > max(self.max_depth, self.depth[below].max()):
            return False
        slower = int(self.distance[u] + self.graph.recreation[e] - self.distance[v])
        if slower <= 0:
            return True
        moved = below[self.members]
        if self.scheme == "parallel":
            later = self.distance[self.members[moved]] + slower
            return bool(np.all(later <= self.room[self.group[moved]]))
        counts = np.bincount(self.group[moved], minlength=len(self.room))
        touched = counts > 0
        return bool(np.all(counts[touched] * slower <= self.room[touched]))

    def below(self, v: int) -> NDArray[np.bool_]:
        """v and all that rests on it."""
        found = np.zeros(len(self.edges), np.bool_)
        waiting = [v]
        while waiting:
            x = waiting.pop()
            found[x] = True
            waiting += self.order[self.first[x] : self.first[x + 1]].tolist() if x else []
        return found


def costs_along(graph: StorageGraph, edges: Longs, costs: Longs | None) -> Longs:
    """Sums of costs (None: of ones) on the way to each vertex that has a place."""
    placed = np.flatnonzero(edges >= 0)
    total, up = np.zeros(graph.vertices, np.int64), np.zeros(graph.vertices, np.int64)
    total[placed] = 1 if costs is None else costs[edges[placed]]
    up[placed] = graph.tails[edges[placed]]
    while np.any(up):
        total = total + total[up]
        up = up[up]
    return total
