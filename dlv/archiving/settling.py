"""Stored tensors stay as they are unless storing them differently saves enough.

Planning for all tensors takes time that grows with the repository. It is repeated when the number
of tensors has grown by a tenth, or when the user asks for other limits or another effort. In
between, only new tensors are planned.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from dlv.archiving.planning import Layout
from dlv.canonical import dumps
from dlv.errors import UsageError
from dlv.kinds import Longs
from dlv.pas.plan import Planned, make_plan
from dlv.pas.storage_graph import MAX_DEPTH, Infeasible, Scheme, StoragePlan

WORTH = 0.01  # the least saving: of the new tensors' bytes, or of all bytes if old ones move
GROWN = 1.1  # so many times as many tensors as at the last whole plan make the next one due
LAST_PLAN = "whole-plan.json"


def settled_plan(layout: Layout, limits: Planned, scheme: Scheme) -> Planned | None:
    """The plan that moves only new tensors, and those only if it pays.

    None if no such plan keeps the budgets of `limits`.
    """
    graph = layout.graph
    now = StoragePlan(layout.placed(set()))
    keeps = now.keeps(graph, limits.budgets, scheme)
    fresh = layout.fresh()
    best = _plan_moving(layout, limits, scheme, fresh) if len(fresh) else None
    if best is None:
        return replace(limits, plan=now) if keeps else None
    moved = np.flatnonzero(best.plan.edges != now.edges)
    raw = sum(layout.raw(vertex) for vertex in moved.tolist())
    saved = now.storage(graph) - best.plan.storage(graph)
    return replace(limits, plan=now) if keeps and saved <= WORTH * raw else best


def worthwhile_plan(layout: Layout, whole: Planned, settled: Planned | None) -> Planned:
    """The whole plan if it saves enough, otherwise the settled one."""
    if settled is None:
        return whole
    least = (1 - WORTH) * settled.plan.storage(layout.graph)
    return whole if whole.plan.storage(layout.graph) < least else settled


def _plan_moving(layout: Layout, limits: Planned, scheme: Scheme, movable: Longs) -> Planned | None:
    """The best plan that moves only these vertices; None if the others exceed the budgets."""
    graph = layout.graph
    may_move = np.zeros(graph.vertices, np.bool_)
    may_move[movable] = True
    ways = np.flatnonzero(may_move[graph.heads] | layout.current())
    part = replace(
        graph,
        tails=graph.tails[ways],
        heads=graph.heads[ways],
        kinds=[graph.kinds[edge] for edge in ways.tolist()],
        storage=graph.storage[ways],
        recreation=graph.recreation[ways],
    )
    try:
        partial = make_plan(part, limits.budgets, scheme, "best", max_depth=MAX_DEPTH)
    except (Infeasible, UsageError):  # budgets, or the length of chains
        return None
    edges = partial.plan.edges.copy()
    edges[1:] = ways[edges[1:]]
    return replace(limits, plan=StoragePlan(edges))


def is_recent(folder: Path, terms: str, layout: Layout) -> bool:
    """Whether the last whole plan had the same terms, and few tensors were added since."""
    try:
        last = json.loads((folder / LAST_PLAN).read_bytes())
        return bool(last["terms"] == terms and len(layout.matrices) <= GROWN * last["tensors"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def remember_plan(folder: Path, terms: str, layout: Layout) -> None:
    """Note that a whole plan was carried out. If that fails, the next plan is whole, too."""
    with contextlib.suppress(OSError):
        fresh = folder / f"{LAST_PLAN}.new"
        fresh.write_bytes(dumps({"terms": terms, "tensors": len(layout.matrices)}))
        fresh.replace(folder / LAST_PLAN)
