"""Solvers by name, and the one way to a plan: budgets checked first, the plan checked last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dlv.errors import UsageError, nearest
from dlv.pas.solvers import best, depth, last, mst, mt, pt, spt
from dlv.pas.storage_graph import Budgets, Scheme, StorageGraph
from dlv.pas.storage_plan import Infeasible, StoragePlan, shortfalls

Solver = Callable[[StorageGraph, Budgets, Scheme], StoragePlan]

SOLVERS: dict[str, Solver] = {
    "best": best.solve,
    "mt": mt.solve,
    "pt": pt.solve,
    "last": last.solve,
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
        plan = depth.cut(graph, plan, limits, scheme, max_depth)
    plan.check(graph)
    return Planned(plan, kept, minima)
