"""Storage plans on generated repositories: how near to the smallest possible, and how fast.

Prints a table and, as its last line, a JSON document. Beside each plan stands what it takes above a
proven lower bound (benchmarks/plans/bound.py), which a minute of CPU time is spent on for each set
of budgets (`--bound 0`: without; plans are then compared with the MST, the least without budgets).
`--versions 5400` makes 864,000 matrices.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

from benchmarks.plans.bound import lower_bound
from benchmarks.plans.generated import repository
from dlv.pas.plan import make_plan, replan
from dlv.pas.solvers import compiled, spt
from dlv.pas.storage_graph import SCHEMES, Scheme, StorageGraph, StoragePlan, budgets_of

SNAPSHOTS, LAYERS = 10, 16


def measure(
    graph: StorageGraph, scheme: Scheme, alpha: float, algorithms: list[str], seconds: float
) -> list[dict[str, Any]]:
    """A row per algorithm, for budgets of alpha times the fastest possible."""
    minima = spt.minima(graph, scheme)
    budgets = budgets_of(minima, [alpha] * len(graph.snapshots))
    rows: list[dict[str, Any]] = []
    plans = []
    for algorithm in algorithms:
        started = time.process_time()
        plan = make_plan(graph, budgets, scheme, algorithm).plan
        seconds_taken = time.process_time() - started
        plans.append(plan)
        rows.append(
            {
                "scheme": scheme,
                "alpha": alpha,
                "algorithm": algorithm,
                "storage": plan.storage(graph),
                "depth": int(plan.depths(graph).max()),
                "cpu_seconds": seconds_taken,
            }
        )
    least = make_plan(graph, budgets, scheme, "mst").plan.storage(graph)
    kept = [p for p in plans if p.keeps(graph, budgets, scheme)]
    known = min(kept, key=lambda plan: plan.storage(graph), default=None)
    if seconds and known is not None:
        bound = lower_bound(graph, budgets, scheme, known, seconds)
        least = max(least, int(bound))
    for row in rows:
        row["bound"] = least
        row["above_bound"] = row["storage"] / least - 1
    return rows


def replanned(graph: StorageGraph, alpha: float) -> float:
    """CPU seconds to find a place for the latest version's matrices, all budgets set."""
    budgets = budgets_of(spt.minima(graph, "independent"), [alpha] * len(graph.snapshots))
    stored = make_plan(graph, budgets, "independent", "mt").plan.edges.copy()
    new = SNAPSHOTS * LAYERS
    old = StoragePlan(stored).parents(graph) < graph.vertices - new
    stored[-new:] = -1
    # Nothing that is stored rests on a version that is yet to come.
    moved = np.flatnonzero(~old)
    moved = moved[moved < graph.vertices - new]
    whole = np.flatnonzero(graph.tails == 0)
    stored[moved] = whole[np.searchsorted(graph.heads[whole], moved)]
    before = np.arange(graph.vertices - 2 * new, graph.vertices - new)  # its parent may move
    taken = []
    for _ in range(5):
        started = time.process_time()
        replan(graph, stored, budgets, movable=before)
        taken.append(time.process_time() - started)
    return float(np.median(taken))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", type=int, default=54)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--algorithms", default="last,pt,mt,best")
    parser.add_argument("--alphas", default="1.1,1.5,2,3,5")
    parser.add_argument("--schemes", default=",".join(SCHEMES))
    parser.add_argument("--bound", type=float, default=60, metavar="SECONDS")
    parser.add_argument("--plain", action="store_true", help="solvers without numba")
    given = parser.parse_args()
    compiled.force[:] = [not given.plain]
    algorithms = given.algorithms.split(",")
    for scheme in SCHEMES:  # so that compiling is not counted
        measure(repository(2, 3, 3, 1), scheme, 1.2, algorithms, 0)
    graph = repository(given.versions, SNAPSHOTS, LAYERS, given.seed)
    rows = []
    of = "lower bound" if given.bound else "MST"
    print(f"{graph.vertices - 1} tensors, {graph.edges} edges; storage above the {of}, CPU seconds")
    for scheme in SCHEMES:
        for alpha in map(float, given.alphas.split(",")):
            if scheme not in given.schemes.split(","):
                continue
            found = measure(graph, scheme, alpha, algorithms, given.bound)
            cells = [
                f"{r['algorithm']} {r['above_bound']:.2%} {r['cpu_seconds']:.2f}" for r in found
            ]
            bound = f"bound {found[0]['bound']:,}"
            print(f"{scheme:12} {alpha:4} {bound} | " + " | ".join(cells), flush=True)
            rows += found
    seconds = replanned(graph, 2.0)
    print(f"re-planned after a version of {SNAPSHOTS * LAYERS} tensors: {seconds * 1000:.1f} ms")
    sizes = {"matrices": graph.vertices - 1, "edges": graph.edges}
    print(json.dumps({**sizes, "replan_seconds": seconds, "plans": rows}))


if __name__ == "__main__":
    main()
