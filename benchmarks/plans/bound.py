"""A proven lower bound on the storage of all plans within budgets.

A plan is an arborescence x and, for each vertex v that has a budget, a path f_v in it. Least

    sum_e cs_e x_e   with   f_v,e <= x_e   and   sum_{v in g} sum_e cr_e f_v,e <= theta_g.

With any prices y_v,e >= 0 on the first and lambda_g >= 0 on the second limit, w_v the sum of lambda
over the groups of v,

    L = min_x sum_e (cs_e - sum_v y_v,e) x_e
      + sum_v min_f sum_e (w_v cr_e + y_v,e) f_e  -  sum_g lambda_g theta_g

is no more than the storage of any plan that keeps the budgets: for such a plan, put its x and f
in; what was added is sum y (f - x) + sum lambda (R - theta), and no term is positive. Both minima
are exact: Edmonds for x, a shortest path for each f. A path also keeps the cap of its vertex (what
its group leaves it, were all others as fast as they can be), and edges that no plan within the
budgets has, or that an optimum can do without, are left out beforehand. With parallel retrieval
caps are all there is, and lambda is 0.

Only the `NEAR` edges nearest above v have a price y_v,e; above these a path costs at least w_v
times the shortest distance, which takes its place and keeps the bound valid. Subgradient steps
(Polyak's length towards a known plan's storage, with momentum) raise L; where they stop it is
still a bound.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.errors import UsageError, require
from dlv.kinds import Longs
from dlv.pas.solvers.best import usual_price
from dlv.pas.solvers.instance import Instance, by, joined, prices_of
from dlv.pas.solvers.mst import arborescence
from dlv.pas.storage_graph import Budgets, Scheme, StorageGraph, StoragePlan

Doubles = NDArray[np.float64]

NEAR = 150
FINE = 1024  # Edmonds works on whole numbers: of this part of a byte
PATIENCE = 25  # steps without a better bound, then they get shorter
SHORTEST = 1e-5
FAR = 1e300
LABELS = 3000  # of a search for a path; at so many it ends with what is proven by then


@dataclass(frozen=True)
class Local:
    """Of each vertex with a budget the edges near above it; its `nodes`, itself the first."""

    vertices: Longs
    edge_start: Longs
    edges: Longs
    node_start: Longs
    nodes: Longs
    tail: Longs  # of each edge, as a local number
    head: Longs
    closed: NDArray[np.bool_]  # nodes of which all in-edges that keep the cap are local

    @classmethod
    def of(cls, instance: Instance, vertices: Longs) -> Local:
        start, order = by(instance.heads, instance.graph.vertices)
        columns = instance.tails, instance.recreation, instance.fastest_distance, instance.caps
        found = compiled("near")(vertices, start, order, *columns, NEAR)
        return cls(vertices, *found)


def near(
    vertices: Any, start: Any, order: Any, tails: Any, cr: Any, fastest: Any, cap: Any, most: int
) -> Any:
    """The edges above each vertex by which its cap can be kept, the nearest nodes' first."""
    count = len(vertices)
    edge_start = np.zeros(count + 1, np.int64)
    node_start = np.zeros(count + 1, np.int64)
    edges = np.empty(count * most, np.int64)
    tail, head = np.empty(count * most, np.int64), np.empty(count * most, np.int64)
    nodes = np.empty(count * (most + 1), np.int64)
    closed = np.zeros(count * (most + 1), np.bool_)
    number = np.full(len(fastest), -1)
    edge_count = node_count = 0
    for i in range(count):
        v = vertices[i]
        first, limit = node_count, edge_count + most
        nodes[first] = v
        number[v] = 0
        node_count += 1
        heap = [(0, v)]
        while len(heap) > 0:
            below, x = heappop(heap)
            if closed[first + number[x]]:
                continue
            if edge_count + start[x + 1] - start[x] > limit:
                break
            closed[first + number[x]] = True
            for position in range(start[x], start[x + 1]):
                e = order[position]
                u = tails[e]
                if fastest[u] + below + cr[e] > cap[v]:
                    continue
                if number[u] < 0:
                    number[u] = node_count - first
                    nodes[node_count] = u
                    node_count += 1
                if u != 0 and not closed[first + number[u]]:
                    heappush(heap, (below + cr[e], u))
                edges[edge_count] = e
                tail[edge_count] = number[u]
                head[edge_count] = number[x]
                edge_count += 1
        for position in range(first, node_count):
            number[nodes[position]] = -1
        edge_start[i + 1], node_start[i + 1] = edge_count, node_count
    return (
        *(edge_start, edges[:edge_count].copy(), node_start, nodes[:node_count].copy()),
        *(tail[:edge_count].copy(), head[:edge_count].copy(), closed[:node_count].copy()),
    )


