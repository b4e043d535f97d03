"""Solvers by name, and the one way to a plan: budgets checked first, the plan checked last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dlv.errors import UsageError, nearest
from dlv.pas.solvers import best, mst, spt
from dlv.pas.solvers.instance import Instance
from dlv.pas.solvers.paper import solve_last, solve_mt, solve_pt
from dlv.pas.storage_graph import Budgets, Scheme, StorageGraph
from dlv.pas.storage_plan import Infeasible, StoragePlan, shortfalls

Solver = Callable[[StorageGraph, Budgets, Scheme], StoragePlan]

SOLVERS: dict[str, Solver] = {
    "best": best.solve,
    "mt": solve_mt,
    "pt": solve_pt,
    "last": solve_last,
    "mst": mst.solve,
    "spt": spt.solve,
}
REFERENCE = {"mst"}  # shows what storage could be without budgets, and so may break them


@dataclass(frozen=True)
class Planned:
    plan: StoragePlan
    budgets: list[int | None]  # as they were kept: raised where they were clamped
    minima: list[int]  # the fastest possible recreation of each snapshot


def make_plan(
    graph: StorageGraph,
    budgets: Budgets,
    scheme: Scheme = "independent",
    algorithm: str = "best",
    *,
    clamp: bool = False,
    max_depth: int | None = None,
) -> Planned:
    """A plan within the budgets, or Infeasible; `clamp` raises a budget to what is possible.

    `mst` ignores budgets, so that its plan can be compared with. Of deltas one on the other more
    than `max_depth` (the first matrix counts, too) are cut, with as little storage as may be.
    """
    solver = SOLVERS.get(algorithm)
    if solver is None:
        raise UsageError(
            f"there is no algorithm `{algorithm}`", did_you_mean=nearest(algorithm, SOLVERS)
        )
    minima = spt.minima(graph, scheme)
    short = shortfalls(budgets, minima)
    if short and not clamp and algorithm not in REFERENCE:
        raise Infeasible(short)
    kept = list(budgets)
    for fault in short:
        kept[fault.snapshot] = fault.minimum
    plan = solver(graph, kept, scheme)
    if max_depth is not None:
        limits = [None] * len(kept) if algorithm in REFERENCE else kept
        plan = cut_chains(graph, plan, limits, scheme, max_depth)
    plan.check(graph)
    return Planned(plan, kept, minima)


def cut_chains(
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
    fastest = StoragePlan(spt.shortest(graph)[1])
    if fastest.depths(graph).max(initial=0) <= most:
        return fastest
    raise UsageError(
        f"no plan within the budgets was found that stores vertex {left} with {most} edges",
        hint="allow longer chains, or more time",
    )
