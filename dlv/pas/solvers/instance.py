"""A graph with its budgets as the loops want it: only useful edges, and budgets on sums alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlv.kinds import Longs
from dlv.pas.solvers import greedy
from dlv.pas.solvers.compiled import Loops, longs, loops
from dlv.pas.solvers.mst import arborescence
from dlv.pas.solvers.spt import shortest
from dlv.pas.solvers.tree import Flat, Tree
from dlv.pas.storage_graph import UNLIMITED, Budgets, Scheme, StorageGraph

Doubles = NDArray[np.float64]


class Links(NamedTuple):
    """Child, sibling, sibling before: -1 for none."""

    first: Longs
    after: Longs
    before: Longs


def along(parent: Longs, *steps: Longs) -> list[Longs]:
    """Sums of the steps on the way to each vertex, all paths halved at once; the root's are 0."""
    sums, up = list(steps), parent
    while np.any(up):
        sums = [one + one[up] for one in sums]
        up = up[up]
    return sums


def ranked(keys: Longs) -> Longs:
    """Vertices by their keys, which are vertices or depths; those with equal ones by number."""
    short = len(keys) <= 1 << 16  # numpy sorts 16 bits in a fifth of the time
    return np.argsort(keys.astype(np.uint16) if short else keys, kind="stable")


def spans(parent: Longs, depth: Longs, prices: Doubles) -> tuple[Longs, Longs, Doubles]:
    """A numbering in which the subtree of v is start[v] to end[v], and what a microsecond on the
    edge into v costs all of that subtree together."""
    count = len(parent)
    size, load = np.ones(count, np.int64), prices.copy()
    order = ranked(depth)
    above, levels = parent[order], np.cumsum(np.bincount(depth))
    for low, high in zip(levels[-2::-1], levels[:0:-1], strict=True):  # the deepest first
        here, bases = order[low:high], above[low:high]
        np.add.at(size, bases, size[here])
        np.add.at(load, bases, load[here])
    # Each vertex begins after its parent and the subtrees of its siblings with smaller numbers.
    order, children = ranked(parent), np.bincount(parent, minlength=count)
    ahead = np.cumsum(size[order]) - size[order]
    first = np.cumsum(children) - children
    start = np.zeros(count, np.int64)
    start[order] = ahead - ahead[first[parent[order]]] + 1
    start[parent == 0] -= count  # the root is the first of its own children
    start[0] = 0
    (start,) = along(parent, start)
    return start, start + size, load


def links(parent: Longs) -> Links:
    """Children in the order of their numbers."""
    found = Links(*(np.full(len(parent), -1, np.int64) for _ in range(3)))
    order = ranked(parent)[1:]  # without the root
    bases = parent[order]
    siblings = bases[1:] == bases[:-1]
    found.after[order[:-1][siblings]] = order[1:][siblings]
    found.before[order[1:][siblings]] = order[:-1][siblings]
    found.first[bases[::-1]] = order[::-1]
    return found


