"""High and low planes as vertices of their own, the high ones with a tighter budget."""

from __future__ import annotations

import numpy as np
import pytest

from dlv.pas.plan import make_plan
from dlv.pas.solvers import spt
from dlv.pas.storage_graph import Infeasible, Scheme, StorageGraph
from tests.conformance.solver import SCHEMES

SNAPSHOTS, LAYERS = 6, 3


def high(snapshot: int, layer: int) -> int:
    return 1 + 2 * (snapshot * LAYERS + layer)


def planes() -> StorageGraph:
    """A chain of snapshots; groups: all planes of each, then the high planes of each."""
    rng = np.random.default_rng(5)
    rows = []
    for snapshot in range(SNAPSHOTS):
        for layer in range(LAYERS):
            for part, v in (("high", high(snapshot, layer)), ("low", high(snapshot, layer) + 1)):
                whole = int(rng.integers(4000, 5000))
                rows.append((0, v, f"materialise:{part}", whole, whole // 10))
                if snapshot:
                    size = whole // 8 if part == "high" else whole * 2 // 3
                    u = v - 2 * LAYERS
                    rows.append((u, v, f"sub:{part}", size, size // 10 + 60))
    both = [
        [v for layer in range(LAYERS) for v in (high(s, layer), high(s, layer) + 1)]
        for s in range(SNAPSHOTS)
    ]
    alone = [[high(s, layer) for layer in range(LAYERS)] for s in range(SNAPSHOTS)]
    return StorageGraph.build(1 + 2 * SNAPSHOTS * LAYERS, rows, both + alone)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("algorithm", ["best", "mt", "pt", "last"])
def test_a_tighter_budget_for_the_high_planes(scheme: Scheme, algorithm: str) -> None:
    graph = planes()
    minima = spt.minima(graph, scheme)
    loose: list[int | None] = [3 * m for m in minima[:SNAPSHOTS]]
    without = make_plan(graph, [*loose, *[None] * SNAPSHOTS], scheme, algorithm).plan
    # Half of what the high planes take now, and no less than they can.
    used = without.snapshot_costs(graph, scheme)[SNAPSHOTS:]
    tight = [max((u + m) // 2, m) for u, m in zip(used, minima[SNAPSHOTS:], strict=True)]
    plan = make_plan(graph, [*loose, *tight], scheme, algorithm).plan
    assert plan.keeps(graph, [*loose, *tight], scheme)
    if algorithm == "best":
        assert plan.storage(graph) >= without.storage(graph)
        assert not without.keeps(graph, [*loose, *tight], scheme)
        whole = make_plan(graph, minima, scheme, "spt").plan
        assert plan.storage(graph) < whole.storage(graph)
    # No high plane is coded against low planes or the other way round.
    parents = plan.parents(graph)[1:]
    rests = np.flatnonzero(parents)
    assert np.array_equal(parents[rests] % 2, (rests + 1) % 2)


def test_the_high_planes_alone_may_ask_too_much() -> None:
    graph = planes()
    budgets: list[int | None] = [None] * (2 * SNAPSHOTS)
    budgets[SNAPSHOTS + 2] = 1
    with pytest.raises(Infeasible) as refused:
        make_plan(graph, budgets)
    assert [s.snapshot for s in refused.value.shortfalls] == [SNAPSHOTS + 2]
