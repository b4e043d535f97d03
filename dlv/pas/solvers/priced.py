"""Trees of low storage plus priced recreation: the local search between two settings of prices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.pas.solvers.compiled import longs
from dlv.pas.solvers.instance import Instance, by
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
        made = instance.loops
        self.order, self.start, self.end = (made.zeros(count) for _ in range(3))
        self.load = made.floats(count)
        self.in_start, self.in_edge = by(instance.heads, count)

    def view(self, prices: Doubles) -> None:
        """Bring order and loads up to date."""
        run = self.instance.loops.run
        run.walk(self.tree, self.order, self.start, self.end)
        run.weigh(self.tree, self.order, self.instance.loops.sequence(prices), self.load)

    def changes(self) -> tuple[Doubles, NDArray[np.bool_]]:
        """What a swap to each edge changes, and whether its tail lies below its head."""
        instance, tree = self.instance, self.tree
        tails, heads = instance.tails, instance.heads
        distance, current = longs(tree.distance), longs(tree.edge)
        start, end = longs(self.start), longs(self.end)
        load = np.array(self.load)
        held = np.zeros(len(distance), np.int64)
        held[1:] = instance.storage[current[1:]]
        shift = distance[tails] + instance.recreation - distance[heads]
        change = instance.storage - held[heads] + load[heads] * shift
        below = (start[tails] >= start[heads]) & (start[tails] < end[heads])
        return change, below

    def settle(self, prices: Doubles, passes: int) -> None:
        run, instance = self.instance.loops.run, self.instance
        for _ in range(passes):
            self.view(prices)
            change, below = self.changes()
            good = np.flatnonzero((change < -0.001) & ~below)
            moves = good[np.argsort(change[good], kind="stable")]
            made = run.settle(instance.flat, self.tree, self.load, self._sequence(moves))
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
        start, end = longs(self.start), longs(self.end)
        source, top, low = instance.tails[ins], instance.heads[outs], instance.tails[outs]
        outside = (start[source] < start[top]) | (start[source] >= end[top])
        ins, outs, source, top, low = (a[outside] for a in (ins, outs, source, top, low))
        distance, load = longs(self.tree.distance), np.array(self.load)
        held = instance.storage[longs(self.tree.edge)]
        there = distance[source] + instance.recreation[ins]
        total = instance.storage[ins] - held[low] + load[low] * (there - distance[low])
        total += instance.storage[outs] - held[top]
        total += (load[top] - load[low]) * (there + instance.recreation[outs] - distance[top])
        good = np.flatnonzero(total < -0.001)
        good = good[np.argsort(total[good], kind="stable")]
        made: int = instance.loops.run.rotate(
            instance.flat,
            self.tree,
            self.load,
            self._sequence(outs[good]),
            self._sequence(ins[good]),
        )
        return made

    def explore(self, prices: Doubles, most: int, rounds: int, tries: int) -> None:
        """Ejection chains, the swaps first that look best under the prices."""
        instance = self.instance
        room = instance.loops.zeros
        log, groups, region = room(4 * most), room(64), room(256)
        for _ in range(rounds):
            self.view(prices)
            change, below = self.changes()
            good = np.flatnonzero(~below)
            moves = good[np.argsort(change[good], kind="stable")][:tries]
            saved = instance.loops.run.explore(
                instance.flat, self.tree, self._sequence(moves), most, log, groups, region
            )
            if not saved:
                break

    def anneal(self, rounds: int, seed: int, heat: int) -> Longs:
        """Edges of the best tree that random swaps lead to."""
        instance = self.instance
        made = instance.loops
        best = made.sequence(longs(self.tree.edge))
        room = made.zeros(48), made.zeros(64), made.zeros(64)
        made.run.anneal(instance.flat, self.tree, rounds, heat, seed, best, *room)
        return longs(best)

    def _sequence(self, array: Longs) -> Any:
        return self.instance.loops.sequence(array)