class Instance:
    """Edges are numbered anew: `kept[i]` is the graph's own number of edge i.

    With parallel retrieval a budget binds each member alone, which is the same as a group of
    its own for each; where groups overlap the tightest counts.
    """

    def __init__(
        self, graph: StorageGraph, budgets: Budgets, scheme: Scheme, *, prune: bool
    ) -> None:
        self.graph = graph
        self.fastest_distance, fastest = shortest(graph)
        self.groups, self.budgets = constrained(graph, budgets, scheme)
        self.caps = self._caps()
        self.kept = np.flatnonzero(graph.usable)
        if prune:
            self.kept = self._prune(self.kept, fastest)
        number = np.full(graph.edges + 1, -1, np.int64)
        number[self.kept] = np.arange(len(self.kept))
        self.fastest = number[fastest]
        self.tails, self.heads = graph.tails[self.kept], graph.heads[self.kept]
        self.storage, self.recreation = graph.storage[self.kept], graph.recreation[self.kept]
        self.loops: Loops = loops(len(self.kept))
        self.flat = self._flat()
        self.path = self.loops.zeros(graph.vertices)
        self.fastest_sequence = self.loops.sequence(self.fastest)

    def _caps(self) -> Longs:
        """What a vertex may take at most, if all others of its group were as fast as they can."""
        caps = np.full(self.graph.vertices, UNLIMITED)
        flat, sizes = joined(self.groups)
        if len(flat):
            fastest = self.fastest_distance[flat]
            sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(fastest)])
            ends = np.cumsum(sizes)
            spare = self.budgets - (sums[ends] - sums[ends - sizes])
            np.minimum.at(caps, flat, np.repeat(spare, sizes) + fastest)
        return caps

    def _prune(self, edges: Longs, fastest: Longs) -> Longs:
        """Leave out edges that no plan within the budgets, or no best plan, has."""
        graph = self.graph
        tails, heads = graph.tails[edges], graph.heads[edges]
        storage, recreation = graph.storage[edges], graph.recreation[edges]
        soonest = self.fastest_distance[tails] + recreation
        good = soonest <= self.caps[heads]
        # A way from the empty matrix that is neither larger nor slower is always as good.
        whole = np.flatnonzero((tails == 0) & good)
        order = whole[np.lexsort((whole, recreation[whole], storage[whole], heads[whole]))]
        cheapest = np.full(graph.vertices, -1, np.int64)
        cheapest[heads[order[::-1]]] = order[::-1]
        rival = cheapest[heads]
        beaten = (rival >= 0) & (tails != 0)
        beaten &= (storage >= storage[rival]) & (soonest >= recreation[rival])
        good &= ~beaten
        # Of parallel edges those stay that are smaller than every faster one.
        order = np.flatnonzero(good)
        keys = (order, storage[order], recreation[order], tails[order], heads[order])
        order = order[np.lexsort(keys)]
        pair = np.ones(len(order), np.int64)
        pair[1:] = (np.diff(heads[order]) != 0) | (np.diff(tails[order]) != 0)
        good[order] = running_minimum(np.cumsum(pair), storage[order])
        good[np.searchsorted(edges, fastest[1:])] = True
        return edges[good]

    def _flat(self) -> Flat:
        into, out = by(self.heads, self.graph.vertices), by(self.tails, self.graph.vertices)
        cheapest = np.lexsort((self.storage, self.heads))
        members, sizes = joined(self.groups)
        of = np.repeat(np.arange(len(sizes)), sizes)
        by_vertex = by(members, self.graph.vertices)
        arrays = (
            self.tails,
            self.heads,
            self.storage,
            self.recreation,
            *into,
            cheapest,
            np.append(UNLIMITED, self.storage[cheapest[into[0][1:-1]]]),
            *out,
            self.heads[out[1]],
            by_vertex[0],
            of[by_vertex[1]],
            np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]),
            members,
            self.budgets,
        )
        return Flat(*(self.loops.sequence(array) for array in arrays))

    def tree(self, edges: Longs) -> Tree:
        """From the in-edge of each vertex, in this instance's numbers."""
        parent, step = np.zeros(len(edges), np.int64), np.zeros(len(edges), np.int64)
        parent[1:], step[1:] = self.tails[edges[1:]], self.recreation[edges[1:]]
        (distance,) = along(parent, step)
        siblings = links(parent)
        members, sizes = joined(self.groups)
        sums, ends = np.cumsum(np.append(0, distance[members])), np.cumsum(sizes)
        parent[0] = -1
        columns = edges, parent, distance, *siblings, sums[ends] - sums[ends - sizes]
        return Tree(*(self.loops.sequence(column) for column in columns))

    def chosen(self, tree: Tree) -> Longs:
        """The graph's own numbers of a tree's edges."""
        edges = longs(tree.edge)
        edges[1:] = self.kept[edges[1:]]
        return edges

    def cheapest(self) -> Longs:
        """The in-edges of least storage, budgets aside."""
        costs = self.storage, self.recreation
        return arborescence(self.graph.vertices, self.tails, self.heads, *costs)

    def size(self, tree: Tree) -> int:
        return int(self.storage[longs(tree.edge)[1:]].sum())

    def satisfy(self, tree: Tree) -> None:
        """Keep all budgets, by PAS-MT's swaps; where they get stuck by shortest paths."""
        run, made = self.loops.run, self.loops
        load, unmet = made.zeros(self.graph.vertices), made.zeros(len(self.budgets))
        left = run.unmet(self.flat, tree, load, unmet)
        keys, first = self._offers(tree, longs(load))
        queue = made.sequence(first), made.sequence(keys[first])
        if run.satisfy(self.flat, tree, load, unmet, left, made.sequence(keys), *queue):
            run.hurry(self.flat, tree, self.fastest_sequence, self.path)

    def _offers(self, tree: Tree, load: Longs) -> tuple[NDArray[np.float64], Longs]:
        """What the swap to each edge is worth, and those that are worth anything, the best first:
        as greedy.offer says it of one edge."""
        distance, held = longs(tree.distance), np.zeros(self.graph.vertices, np.int64)
        held[1:] = self.storage[longs(tree.edge)[1:]]
        faster = distance[self.heads] - distance[self.tails] - self.recreation
        found = np.flatnonzero((faster > 0) & (load[self.heads] > 0))
        won = faster[found].astype(np.float64) * load[self.heads[found]]
        more = self.storage[found] - held[self.heads[found]]
        free = more <= 0
        keys = np.full(len(self.kept), greedy.NOTHING)
        keys[found] = np.where(free, -greedy.FREE - won, -won / np.where(free, 1, more))
        return keys, found[np.argsort(keys[found], kind="stable")]