def paths(
    weight: Any,
    cap: Any,
    edge_start: Any,
    edges: Any,
    node_start: Any,
    nodes: Any,
    tail: Any,
    head: Any,
    closed: Any,
    y: Any,
    cr: Any,
    fastest: Any,
    used: Any,
    length: Any,
) -> float:
    """The least of each path together; `used`: 1 for its edges, `length`: its recreation.

    From v upwards, by A*, as no path costs less than its recreation: of those to one node a dearer
    one counts only if it is faster, as it may lead on to where the other breaks the cap.
    """
    total = 0.0
    used[:] = 0
    quickest = np.zeros(NEAR + 1, np.int64)
    into = np.zeros(NEAR + 2, np.int64)
    size = LABELS + NEAR
    at, by_edge, before = (
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
    )
    down, cost = np.zeros(size, np.int64), np.zeros(size)
    for i in range(len(weight)):
        first, w = node_start[i], weight[i]
        count = node_start[i + 1] - first
        quickest[:count] = cap[i] + 1
        into[: count + 1] = 0
        # Edges of one head follow each other.
        for k in range(edge_start[i], edge_start[i + 1]):
            into[head[k]] = k + 1  # the last of the run
        heap = [(w * fastest[nodes[first]], 0)]
        at[0], by_edge[0], before[0], down[0], cost[0] = 0, -1, -1, 0, 0.0
        made = 1
        least, label = 0.0, 0
        while len(heap) > 0:
            least, label = heappop(heap)
            node, far = at[label], down[label]
            if not closed[first + node] or made >= LABELS:
                break
            if far >= quickest[node]:
                continue
            quickest[node] = far
            k = into[node] - 1
            while k >= edge_start[i] and head[k] == node:
                u, there = tail[k], far + cr[edges[k]]
                if there + fastest[nodes[first + u]] <= cap[i] and there < quickest[u]:
                    at[made], by_edge[made], before[made], down[made] = u, k, label, there
                    cost[made] = cost[label] + w * cr[edges[k]] + y[k]
                    heappush(heap, (cost[made] + w * fastest[nodes[first + u]], made))
                    made += 1
                k -= 1
        total += least
        length[i] = down[label] + fastest[nodes[first + at[label]]]
        while by_edge[label] >= 0:
            used[by_edge[label]] = 1
            label = before[label]
    return total


_made: dict[str, Any] = {}


def compiled(name: str) -> Any:
    """By numba where it is installed; small graphs can be had without."""
    if name not in _made:
        try:
            numba = require("numba", "fast")
            _made[name] = numba.njit(globals()[name], cache=True)
        except UsageError:
            _made[name] = globals()[name]
    return _made[name]


def lower_bound(
    graph: StorageGraph, budgets: Budgets, scheme: Scheme, plan: StoragePlan, seconds: float = 60
) -> float:
    """Bytes that no plan within the budgets falls below. `plan` is one within them; the better it
    is, the sooner the bound gets near. `seconds`: of CPU time, as long as L still grows."""
    instance = Instance(graph, budgets, scheme, prune=True)
    least = float(instance.size(instance.tree(instance.cheapest())))
    vertices = np.unique(joined(instance.groups)[0])
    if not len(vertices):
        return least
    return max(least, Relaxation(instance, vertices, plan).raised(seconds))


