"""The default: prices on recreation, local search between them, repair and polish.

1. Least storage, by Edmonds, on the edges that a plan within the budgets can have: if that keeps
   the budgets it is the optimum.
2. A microsecond of a snapshot gets a price in bytes, and a tree of low storage plus priced
   recreation is searched for. Snapshots over budget get dearer, others cheaper; again and again.
   Every fourth tree is brought within the budgets by PAS-MT's swaps.
3. The smallest of these is polished by ejection chains: a swap that saves storage, paid for by
   swaps that cost less. Where budgets bind each matrix alone, random swaps and chains again. Of
   few matrices two are polished, with more random swaps.
4. The paper's plans count where they happen to be smaller.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.kinds import Longs
from dlv.pas.solvers.compiled import longs
from dlv.pas.solvers.instance import Doubles, Instance, along, by, joined, prices_of, spans
from dlv.pas.solvers.mst import arborescence
from dlv.pas.solvers.paper import solve_mt, solve_pt
from dlv.pas.solvers.tree import Tree
from dlv.pas.storage_graph import Budgets, Scheme, StorageGraph, StoragePlan

LESS = -0.001  # a change counts from here down: sums of prices are not exact


class View:
    """A tree under prices, in whole arrays, and what a swap to each edge would change."""

    def __init__(self, instance: Instance, tree: Tree, prices: Doubles) -> None:
        tails, heads = instance.tails, instance.heads
        self.prices, self.edge = prices, longs(tree.edge)
        chosen = self.edge[1:]
        self.parent, self.held, step = (np.zeros(len(self.edge), np.int64) for _ in range(3))
        self.parent[1:], self.held[1:] = tails[chosen], instance.storage[chosen]
        step[1:] = instance.recreation[chosen]
        self.distance, depth = along(self.parent, step, np.sign(self.edge + 1))
        self.start, self.end, self.load = spans(self.parent, depth, prices)
        self.shift = self.distance[tails] + instance.recreation - self.distance[heads]
        self.more = instance.storage - self.held[heads]
        self.change: Doubles = np.add(self.more, self.load[heads] * self.shift, dtype=np.float64)
        # Whether the tail of an edge lies below its head.
        place, top = self.start[tails], self.start[heads]
        self.below: NDArray[np.bool_] = (place >= top) & (place < self.end[heads])


class Search:
    """A tree, and the swaps that would make it better under prices.

    Which swaps promise anything is found for all edges at once; they are then judged again one
    by one, the best first, as each changes the tree.
    """

    def __init__(self, instance: Instance, tree: Tree) -> None:
        self.instance = instance
        self.tree = tree
        self.seen: View | None = None  # as long as the tree is as it was
        self.in_start, self.in_edge = by(instance.heads, instance.graph.vertices)

    def view(self, prices: Doubles) -> View:
        if self.seen is None or self.seen.prices is not prices:
            self.seen = View(self.instance, self.tree, prices)
        return self.seen

    def settle(self, prices: Doubles, passes: int) -> None:
        instance = self.instance
        for _ in range(passes):
            seen = self.view(prices)
            moves = best_first(seen.change, ~seen.below)
            made = 0
            if len(moves):
                loads = self._sequence(seen.load)
                made = instance.loops.run.settle(
                    instance.flat, self.tree, loads, self._sequence(moves)
                )
            self.seen = None if made else seen
            made += self.rotate(prices) if made < 50 else 0
            if made == 0:
                break

    def rotate(self, prices: Doubles) -> int:
        """Turn around edges of which the tail lies below the head."""
        instance, seen = self.instance, self.view(prices)
        outs = self._turnable(seen)
        tails = instance.tails[outs]
        counts = self.in_start[tails + 1] - self.in_start[tails]
        offset = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        ins = self.in_edge[np.repeat(self.in_start[tails], counts) + offset]
        outs = np.repeat(outs, counts)
        start, end = seen.start, seen.end
        source, top, low = instance.tails[ins], instance.heads[outs], instance.tails[outs]
        outside = (start[source] < start[top]) | (start[source] >= end[top])
        ins, outs, source, top, low = (a[outside] for a in (ins, outs, source, top, low))
        distance, load, held = seen.distance, seen.load, seen.held
        there = distance[source] + instance.recreation[ins]
        total = instance.storage[ins] - held[low] + load[low] * (there - distance[low])
        total += instance.storage[outs] - held[top]
        total += (load[top] - load[low]) * (there + instance.recreation[outs] - distance[top])
        moves = best_first(total, np.ones(len(total), np.bool_))
        if not len(moves):
            return 0
        turned = self._sequence(outs[moves]), self._sequence(ins[moves])
        loads = self._sequence(load)
        made: int = instance.loops.run.rotate(instance.flat, self.tree, loads, *turned)
        self.seen = None if made else seen
        return made

    def _turnable(self, view: View) -> Longs:
        """Edges that to turn around may pay: their tail goes out by an edge that changes no less
        than its best one, and is there no sooner than on its shortest path."""
        instance, outs = self.instance, np.flatnonzero(view.below)
        change = view.change.copy()
        change[outs] = change[view.edge[1:]] = np.inf  # no way out
        least = np.full(len(view.edge), np.inf)
        least[1:] = np.minimum.reduceat(change[self.in_edge], self.in_start[1:-1])
        top, low = instance.heads[outs], instance.tails[outs]
        there = instance.fastest_distance[low] + instance.recreation[outs]
        total = least[low] + (instance.storage[outs] - view.held[top])
        total += (view.load[top] - view.load[low]) * (there - view.distance[top])
        turnable: Longs = outs[total < 1]
        return turnable

    def explore(self, prices: Doubles, most: int, rounds: int, tries: int) -> None:
        """Ejection chains, the swaps first that look best under the prices; after the first round
        only those around which something moved."""
        instance, tree = self.instance, self.tree
        room = instance.loops.zeros
        log, groups, region = room(4 * most), room(64), room(256)
        looked = room(instance.graph.vertices)
        stirred = np.ones(instance.graph.vertices, np.bool_)
        for _ in range(rounds):
            seen = self.view(prices)
            stirring = stirred[instance.heads] | stirred[instance.tails]
            good = ~seen.below & stirring & self._payable(seen)
            moves = best_first(seen.change, good, np.inf)[:tries]
            totals = longs(tree.total)
            looked[:] = room(len(looked))
            saved = instance.loops.run.explore(
                instance.flat, tree, self._sequence(moves), most, log, groups, region, looked
            )
            if not saved:
                break
            self.seen = None
            stirred = (seen.edge != longs(tree.edge)) | (seen.distance != longs(tree.distance))
            members, sizes = joined(instance.groups)
            stirred[members[np.repeat(totals != longs(tree.total), sizes)]] = True

    def _payable(self, view: View) -> NDArray[np.bool_]:
        """Which swaps another swap may pay for: where one alone breaks the budget of its head, and
        what it saves does not buy that time at the best rate in that group, none does."""
        instance, shift, more = self.instance, view.shift, view.more
        tails, heads = instance.tails, instance.heads
        # Bytes for a microsecond: the best of each vertex and those above it, of each group.
        rate = np.full(len(view.edge), np.inf)
        faster = np.flatnonzero(shift < 0)
        np.minimum.at(rate, heads[faster], np.maximum(more[faster], 0) / -shift[faster])
        for _ in range(2):
            rate = np.minimum(rate, rate[view.parent])
        members, sizes = joined(instance.groups)
        group = np.repeat(np.arange(len(sizes)), sizes)
        cheapest = np.full(len(sizes), np.inf)
        np.minimum.at(cheapest, group, rate[members])
        spare = instance.budgets - longs(self.tree.total)
        possible: NDArray[np.bool_] = view.edge[heads] != np.arange(len(heads))
        starts, order = by(members, len(view.edge))
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
        self.seen = None
        return longs(best)

    def _sequence(self, array: Longs | Doubles) -> Any:
        return self.instance.loops.sequence(array)


def best_first(change: Doubles, good: NDArray[np.bool_], below: float = LESS) -> Longs:
    """Positions of the changes below a limit among the good ones, the least first."""
    found = np.flatnonzero(good & (change < below))
    return found[np.argsort(change[found], kind="stable")]


ITERATIONS = 24
ALONE = 8  # where each of many matrices has a budget of its own: later trees are seldom smaller
REPAIR_EVERY = 4
MOST = 8  # swaps in a chain
TRIES = 6000  # chains in a round, those first that look best
MANY = 200_000  # matrices, of which each iteration takes a second or more
ANNEAL = 5000  # random swaps, where there are few enough matrices for them to matter
FEW = 1000
LOOKS = 200_000  # at members of a group, each of which a random swap may have to look at
RIVALS = 100_000  # edges up to which the paper's plans are looked at, too
# Random swaps of many matrices, where each has a budget of its own: a third of a per cent less.
# Sums of many leave chains little to miss. Few swaps come back from little heat alone.
SHAKE, COLD = 40_000, 32


def solve(graph: StorageGraph, budgets: Budgets, scheme: Scheme) -> StoragePlan:
    instance = Instance(graph, budgets, scheme, prune=True)
    tree = instance.tree(instance.cheapest())
    if np.all(longs(tree.total) <= instance.budgets):
        return StoragePlan(instance.chosen(tree))
    plans = [StoragePlan(instance.chosen(instance.tree(priced(instance))))]
    if graph.edges <= RIVALS:  # elsewhere they are far behind, and take long
        plans += [rival(graph, budgets, scheme) for rival in (solve_mt, solve_pt)]
    return min(plans, key=lambda plan: plan.storage(graph))


def priced(instance: Instance) -> Longs:
    """In-edges of the best tree that keeps the budgets."""
    price = np.full(len(instance.budgets), usual_price(instance))
    alone = all(len(group) == 1 for group in instance.groups)
    few = instance.graph.vertices <= FEW
    search = Search(instance, instance.tree(linear(instance, price)))
    plans: list[tuple[int, int, Longs, Doubles]] = []
    many = instance.graph.vertices > MANY
    iterations = ALONE if alone and not few else ITERATIONS
    tries = max(TRIES, instance.graph.vertices // 10)
    for iteration in range(iterations):
        weights = prices_of(instance, price)
        search.settle(weights, 2 if many and iteration else 4)
        if iteration % REPAIR_EVERY == REPAIR_EVERY - 1:
            repaired = instance.tree(longs(search.tree.edge))
            instance.satisfy(repaired)
            plans.append((instance.size(repaired), iteration, longs(repaired.edge), weights))
        used = longs(search.tree.total) / np.maximum(instance.budgets, 1)
        price = price * np.clip(used, 0.3, 3) ** (1.2 / (1 + iteration / 8))
    plans.sort(key=lambda plan: plan[:2])
    best: tuple[int, Longs] | None = None
    for _, _, edges, weights in plans[: 2 if few else 1]:
        polished = Search(instance, instance.tree(edges))
        polished.explore(weights, MOST, 8, tries)
        if few:
            largest = max(len(group) for group in instance.groups)
            rounds = min(ANNEAL, 250 * instance.graph.vertices, LOOKS // largest)
            usual = instance.size(polished.tree) // instance.graph.vertices
            for seed, heat in enumerate((usual, usual // 4, usual // 16), 1):
                found = polished.anneal(rounds, seed, heat)
                polished = Search(instance, instance.tree(found))
            polished.explore(weights, MOST, 8, tries)
        elif alone:
            usual = instance.size(polished.tree) // instance.graph.vertices
            found = polished.anneal(SHAKE, 1, usual // COLD)
            polished = Search(instance, instance.tree(found))
            polished.explore(weights, MOST, 8, tries)
        size = instance.size(polished.tree)
        if best is None or size < best[0]:
            best = size, longs(polished.tree.edge)
    assert best is not None
    return best[1]


def linear(instance: Instance, price: Doubles) -> Longs:
    """A first tree: every base as fast as it can be, recreation at its price."""
    weights = prices_of(instance, price)[instance.heads]
    soonest = instance.fastest_distance[instance.tails] + instance.recreation
    costs = (instance.storage + weights * soonest).astype(np.int64)
    return arborescence(
        instance.graph.vertices, instance.tails, instance.heads, costs, instance.recreation
    )


def usual_price(instance: Instance) -> float:
    """Bytes that a microsecond is worth where one delta takes the place of a whole matrix."""
    heads, fastest = instance.heads, instance.fastest
    whole = instance.storage[fastest[heads]]
    saved = whole - instance.storage
    soonest = instance.fastest_distance[instance.tails] + instance.recreation
    slower = soonest - instance.fastest_distance[heads]
    good = (saved > 0) & (slower > 0)
    return float(np.median(saved[good] / slower[good])) if np.any(good) else 1.0
