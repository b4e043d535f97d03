"""Storage plans on generated repositories: how small, and how long it takes.

Repositories like the paper's synthetic one: versions in a lineage, snapshots each, layers each;
deltas between neighbouring snapshots both ways, and across versions by their first and latest.
Prints a table and, as its last line, a JSON document.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

from dlv.pas.plan import make_plan
from dlv.pas.solvers import compiled, spt
from dlv.pas.storage_graph import SCHEMES, Longs, Scheme, StorageGraph
from dlv.pas.storage_plan import budgets_of

READ, WHOLE, DELTA, FIXED = 500.0, 400.0, 200.0, 50.0  # bytes per microsecond; microseconds


def repository(versions: int, snapshots: int, layers: int, seed: int) -> StorageGraph:
    """Vertex 1 + (version * snapshots + snapshot) * layers + layer is a matrix."""
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.normal(13.5, 1.3, layers)).astype(np.int64) + 1000
    parent = np.array([int(rng.integers(max(0, v - 6), v)) if v else -1 for v in range(versions)])
    noise = np.exp(rng.normal(0, 0.12, versions))
    parts: list[tuple[Longs, Longs, np.ndarray]] = []
    layer = np.arange(layers)

    def vertex(version: int, snapshot: int) -> Longs:
        return 1 + (version * snapshots + snapshot) * layers + layer

    def link(a: Longs, b: Longs, ratio: float, spread: float, keep: float = 1.0) -> None:
        """Deltas both ways."""
        which = rng.random(layers) < keep
        base = ratio * np.exp(rng.normal(0, spread, layers))
        for tails, heads in ((a, b), (b, a)):
            parts.append(
                (tails[which], heads[which], (base * np.exp(rng.normal(0, 0.02, layers)))[which])
            )

    for version in range(versions):
        for snapshot in range(snapshots):
            here = vertex(version, snapshot)
            parts.append(
                (np.zeros(layers, np.int64), here, np.exp(rng.normal(-0.19, 0.01, layers)))
            )
            ratio = float(noise[version]) * (0.3 + 0.3 / (1 + snapshot))
            if snapshot >= 1:
                link(vertex(version, snapshot - 1), here, ratio, 0.08)
            if snapshot >= 2:
                link(vertex(version, snapshot - 2), here, ratio * 1.2, 0.08)
        if version:
            base, last = vertex(int(parent[version]), snapshots - 1), snapshots - 1
            link(base, vertex(version, 0), 0.45, 0.25, 0.93)
            link(base, vertex(version, last), 0.55, 0.25, 0.93)
            brothers = [v for v in range(version) if parent[v] == parent[version]]
            if brothers:
                link(vertex(brothers[-1], last), vertex(version, last), 0.6, 0.2, 0.93)
    tails = np.concatenate([p[0] for p in parts])
    heads = np.concatenate([p[1] for p in parts])
    whole = sizes[(heads - 1) % layers]
    storage = (whole * np.minimum(np.concatenate([p[2] for p in parts]), 0.95)).astype(np.int64)
    recreation = FIXED + storage / READ + whole / np.where(tails == 0, WHOLE, DELTA)
    kinds = ["materialise" if t == 0 else "context" for t in tails.tolist()]
    groups = np.arange(1, versions * snapshots * layers + 1).reshape(-1, layers)
    return StorageGraph(
        versions * snapshots * layers + 1,
        tails,
        heads,
        kinds,
        storage,
        recreation.astype(np.int64),
        list(groups),
    )


def measure(graph: StorageGraph, scheme: Scheme, alpha: float, algorithm: str) -> dict[str, Any]:
    budgets = budgets_of(spt.minima(graph, scheme), [alpha] * len(graph.snapshots))
    started = time.process_time()
    plan = make_plan(graph, budgets, scheme, algorithm).plan
    seconds = time.process_time() - started
    size = plan.storage(graph)
    return {
        "scheme": scheme,
        "alpha": alpha,
        "algorithm": algorithm,
        "storage": size,
        "above_mst": size / make_plan(graph, budgets, scheme, "mst").plan.storage(graph) - 1,
        "depth": int(plan.depths(graph).max()),
        "cpu_seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", type=int, default=54)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--algorithms", default="last,pt,mt,best")
    parser.add_argument("--plain", action="store_true", help="without numba")
    given = parser.parse_args()
    compiled.force[:] = [not given.plain]
    graph = repository(given.versions, 10, 16, given.seed)
    algorithms = given.algorithms.split(",")
    for algorithm in algorithms:  # so that compiling is not counted
        measure(repository(2, 3, 3, 1), "independent", 2.0, algorithm)
    rows = []
    print(
        f"{graph.vertices - 1} matrices, {graph.edges} edges; storage above the MST's, CPU seconds"
    )
    for scheme in SCHEMES:
        for alpha in (1.1, 1.5, 2.0, 3.0, 5.0):
            found = [measure(graph, scheme, alpha, algorithm) for algorithm in algorithms]
            cells = [f"{r['algorithm']} {r['above_mst']:.2%} {r['cpu_seconds']:.2f}" for r in found]
            print(f"{scheme:12} {alpha:4} " + " | ".join(cells), flush=True)
            rows += found
    print(json.dumps({"matrices": graph.vertices - 1, "edges": graph.edges, "plans": rows}))


if __name__ == "__main__":
    main()
