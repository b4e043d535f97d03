"""The default: prices on recreation, local search between them, repair and polish.

1. Least storage, by Edmonds, on the edges that a plan within the budgets can have: if that keeps
   the budgets it is the optimum.
2. A microsecond of a snapshot gets a price in bytes, and a tree of low storage plus priced
   recreation is searched for. Snapshots over budget get dearer, others cheaper; again and again.
   Every fourth tree is brought within the budgets by PAS-MT's swaps.
3. The smallest of these is polished by ejection chains: a swap that saves storage, paid for by
   swaps that cost less. Where budgets bind each matrix alone, random swaps and chains again. Of
   few matrices two are polished, with more random swaps.
"""

from __future__ import annotations

import numpy as np

from dlv.kinds import Longs
from dlv.pas.solvers.compiled import longs
from dlv.pas.solvers.instance import Instance, prices_of
from dlv.pas.solvers.mst import arborescence
from dlv.pas.solvers.numbering import Doubles
from dlv.pas.solvers.priced import Search
from dlv.pas.storage_graph import Budgets, Scheme, StorageGraph
from dlv.pas.storage_plan import StoragePlan

ITERATIONS = 24
ALONE = 8  # where each of many matrices has a budget of its own: later trees are seldom smaller
REPAIR_EVERY = 4
MOST = 8  # swaps in a chain
TRIES = 6000  # chains in a round, those first that look best
ANNEAL = 5000  # random swaps, where there are few enough matrices for them to matter
FEW = 1000
# Random swaps of many matrices, where each has a budget of its own: a third of a per cent less.
# Sums of many leave chains little to miss. Few swaps come back from little heat alone.
SHAKE, COLD = 40_000, 32


def solve(graph: StorageGraph, budgets: Budgets, scheme: Scheme) -> StoragePlan:
    instance = Instance(graph, budgets, scheme, prune=True)
    tree = instance.tree(instance.cheapest())
    if np.all(longs(tree.total) <= instance.budgets):
        return StoragePlan(instance.chosen(tree))
    found = priced(instance)
    return StoragePlan(instance.chosen(instance.tree(found)))


def priced(instance: Instance) -> Longs:
    """In-edges of the best tree that keeps the budgets."""
    price = np.full(len(instance.budgets), usual_price(instance))
    alone = all(len(group) == 1 for group in instance.groups)
    few = instance.graph.vertices <= FEW
    search = Search(instance, instance.tree(linear(instance, price)))
    plans: list[tuple[int, int, Longs, Doubles]] = []
    for iteration in range(ALONE if alone and not few else ITERATIONS):
        weights = prices_of(instance, price)
        search.settle(weights, 4)
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
        polished.explore(weights, MOST, 8, TRIES)
        if few:
            rounds = min(ANNEAL, 250 * instance.graph.vertices)
            usual = instance.size(polished.tree) // instance.graph.vertices
            for seed, heat in enumerate((usual, usual // 4, usual // 16), 1):
                found = polished.anneal(rounds, seed, heat)
                polished = Search(instance, instance.tree(found))
            polished.explore(weights, MOST, 8, TRIES)
        elif alone:
            usual = instance.size(polished.tree) // instance.graph.vertices
            found = polished.anneal(SHAKE, 1, usual // COLD)
            polished = Search(instance, instance.tree(found))
            polished.explore(weights, MOST, 8, TRIES)
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