def constrained(graph: StorageGraph, budgets: Budgets, scheme: Scheme) -> tuple[list[Longs], Longs]:
    """Groups whose sum is limited, and the limits."""
    limited = [(m, b) for m, b in zip(graph.snapshots, budgets, strict=True) if b is not None]
    limited = [(members, min(b, UNLIMITED)) for members, b in limited if len(members)]
    if scheme == "parallel":
        caps = np.full(graph.vertices, UNLIMITED)
        for members, budget in limited:
            caps[members] = np.minimum(caps[members], budget)
        alone = np.flatnonzero(caps < UNLIMITED)
        return list(alone.reshape(-1, 1)), caps[alone]
    return [m for m, _ in limited], np.array([b for _, b in limited], np.int64)


def joined(groups: list[Longs]) -> tuple[Longs, Longs]:
    """All members one group after the other, and the groups' sizes."""
    sizes = np.array([len(g) for g in groups], np.int64)
    return np.concatenate(groups) if groups else np.zeros(0, np.int64), sizes


def by(keys: Longs, count: int) -> tuple[Longs, Longs]:
    """Start of each key's run, and positions sorted by key."""
    order = np.argsort(keys, kind="stable")
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(keys, minlength=count))])
    return starts, order


def running_minimum(run: Longs, values: Longs) -> NDArray[np.bool_]:
    """Whether each value is below all before it in its run (runs are numbered from 1 up)."""
    # Later runs get lower offsets, so that one accumulation serves all of them.
    _, ranks = np.unique(values, return_inverse=True)
    shifted = ranks - run * (len(values) + 1)
    least = np.minimum.accumulate(shifted)
    below = np.ones(len(values), np.bool_)
    below[1:] = shifted[1:] < least[:-1]
    return below


def prices_of(instance: Instance, per_group: NDArray[np.float64]) -> NDArray[np.float64]:
    """What a microsecond of each vertex costs: the sum over its groups."""
    members, sizes = joined(instance.groups)
    weights = np.bincount(members, np.repeat(per_group, sizes), instance.graph.vertices)
    return weights.astype(np.float64)
