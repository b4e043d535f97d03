"""What is stored already stays where it is, unless moving it saves enough.

A plan of everything takes time that grows with the repository. So it is made again when a tenth
more tensors are stored than at the last one, or other limits are asked for; in between, only new
tensors find their place.
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

WORTH = 0.01  # of the bytes that a plan stores again, or of all if it moves old ones; else not
GROWN = 1.1  # times the tensors of the last whole plan, and the next is due
MEMORY = "whole-plan.json"


def placed(layout: Layout, limits: Planned, scheme: Scheme) -> Planned | None:
    """What there is, with new tensors in their best place if that pays; None if that breaks
    the budgets of `limits`."""
    graph = layout.graph
    now = StoragePlan(layout.placed(set()))
    keeps = now.keeps(graph, limits.budgets, scheme)
    fresh = layout.fresh()
    best = _only(layout, limits, scheme, fresh) if len(fresh) else None
    if best is None:
        return replace(limits, plan=now) if keeps else None
    moved = np.flatnonzero(best.plan.edges != now.edges)
    raw = sum(layout.raw(vertex) for vertex in moved.tolist())
    saved = now.storage(graph) - best.plan.storage(graph)
    return replace(limits, plan=now) if keeps and saved <= WORTH * raw else best


def better(layout: Layout, whole: Planned, still: Planned | None) -> Planned:
    """The whole plan where it saves enough, else the one that moves less."""
    if still is None:
        return whole
    least = (1 - WORTH) * still.plan.storage(layout.graph)
    return whole if whole.plan.storage(layout.graph) < least else still


def _only(layout: Layout, limits: Planned, scheme: Scheme, open_: Longs) -> Planned | None:
    """The best plan that moves these vertices alone; None if the others break the budgets."""
    graph = layout.graph
    free = np.zeros(graph.vertices, np.bool_)
    free[open_] = True
    ways = np.flatnonzero(free[graph.heads] | layout.kept())
    part = replace(
        graph,
        tails=graph.tails[ways],
        heads=graph.heads[ways],
        kinds=[graph.kinds[edge] for edge in ways.tolist()],
        storage=graph.storage[ways],
        recreation=graph.recreation[ways],
    )
    try:
        made = make_plan(part, limits.budgets, scheme, "best", max_depth=MAX_DEPTH)
    except (Infeasible, UsageError):  # budgets, or the length of chains
        return None
    edges = made.plan.edges.copy()
    edges[1:] = ways[edges[1:]]
    return replace(limits, plan=StoragePlan(edges))


def recent(folder: Path, wish: str, layout: Layout) -> bool:
    """Whether a whole plan for the same wish is carried out, and few tensors came since."""
    try:
        known = json.loads((folder / MEMORY).read_bytes())
        return bool(known["wish"] == wish and len(layout.matrices) <= GROWN * known["tensors"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def remember(folder: Path, wish: str, layout: Layout) -> None:
    """A whole plan is carried out. Where this cannot be written, the next plan is whole, too."""
    with contextlib.suppress(OSError):
        fresh = folder / f"{MEMORY}.new"
        fresh.write_bytes(dumps({"wish": wish, "tensors": len(layout.matrices)}))
        fresh.replace(folder / MEMORY)
