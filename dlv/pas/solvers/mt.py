"""PAS-MT of the ModelHub paper (algorithm 1): from the least storage, swap until budgets are kept.

As printed: T = MST; while a snapshot is over its budget take the swap of one in-edge that wins
most recreation in such snapshots per byte of storage (eq. 1). Where this differs:

- gains wait in a heap and are judged again when they come up, instead of all at every step;
- a swap that wins time and costs no storage goes first (the paper leaves its formula for
  denominators of zero and below unsaid);
- with parallel retrieval a snapshot is a limit on each of its matrices, and eq. 1 on these stands
  for eq. 2: a matrix that is fast enough gains nothing by being faster;
- the printed loop can end with a budget unmet though a plan exists, as each swap must help by
  itself: the members of such a snapshot then go on their shortest paths.
"""

from __future__ import annotations

from dlv.pas.solvers.instance import Instance
from dlv.pas.storage_graph import Budgets, Scheme, StorageGraph
from dlv.pas.storage_plan import StoragePlan


def solve(graph: StorageGraph, budgets: Budgets, scheme: Scheme) -> StoragePlan:
    instance = Instance(graph, budgets, scheme, prune=False)
    tree = instance.tree(instance.cheapest())
    instance.satisfy(tree)
    return StoragePlan(instance.chosen(tree))
