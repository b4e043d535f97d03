"""What every solver must do: subclass `SolverSuite` in the solver's own test file."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlv.pas.plan import make_plan
from dlv.pas.solvers import compiled, spt
from dlv.pas.storage_graph import Budgets, Infeasible, Scheme, StorageGraph, StoragePlan

# The suite's methods run in several subclasses, which is what this check warns of.
INHERITED = [HealthCheck.differing_executors, HealthCheck.too_slow]
SCHEMES: tuple[Scheme, ...] = ("independent", "parallel")


@st.composite
def graphs(draw: st.DrawFn, *, vertices: int = 6, edges: int = 14, most: int = 9) -> StorageGraph:
    """Small graphs with ties, zeros, parallel edges, loops, and overlapping snapshots."""
    count = draw(st.integers(1, vertices))
    vertex, cost = st.integers(0, count - 1), st.integers(0, most)
    # A random tree first, so that every vertex is reached; often from the empty matrix.
    rows = [
        (draw(st.just(0) | st.integers(0, v - 1)), v, "tree", draw(cost), draw(cost))
        for v in range(1, count)
    ]
    rows += draw(st.lists(st.tuples(vertex, vertex, st.just("more"), cost, cost), max_size=edges))
    group = st.lists(vertex, unique=True, max_size=count)
    return StorageGraph.build(count, draw(st.permutations(rows)), draw(st.lists(group, max_size=3)))


@st.composite
def budgets_for(draw: st.DrawFn, graph: StorageGraph, scheme: Scheme) -> list[int | None]:
    """Feasible ones, from the tightest possible up."""
    return [
        draw(st.none() | st.integers(minimum, minimum * 3 + 2))
        for minimum in spt.minima(graph, scheme)
    ]


def all_plans(graph: StorageGraph) -> list[tuple[int, ...]]:
    """Every arborescence, as the edges into vertices 1, 2, ...; cycles found by walking."""
    into: list[list[int]] = [[] for _ in range(graph.vertices)]
    tails, heads = graph.tails.tolist(), graph.heads.tolist()
    for edge, head in enumerate(heads):
        into[head].append(edge)
    found = []
    for chosen in itertools.product(*into[1:]):
        for vertex in range(1, graph.vertices):
            steps = 0
            while vertex and steps <= graph.vertices:
                vertex = tails[chosen[vertex - 1]]
                steps += 1
            if vertex:
                break
        else:
            found.append(chosen)
    return found


def costs(graph: StorageGraph, chosen: Sequence[int], scheme: Scheme) -> tuple[int, list[int]]:
    """Storage and the recreation of each snapshot, by walking every path."""
    tails, recreation = graph.tails.tolist(), graph.recreation.tolist()
    times = [0]
    for vertex in range(1, graph.vertices):
        total = 0
        while vertex:
            total += recreation[chosen[vertex - 1]]
            vertex = tails[chosen[vertex - 1]]
        times.append(total)
    groups = [[times[v] for v in members.tolist()] for members in graph.snapshots]
    whole = [sum(g) if scheme == "independent" else max(g, default=0) for g in groups]
    return sum(graph.storage.tolist()[edge] for edge in chosen), whole


def keeps(whole: Sequence[int], budgets: Budgets) -> bool:
    return all(b is None or w <= b for w, b in zip(whole, budgets, strict=True))


def repository(seed: int, versions: int, snapshots: int, layers: int) -> StorageGraph:
    """Chains of snapshots with deltas both ways and across versions, sizes far apart."""
    rng = np.random.default_rng(seed)
    size = np.exp(rng.normal(9, 1.2, layers))
    rows = []
    for version in range(versions):
        for snapshot in range(snapshots):
            for layer in range(layers):
                at = 1 + (version * snapshots + snapshot) * layers + layer
                whole = size[layer] * rng.uniform(0.8, 0.9)
                rows.append((0, at, "materialise", int(whole), int(whole / 5 + 3)))
                near = [at - layers * lag for lag in (1, 2) if snapshot >= lag]
                if version and snapshot == 0:
                    near.append(
                        1
                        + (int(rng.integers(version)) * snapshots + snapshots - 1) * layers
                        + layer
                    )
                for other in map(int, near):
                    for u, v in ((other, at), (at, other)):
                        part = size[layer] * rng.uniform(0.2, 0.6)
                        rows.append((u, v, "delta", int(part), int(part / 5 + size[layer] / 12)))
    members = np.arange(1, versions * snapshots * layers + 1).reshape(-1, layers)
    return StorageGraph.build(len(members) * layers + 1, rows, members.tolist())


class SolverSuite:
    """`algorithm` is what a subclass sets; `budgeted` whether it keeps budgets."""

    algorithm: str
    budgeted = True

    def plan(self, graph: StorageGraph, budgets: Budgets, scheme: Scheme) -> StoragePlan:
        return make_plan(graph, budgets, scheme, self.algorithm).plan

    @settings(max_examples=50, deadline=None, suppress_health_check=INHERITED)
    @given(st.data(), graphs(), st.sampled_from(SCHEMES))
    def test_feasible_and_no_smaller_than_the_smallest(
        self, data: st.DataObject, graph: StorageGraph, scheme: Scheme
    ) -> None:
        budgets = data.draw(budgets_for(graph, scheme))
        plan = self.plan(graph, budgets, scheme)
        known = {chosen: costs(graph, chosen, scheme) for chosen in all_plans(graph)}
        chosen = tuple(plan.edges[1:].tolist())
        assert chosen in known  # a tree, rooted in the empty matrix
        size, whole = known[chosen]
        assert plan.storage(graph) == size
        assert plan.snapshot_costs(graph, scheme) == whole
        if self.budgeted:
            assert keeps(whole, budgets)
            assert size >= min(s for s, w in known.values() if keeps(w, budgets))

    @settings(max_examples=25, deadline=None, suppress_health_check=INHERITED)
    @given(st.data(), graphs(), st.sampled_from(SCHEMES))
    def test_budgets_that_none_can_keep(
        self, data: st.DataObject, graph: StorageGraph, scheme: Scheme
    ) -> None:
        budgets = [data.draw(st.none() | st.integers(0, 12)) for _ in graph.snapshots]
        fastest = [
            min(w[at] for w in (costs(graph, c, scheme)[1] for c in all_plans(graph)))
            for at in range(len(graph.snapshots))
        ]
        short = [
            (at, b, fastest[at])
            for at, b in enumerate(budgets)
            if b is not None and b < fastest[at]
        ]
        clamped = make_plan(graph, budgets, scheme, self.algorithm, clamp=True)
        raised = [b if b is None else max(b, f) for b, f in zip(budgets, fastest, strict=True)]
        assert clamped.budgets == raised
        assert clamped.minima == fastest
        if not self.budgeted or not short:
            self.plan(graph, budgets, scheme)
            return
        assert clamped.plan.keeps(graph, raised, scheme)
        with pytest.raises(Infeasible) as refused:
            self.plan(graph, budgets, scheme)
        assert [(s.snapshot, s.budget, s.minimum) for s in refused.value.shortfalls] == short
        for at, budget, minimum in short:
            assert f"checkpoint {at}: {budget} µs asked, {minimum} µs" in (refused.value.why or "")

    def test_zero_costs_make_no_cycle(self) -> None:
        rows = [(u, v, "", 0, 0) for u in range(1, 7) for v in range(1, 7)]
        graph = StorageGraph.build(7, [*rows, (0, 4, "", 5, 5)], [[1, 2], [3, 4, 5, 6]])
        for scheme in SCHEMES:
            for budgets in ([None, None], [10, 20], [20, None]):
                self.plan(graph, budgets, scheme).check(graph)

    @pytest.mark.parametrize("scheme", SCHEMES)
    @pytest.mark.parametrize("alpha", [1.0, 1.3, 3.0])
    def test_a_repository(self, scheme: Scheme, alpha: float) -> None:
        graph = repository(3, 3, 5, 4)
        budgets = [int(alpha * m) for m in spt.minima(graph, scheme)]
        plan = self.plan(graph, budgets, scheme)
        plan.check(graph)
        assert np.array_equal(plan.edges, self.plan(graph, budgets, scheme).edges)
        if self.budgeted:
            assert plan.keeps(graph, budgets, scheme)
        whole = make_plan(graph, budgets, scheme, "spt").plan.storage(graph)
        assert make_plan(graph, budgets, scheme, "mst").plan.storage(graph) <= plan.storage(graph)
        assert plan.storage(graph) <= whole

    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_compiled_loops_give_the_same_plan(
        self, scheme: Scheme, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("numba")
        graph = repository(4, 3, 4, 4)
        budgets = [int(1.8 * m) for m in spt.minima(graph, scheme)]
        found = []
        for force in (False, True):
            monkeypatch.setattr(compiled, "force", [force])
            found.append(self.plan(graph, budgets, scheme).edges)
        assert np.array_equal(found[0], found[1])
