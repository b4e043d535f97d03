"""The solvers that the ModelHub paper describes or compares with: PAS-MT, PAS-PT and LAST."""

from __future__ import annotations

import numpy as np

from dlv.kinds import Longs
from dlv.pas.solvers.instance import Instance, joined
from dlv.pas.storage_graph import UNLIMITED, Budgets, Scheme, StorageGraph, StoragePlan


def solve_mt(graph: StorageGraph, budgets: Budgets, scheme: Scheme) -> StoragePlan:
    """Plan of PAS-MT (algorithm 1): from the least storage, swap until budgets are kept.

    As printed: T = MST; while a snapshot is over its budget take the swap of one in-edge that
    wins most recreation in such snapshots per byte of storage (eq. 1). Where this differs:

    - gains wait in a heap and are judged again when they come up, instead of all at every step;
    - a swap that wins time and costs no storage goes first (the paper leaves its formula for
      denominators of zero and below unsaid);
    - with parallel retrieval a snapshot is a limit on each of its matrices, and eq. 1 on these
      stands for eq. 2: a matrix that is fast enough gains nothing by being faster;
    - the printed loop can end with a budget unmet though a plan exists, as each swap must help
      by itself: the members of such a snapshot then go on their shortest paths.
    """
    instance = Instance(graph, budgets, scheme, prune=False)
    tree = instance.tree(instance.cheapest())
    instance.satisfy(tree)
    return StoragePlan(instance.chosen(tree))


def solve_pt(graph: StorageGraph, budgets: Budgets, scheme: Scheme) -> StoragePlan:
    """Plan of PAS-PT (algorithm 2): a tree grown by its cheapest edges.

    An edge may add its head if the groups of the head still fit their budgets, with actual times
    for what is in the tree and the fastest possible ones for the rest; vertices already in the
    tree move below the new one if that is smaller and no slower. Vertices that no edge could add
    are attached at the end, and the tree is adjusted with PAS-MT's swaps. Where this differs from
    what is printed:

    - the estimate for what is outside is the shortest path, not the direct edge from the empty
      matrix, which may not exist, and is not a lower bound where a delta is faster;
    - what was left over goes on its shortest path for the same reason;
    - a base that is refused now is refused for good: estimates only grow, but for the few that
      an inner swap lowers.
    """
    instance = Instance(graph, budgets, scheme, prune=False)
    loops = instance.loops
    # From the fastest tree on: what is not in the tree yet counts with its fastest time.
    tree = instance.tree(instance.fastest)
    inside = loops.zeros(graph.vertices)
    loops.run.grow(instance.flat, tree, inside)
    missing = np.flatnonzero(np.array(inside) == 0)
    edges = np.array(tree.edge)
    edges[missing] = instance.fastest[missing]
    tree = instance.tree(edges)
    instance.satisfy(tree)
    return StoragePlan(instance.chosen(tree))


def solve_last(graph: StorageGraph, budgets: Budgets, scheme: Scheme) -> StoragePlan:
    """Plan of LAST (Khuller, Raghavachari and Young), with a limit on each matrix alone.

    A walk over the minimum spanning tree, parents first, relaxing its edges; a vertex that comes
    out slower than its limit is put on its shortest path. Where this differs from what they
    print: edges are directed, so the walk never relaxes an edge backwards, and limits are given
    per vertex instead of as one factor. LAST knows no groups: as in the ModelHub paper a
    snapshot's budget is split among its matrices by size. Here what is split is the slack above
    the fastest possible, so that the split of a feasible budget is feasible.
    """
    instance = Instance(graph, budgets, scheme, prune=False)
    tree = instance.tree(instance.cheapest())
    loops = instance.loops
    relaxed = loops.sequence(np.full(graph.vertices, UNLIMITED))
    loops.run.last(
        instance.flat,
        tree,
        instance.fastest_sequence,
        loops.sequence(limits(instance)),
        relaxed,
        instance.path,
    )
    return StoragePlan(instance.chosen(tree))


def limits(instance: Instance) -> Longs:
    """Limit of each vertex: its fastest recreation and a share, by size, of its groups' slack."""
    members, sizes = joined(instance.groups)
    limit = np.full(instance.graph.vertices, UNLIMITED)
    if not len(members):
        return limit
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
    np.minimum.at(limit, members, fastest[members] + extra)
    return limit
