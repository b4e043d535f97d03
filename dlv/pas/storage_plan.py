"""Storage plans: an in-edge for every matrix, what that costs, and whether it keeps the budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlv.errors import Damaged, DlvError, UsageError
from dlv.kinds import Longs
from dlv.pas.storage_graph import Budgets, Scheme, StorageGraph, whole

MAX_DEPTH = 32  # deltas are read one after the other; a longer chain is cut


@dataclass(frozen=True, eq=False)
class StoragePlan:
    """`edges[v]` is the index of the edge by which vertex v is stored; -1 for vertex 0."""

    edges: Longs

    @classmethod
    def of(cls, graph: StorageGraph, chosen: Sequence[int] | Longs) -> StoragePlan:
        """From edge indices in any order, checked."""
        chosen = np.asarray(chosen, np.int64)
        wrong = np.flatnonzero((chosen < 0) | (chosen >= graph.edges))
        if len(wrong):
            raise Damaged(f"the plan names edge {chosen[wrong[0]]}, which does not exist")
        edges = np.full(graph.vertices, -1, np.int64)
        edges[graph.heads[chosen]] = chosen
        counts = np.bincount(graph.heads[chosen], minlength=graph.vertices)
        counts[0] += 1
        wrong = np.flatnonzero(counts != 1)
        if len(wrong):
            vertex = int(wrong[0])
            if vertex == 0:
                raise Damaged("the plan has an edge into the empty matrix")
            raise Damaged(f"the plan has {counts[vertex]} edges into vertex {vertex}, not one")
        plan = cls(edges)
        plan.check(graph)
        return plan

    def as_json(self) -> dict[str, Any]:
        return {"edges": self.edges[1:].tolist()}

    def parents(self, graph: StorageGraph) -> Longs:
        """The base of every vertex; 0 for what is materialised, and for vertex 0."""
        parents = np.zeros(graph.vertices, np.int64)
        parents[1:] = graph.tails[self.edges[1:]]
        return parents

    def check(self, graph: StorageGraph) -> None:
        """One edge into every vertex but 0, and no cycle; Damaged otherwise."""
        if len(self.edges) != graph.vertices or np.any(self.edges[1:] < 0):
            raise Damaged("the plan does not store every matrix")
        if not np.array_equal(graph.heads[self.edges[1:]], np.arange(1, graph.vertices)):
            raise Damaged("the plan stores a matrix by another one's edge")
        up, steps = self.parents(graph), 1
        while steps < graph.vertices and np.any(up):
            up = up[up]
            steps *= 2
        if np.any(up):
            vertex = int(np.flatnonzero(up)[0])
            raise Damaged("the plan has a cycle", why=f"vertex {vertex} is never reached from 0")

    def storage(self, graph: StorageGraph) -> int:
        """Bytes."""
        return int(graph.storage[self.edges[1:]].sum())

    def recreation(self, graph: StorageGraph) -> Longs:
        """Microseconds from nothing to each vertex."""
        return self._along(graph, graph.recreation)

    def depths(self, graph: StorageGraph) -> Longs:
        """Edges from the empty matrix to each vertex: 1 for what is materialised."""
        return self._along(graph, np.ones(graph.edges, np.int64))

    def _along(self, graph: StorageGraph, costs: Longs) -> Longs:
        """Sums along the path to each vertex, all paths halved at once."""
        total = np.zeros(graph.vertices, np.int64)
        total[1:] = costs[self.edges[1:]]
        up, steps = self.parents(graph), 1
        while steps < graph.vertices and np.any(up):
            total = total + total[up]
            up = up[up]
            steps *= 2
        return total

    def snapshot_costs(self, graph: StorageGraph, scheme: Scheme) -> list[int]:
        """The recreation cost of each snapshot."""
        return of_snapshots(graph, self.recreation(graph), scheme)

    def keeps(self, graph: StorageGraph, budgets: Budgets, scheme: Scheme) -> bool:
        costs = self.snapshot_costs(graph, scheme)
        return all(b is None or c <= b for c, b in zip(costs, budgets, strict=True))


@dataclass(frozen=True)
class Shortfall:
    """A snapshot whose budget no plan can keep."""

    snapshot: int
    budget: int
    minimum: int


class Infeasible(DlvError):
    """Budgets that no plan keeps; `alpha` times each of them, all could be kept (None: never)."""

    exit_code = 9
    kind = "infeasible"

    def __init__(self, shortfalls: Sequence[Shortfall], hint: str | None = None) -> None:
        self.shortfalls = list(shortfalls)
        zero = any(s.budget == 0 for s in shortfalls)
        self.alpha = None if zero else max(s.minimum / s.budget for s in shortfalls)
        lines = [
            f"snapshot {s.snapshot}: {s.budget} µs asked, {s.minimum} µs is the fastest possible"
            for s in self.shortfalls
        ]
        need = "" if self.alpha is None else f"\nall budgets times {_up(self.alpha)} would do"
        count = f"{len(lines)} budget{'s' if len(lines) > 1 else ''}"
        super().__init__(
            f"no plan keeps {count}", why="\n".join(lines) + need, hint=hint or "raise the budgets"
        )

    def as_json(self) -> dict[str, object]:
        document = super().as_json()
        document["alpha"] = self.alpha
        document["snapshots"] = [
            {"snapshot": s.snapshot, "budget": s.budget, "minimum": s.minimum}
            for s in self.shortfalls
        ]
        return document


def _up(alpha: float) -> str:
    """With three decimals, never rounded down below what works."""
    return f"{-(-alpha * 1000 // 1) / 1000:.3f}"


def of_snapshots(graph: StorageGraph, recreation: Longs, scheme: Scheme) -> list[int]:
    """Costs of snapshots from those of vertices: their sum, or the largest."""
    if scheme == "parallel":
        return [int(recreation[m].max()) if len(m) else 0 for m in graph.snapshots]
    return [int(recreation[m].sum()) for m in graph.snapshots]


def shortfalls(budgets: Budgets, minima: Sequence[int]) -> list[Shortfall]:
    if len(budgets) != len(minima):
        raise UsageError(f"{len(budgets)} budgets were given for {len(minima)} snapshots")
    return [
        Shortfall(number, budget, minimum)
        for number, (budget, minimum) in enumerate(zip(budgets, minima, strict=True))
        if budget is not None and budget < minimum
    ]


def budgets_of(
    minima: Sequence[int],
    alphas: Sequence[float | None],
    absolute: Mapping[int, int] | None = None,
) -> list[int | None]:
    """theta = alpha x the fastest possible; None: unlimited. Absolute budgets go before."""
    if len(alphas) != len(minima):
        raise UsageError(f"{len(alphas)} slacks were given for {len(minima)} snapshots")
    budgets: list[int | None] = []
    for minimum, alpha in zip(minima, alphas, strict=True):
        if alpha is None or alpha == float("inf"):
            budgets.append(None)
        elif not alpha >= 0:
            raise UsageError(f"{alpha} is not a factor of the fastest possible time")
        else:
            budgets.append(int(alpha * minimum))
    for snapshot, budget in (absolute or {}).items():
        budgets[snapshot] = budget
    return budgets


def plan_of(document: Any, graph: StorageGraph, what: str = "plan") -> StoragePlan:
    """A plan file, checked against its graph."""
    if not isinstance(document, dict) or not isinstance(document.get("edges"), list):
        raise Damaged(f"{what} is not a storage plan", why="an object with `edges`")
    return StoragePlan.of(graph, whole(document["edges"], f"{what}: edges"))
