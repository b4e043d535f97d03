"""LAST of Khuller, Raghavachari and Young: the baseline, with a limit on each matrix alone.

A walk over the minimum spanning tree, parents first, relaxing its edges; a vertex that comes out
slower than its limit is put on its shortest path. Where this differs from what they print: edges
are directed, so the walk never relaxes an edge backwards, and limits are given per vertex instead
of as one factor. It knows no groups: as in the ModelHub paper a snapshot's budget is split among
its matrices by size. Here what is split is the slack above the fastest possible, so that the
split of a feasible budget is feasible.
"""

from __future__ import annotations

import numpy as np

from dlv.kinds import Longs
from dlv.pas.solvers.instance import Instance, joined
from dlv.pas.storage_graph import UNLIMITED, Budgets, Scheme, StorageGraph
from dlv.pas.storage_plan import StoragePlan


def solve(graph: StorageGraph, budgets: Budgets, scheme: Scheme) -> StoragePlan:
    instance = Instance(graph, budgets, scheme, prune=False)
    tree = instance.tree(instance.cheapest())
    made = instance.loops
    relaxed = made.sequence(np.full(graph.vertices, UNLIMITED))
    made.run.last(
        instance.flat,
        tree,
        instance.fastest_sequence,
        made.sequence(limits(instance)),
        relaxed,
        instance.path,
    )
    return StoragePlan(instance.chosen(tree))


def limits(instance: Instance) -> Longs:
    """Of each vertex: its fastest recreation and a share of its groups' slack by its size."""
    members, sizes = joined(instance.groups)
    found = np.full(instance.graph.vertices, UNLIMITED)
    if not len(members):
        return found
    ends, fastest = np.cumsum(sizes), instance.fastest_distance
    # How large a matrix is, the graph says by what it takes to store on its fastest path.
    edges = instance.fastest[members]
    weights = np.ones(len(members))
    weights[edges >= 0] = np.maximum(instance.storage[edges[edges >= 0]], 1)
    sums = np.concatenate([np.zeros(1), np.cumsum(weights)])
    time = np.concatenate([np.zeros(1, np.int64), np.cumsum(fastest[members])])
    slack = instance.budgets - (time[ends] - time[ends - sizes])
    share = weights / np.repeat(sums[ends] - sums[ends - sizes], sizes)
    extra = np.floor(np.minimum(share, 1.0) * np.repeat(slack, sizes) * (1 - 1e-9)).astype(np.int64)
    np.minimum.at(found, members, fastest[members] + extra)
    return found
