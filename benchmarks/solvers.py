"""Storage plans on generated repositories: how far above a proven lower bound, and how long.

Repositories like the paper's synthetic one: versions in a lineage, snapshots each, layers each;
deltas between neighbouring snapshots both ways, and across versions by their first and latest.
Prints a table and, as its last line, a JSON document.
"""

from __future__ import annotations

import numpy as np

from dlv.pas.storage_graph import Longs, StorageGraph

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
