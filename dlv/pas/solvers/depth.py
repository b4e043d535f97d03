"""Chains of deltas cut to a length: reading follows them one by one, whatever the budgets allow."""

from __future__ import annotations

import numpy as np

from dlv.errors import UsageError
from dlv.pas.solvers.instance import Instance
from dlv.pas.solvers.spt import shortest
from dlv.pas.storage_graph import Budgets, Scheme, StorageGraph
from dlv.pas.storage_plan import StoragePlan


def cut(
    graph: StorageGraph, plan: StoragePlan, budgets: Budgets, scheme: Scheme, most: int
) -> StoragePlan:
    """The plan, or one in which no vertex is further than `most` edges from the empty matrix.

    Every chain that is too long is cut by the swap that costs least storage and keeps all
    budgets. Where there is none, the fastest plan keeps the budgets, and may be shallow enough.
    """
    if most < 1:
        raise UsageError("a chain has at least one edge, that of the matrix itself")
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
    fastest = StoragePlan(shortest(graph)[1])
    if fastest.depths(graph).max(initial=0) <= most:
        return fastest
    raise UsageError(
        f"no plan within the budgets was found that stores vertex {left} with {most} edges",
        hint="allow longer chains, or more time",
    )
