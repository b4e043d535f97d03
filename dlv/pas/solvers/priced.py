"""Trees of low storage plus priced recreation: the local search between two settings of prices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.pas.solvers.compiled import longs
from dlv.pas.solvers.instance import Instance, by, joined
from dlv.pas.solvers.tree import Tree
from dlv.pas.storage_graph import Longs

Doubles = NDArray[np.float64]


class Search:
    """A tree, and the swaps that would make it better under prices.

    Which swaps promise anything is found for all edges at once; they are then judged again one
    by one, the best first, as each changes the tree.
    """

    def __init__(self, instance: Instance, tree: Tree) -> None:
        self.instance = instance
        self.tree = tree
        count = instance.graph.vertices
        self.load: Doubles = np.zeros(count)
        self.loads: Any = []  # the same, as the loops want it
        self.start, self.end = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.edge, self.distance = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.in_start, self.in_edge = by(instance.heads, count)

    def view(self, prices: Doubles) -> None:
        """Bring order, loads and what is known of the tree up to date."""
        self.edge, self.distance = longs(self.tree.edge), longs(self.tree.distance)
        parent = np.zeros(len(self.edge), np.int64)
        parent[1:] = self.instance.tails[self.edge[1:]]
        self.start, self.end, self.load = spans(parent, prices)
        self.loads = self.instance.loops.sequence(self.load)

    def changes(self) -> tuple[Doubles, NDArray[np.bool_]]:
        """What a swap to each edge changes, and whether its tail lies below its head."""
        instance = self.instance
        tails, heads = instance.tails, instance.heads
        distance = self.distance
        held = np.zeros(len(distance), np.int64)
        held[1:] = instance.storage[self.edge[1:]]
        shift = distance[tails] + instance.recreation - distance[heads]
        more = instance.storage - held[heads]
        change: Doubles = np.add(more, self.load[heads] * shift, dtype=np.float64)
        below = (self.start[tails] >= self.start[heads]) & (self.start[tails] < self.end[heads])
        return change, below

    def settle(self, prices: Doubles, passes: int) -> None:
        run, instance = self.instance.loops.run, self.instance
        for _ in range(passes):
            self.view(prices)
            change, below = self.changes()
            good = np.flatnonzero((change < -0.001) & ~below)
            moves = good[np.argsort(change[good], kind="stable")]
            made = run.settle(instance.flat, self.tree, self.loads, self._sequence(moves))
            made += self.rotate(prices) if made < 50 else 0
            if made == 0:
                break

    def rotate(self, prices: Doubles) -> int:
        """Turn around edges of which the tail lies below the head."""
        self.view(prices)
        instance = self.instance
        below = self.changes()[1]
        outs = np.flatnonzero(below)
        tails = instance.tails[outs]
        counts = self.in_start[tails + 1] - self.in_start[tails]
        offset = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        ins = self.in_edge[np.repeat(self.in_start[tails], counts) + offset]
        outs = np.repeat(outs, counts)
        start, end = self.start, self.end
        source, top, low = instance.tails[ins], instance.heads[outs], instance.tails[outs]
        outside = (start[source] < start[top]) | (start[source] >= end[top])
        ins, outs, source, top, low = (a[outside] for a in (ins, outs, source, top, low))
        distance, load = self.distance, self.load
        held = instance.storage[self.edge]
        there = distance[source] + instance.recreation[ins]
        total = instance.storage[ins] - held[low] + load[low] * (there - distance[low])
        total += instance.storage[outs] - held[top]
        total += (load[top] - load[low]) * (there + instance.recreation[outs] - distance[top])
        good = np.flatnonzero(total < -0.001)
        good = good[np.argsort(total[good], kind="stable")]
        made: int = instance.loops.run.rotate(
            instance.flat,
            self.tree,
            self.loads,
            self._sequence(outs[good]),
            self._sequence(ins[good]),
        )
        return made

    def explore(self, prices: Doubles, most: int, rounds: int, tries: int) -> None:
        """Ejection chains, the swaps first that look best under the prices; after the first round
        only those around which something moved."""
        instance, tree = self.instance, self.tree
        room = instance.loops.zeros
        log, groups, region = room(4 * most), room(64), room(256)
        looked = room(instance.graph.vertices)
        stirred = np.ones(instance.graph.vertices, np.bool_)
        for _ in range(rounds):
            self.view(prices)
            change, below = self.changes()
            stirring = stirred[instance.heads] | stirred[instance.tails]
            good = np.flatnonzero(~below & stirring & self._payable())
            moves = good[np.argsort(change[good], kind="stable")][:tries]
            before = longs(tree.edge), longs(tree.distance), longs(tree.total)
            looked[:] = room(len(looked))
            saved = instance.loops.run.explore(
                instance.flat, tree, self._sequence(moves), most, log, groups, region, looked
            )
            if not saved:
                break
            stirred = (before[0] != longs(tree.edge)) | (before[1] != longs(tree.distance))
            members, sizes = joined(instance.groups)
            stirred[members[np.repeat(before[2] != longs(tree.total), sizes)]] = True

    def _payable(self) -> NDArray[np.bool_]:
        """Which swaps another swap may pay for: where one alone breaks the budget of its head, and
        what it saves does not buy that time at the best rate in that group, none does."""
        instance = self.instance
        tails, heads = instance.tails, instance.heads
        distance, current = longs(self.tree.distance), longs(self.tree.edge)
        shift = distance[tails] + instance.recreation - distance[heads]
        held = np.zeros(len(distance), np.int64)
        held[1:] = instance.storage[current[1:]]
        more = instance.storage - held[heads]
        # Bytes for a microsecond: the best of each vertex and those above it, of each group.
        rate = np.full(len(distance), np.inf)
        faster = np.flatnonzero(shift < 0)
        np.minimum.at(rate, heads[faster], np.maximum(more[faster], 0) / -shift[faster])
        parent = longs(self.tree.parent)
        parent[0] = 0
        for _ in range(2):
            rate = np.minimum(rate, rate[parent])
        members, sizes = joined(instance.groups)
        group = np.repeat(np.arange(len(sizes)), sizes)
        cheapest = np.full(len(sizes), np.inf)
        np.minimum.at(cheapest, group, rate[members])
        spare = instance.budgets - longs(self.tree.total)
        possible: NDArray[np.bool_] = current[heads] != np.arange(len(heads))
        starts, order = by(members, len(distance))
        for turn in range(int(np.diff(starts).max(initial=0))):  # the n-th group of each head
            has = np.flatnonzero(
                (starts[heads + 1] - starts[heads] > turn) & possible & (shift > 0)
            )
            g = group[order[starts[heads[has]] + turn]]
            need = shift[has] - spare[g]
            dear = need > 0
            best = np.minimum(cheapest[g], rate[tails[has]])
            dear[dear] = need[dear] * best[dear] >= -more[has[dear]]
            possible[has[dear]] = False
        possible &= (more < 0) | (shift < 0)
        return possible

    def anneal(self, rounds: int, seed: int, heat: int) -> Longs:
        """Edges of the best tree that random swaps lead to."""
        instance = self.instance
        made = instance.loops
        best = made.sequence(longs(self.tree.edge))
        room = made.zeros(48), made.zeros(64), made.zeros(64), made.zeros(len(best))
        made.run.anneal(instance.flat, self.tree, rounds, heat, seed, best, *room)
        return longs(best)

    def _sequence(self, array: Longs) -> Any:
        return self.instance.loops.sequence(array)


def spans(parent: Longs, prices: Doubles) -> tuple[Longs, Longs, Doubles]:
    """A numbering in which the subtree of v is start[v] to end[v], and what a microsecond on the
    edge into v costs all of that subtree together. `parent` of the root is the root."""
    count = len(parent)
    depth, up = (parent != np.arange(count)).astype(np.int64), parent
    while np.any(up):
        depth = depth + depth[up]
        up = up[up]
    order = np.argsort(depth, kind="stable")
    levels = np.searchsorted(depth[order], np.arange(int(depth[order[-1]]) + 2))
    size, load = np.ones(count, np.int64), prices.copy()
    for level in range(len(levels) - 2, 0, -1):
        here = order[levels[level] : levels[level + 1]]
        np.add.at(size, parent[here], size[here])
        np.add.at(load, parent[here], load[here])
    # Each vertex begins after its parent and the subtrees of its siblings with smaller numbers.
    order = np.argsort(parent, kind="stable")
    ahead = np.cumsum(size[order]) - size[order]
    first = np.searchsorted(parent[order], parent[order])
    start = np.zeros(count, np.int64)
    start[order] = ahead - ahead[first] + 1
    start[parent == 0] -= size[0]  # the root is the first of its own children
    start[0], up = 0, parent
    while np.any(up):
        start = start + start[up]
        up = up[up]
    return start, start + size, load
