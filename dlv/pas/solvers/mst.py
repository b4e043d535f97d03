"""The least storage of all plans: a minimum spanning arborescence, by Chu-Liu and Edmonds.

All vertices choose their cheapest in-edge at once; the cycles that this makes are contracted, what
hangs from the root already becomes part of it, and the rest chooses again: each round in whole
arrays, of which little is left after a few. Costs are pairs (bytes, microseconds), compared
and subtracted as pairs, so that of equally small plans one with less recreation is found and no
tie-break ever costs a byte. Deltas are not symmetric: an undirected tree is no plan.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlv.kinds import Longs
from dlv.pas.storage_graph import Budgets, Scheme, StorageGraph, StoragePlan, refuse_unreachable

MOST = np.iinfo(np.int64).max


class Round(NamedTuple):
    """What is needed to open the cycles of one round again."""

    heads: Longs  # of the edges in this round
    best: Longs  # chosen edge of each vertex, -1 for the root
    label: Longs  # vertex -> vertex of the next round
    origins: Longs  # edge of the next round -> edge of this one


def solve(graph: StorageGraph, _budgets: Budgets, _scheme: Scheme) -> StoragePlan:
    """Budgets are not looked at."""
    refuse_unreachable(graph)
    edges = np.flatnonzero(graph.usable)
    costs = graph.storage[edges], graph.recreation[edges]
    found = arborescence(graph.vertices, graph.tails[edges], graph.heads[edges], *costs)
    found[1:] = edges[found[1:]]
    return StoragePlan(found)


def arborescence(count: int, tails: Longs, heads: Longs, first: Longs, second: Longs) -> Longs:
    """The in-edge of each vertex, for costs (first, second); all vertices must be reachable."""
    rounds: list[Round] = []
    ids = np.arange(len(tails))
    while True:
        best = cheapest(count, heads, first, second, ids)
        parent = np.zeros(count, np.int64)
        parent[1:] = tails[best[1:]]
        cycle, rooted = cycles(parent)
        if np.all(rooted):
            break
        # What contracts takes its smallest member's place in the order; the root stays 0.
        leader = np.where(cycle >= 0, cycle, np.arange(count))
        leader[rooted] = 0
        new = np.cumsum(leader == np.arange(count)) - 1
        label = new[leader]
        into = label[heads]
        kept = np.flatnonzero((label[tails] != into) & (into != 0))
        first = first[kept] - first[best[heads[kept]]]
        second = second[kept] - second[best[heads[kept]]]
        rounds.append(Round(heads, np.where((cycle >= 0) | rooted, best, -1), label, kept))
        tails, heads, ids = label[tails[kept]], label[heads[kept]], ids[kept]
        count = int(new[-1]) + 1
    for now in reversed(rounds):
        chosen = now.best.copy()
        opened = now.origins[best[1:]]  # the edges of the next round, in this round's numbers
        chosen[now.heads[opened]] = opened
        best = chosen
    return best


def cheapest(count: int, heads: Longs, first: Longs, second: Longs, ids: Longs) -> Longs:
    """The in-edge of each vertex with the least (first, second, id); -1 for the root."""
    left = np.flatnonzero(heads)
    for costs in (first, second, ids):
        least = np.full(count, MOST)
        np.minimum.at(least, heads[left], costs[left])
        left = left[costs[left] == least[heads[left]]]
    best = np.full(count, -1, np.int64)
    best[heads[left]] = left
    return best


def cycles(parent: Longs) -> tuple[Longs, NDArray[np.bool_]]:
    """For each vertex that lies on a cycle the cycle's smallest vertex, for others -1; and which
    hang from the root, by whatever is between."""
    count = len(parent)
    up, least, steps = parent, np.arange(count), 1
    least = np.minimum(least, least[parent])
    while steps < count:
        least = np.minimum(least, least[up])
        up = up[up]
        steps *= 2
    found = np.full(count, -1, np.int64)
    ends = np.unique(up)
    ends = ends[ends != 0]
    found[ends] = least[ends]
    return found, up == 0