class Relaxation:
    def __init__(self, instance: Instance, vertices: Longs, plan: StoragePlan) -> None:
        self.instance = instance
        self.local = Local.of(instance, vertices)
        self.members, self.sizes = joined(instance.groups)
        self.plan_storage = plan.storage(instance.graph)
        heads = instance.heads[self.local.edges]
        # To begin with, a plan's edges are paid for in equal shares by those who use them.
        start, end = intervals(plan.parents(instance.graph))
        owner = vertices[np.repeat(np.arange(len(vertices)), np.diff(self.local.edge_start))]
        inside = (start[owner] >= start[heads]) & (start[owner] < end[heads])
        share = instance.storage[self.local.edges] / (end - start)[heads]
        self.y: Doubles = np.where(inside, share, 0.0)
        self.usual = usual_price(instance)
        # The cap of a vertex that is a group of its own is kept by its path, without a price.
        self.priced = np.where(self.sizes > 1, self.usual, 0.0)
        self.prices: Doubles = 0.3 * self.priced

    def value(self) -> tuple[float, Doubles, Doubles]:
        """L, and what raises it: of y, and of lambda."""
        instance, local, count = self.instance, self.local, self.instance.graph.vertices
        reduced = instance.storage - np.bincount(local.edges, self.y, len(instance.kept))
        whole = np.round(reduced * FINE).astype(np.int64)
        ties = np.zeros(len(whole), np.int64)
        tree = arborescence(count, instance.tails, instance.heads, whole - whole.min(), ties)[1:]
        taken = np.zeros(len(whole))
        taken[tree] = 1
        used, length = np.zeros(len(self.y)), np.zeros(len(local.vertices))
        weight = prices_of(instance, self.prices)[local.vertices]
        least = compiled("paths")(
            *(
                weight,
                instance.caps[local.vertices],
                local.edge_start,
                local.edges,
                local.node_start,
                local.nodes,
            ),
            *(local.tail, local.head, local.closed, self.y),
            *(instance.recreation, instance.fastest_distance, used, length),
        )
        # Each edge of the true minimum may have been rounded down, of this one up: by half a part.
        value = float(reduced[tree].sum()) - count / FINE + least
        value -= float((self.prices * instance.budgets).sum())
        times = np.zeros(count)
        times[local.vertices] = length
        sums = np.concatenate([np.zeros(1), np.cumsum(times[self.members])])
        ends = np.cumsum(self.sizes)
        over = sums[ends] - sums[ends - self.sizes] - instance.budgets
        return value, used - taken[local.edges], over

    def raised(self, seconds: float) -> float:
        """The best L of subgradient steps. Steps are in bytes: y by an edge's storage, lambda by
        the usual price of a microsecond."""
        best, step, idle = -FAR, 1.0, 0
        kept = self.y.copy(), self.prices.copy()
        scale = self.instance.storage[self.local.edges].astype(np.float64) ** 2
        along: tuple[Doubles, Doubles] | None = None
        until = time.process_time() + seconds
        while step >= SHORTEST and time.process_time() < until:
            value, more, over = self.value()
            if value > best + 1e-6 * abs(best):
                idle = 0
                kept = self.y.copy(), self.prices.copy()
            else:
                idle += 1
            best = max(best, value)
            more[(self.y <= 0) & (more < 0)] = 0
            over = np.where((self.prices <= 0) & (over < 0), 0, over) * self.priced
            if idle > PATIENCE:
                step, idle, along = step * 0.7, 0, None
                self.y, self.prices = kept[0].copy(), kept[1].copy()
            if along is not None:
                more, over = 0.7 * along[0] + more, 0.7 * along[1] + over
            along = more, over
            norm = float((more * more * scale).sum() + (over * over).sum())
            if norm == 0:
                break
            far = step * max(self.plan_storage - value, 0) / norm
            self.y = np.maximum(0, self.y + far * more * scale)
            self.prices = np.maximum(0, self.prices + far * self.priced * over)
        return best


def intervals(parents: Longs) -> tuple[Longs, Longs]:
    """A number for each vertex so that the subtree of v has those from start[v] to end[v]."""
    children: list[list[int]] = [[] for _ in parents]
    for v, u in enumerate(parents.tolist()[1:], 1):
        children[u].append(v)
    order, waiting = [], [0]
    while waiting:
        order.append(waiting.pop())
        waiting += children[order[-1]]
    start = np.zeros(len(parents), np.int64)
    start[order] = np.arange(len(parents))
    end = start + 1
    for v in reversed(order[1:]):
        end[parents[v]] = max(end[parents[v]], end[v])
    return start, end
