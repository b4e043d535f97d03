"""PAS-PT of the ModelHub paper (algorithm 2): a tree grown by its cheapest edges.

An edge may add its head if the groups of the head still fit their budgets, with actual times for
what is in the tree and the fastest possible ones for the rest; vertices already in the tree move
below the new one if that is smaller and no slower. Vertices that no edge could add are attached
at the end, and the tree is adjusted with PAS-MT's swaps. Where this differs from what is printed:

- the estimate for what is outside is the shortest path, not the direct edge from the empty
  matrix, which may not exist and is no lower bound where a delta is faster;
- what was left over goes on its shortest path for the same reason;
- a base that is refused now is refused for good: estimates only grow, but for the few that an
  inner swap lowers.
"""

from __future__ import annotations

import numpy as np

from dlv.pas.solvers.instance import Instance
from dlv.pas.storage_graph import Budgets, Scheme, StorageGraph
from dlv.pas.storage_plan import StoragePlan


def solve(graph: StorageGraph, budgets: Budgets, scheme: Scheme) -> StoragePlan:
    instance = Instance(graph, budgets, scheme, prune=False)
    made = instance.loops
    # From the fastest tree on: what is not in the tree yet counts with its fastest time.
    tree = instance.tree(instance.fastest)
    inside = made.zeros(graph.vertices)
    made.run.grow(instance.flat, tree, inside)
    missing = np.flatnonzero(np.array(inside) == 0)
    edges = np.array(tree.edge)
    edges[missing] = instance.fastest[missing]
    tree = instance.tree(edges)
    instance.satisfy(tree)
    return StoragePlan(instance.chosen(tree))
