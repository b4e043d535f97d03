"""Storage graphs like those of large repositories, generated.

Versions in a lineage, snapshots each, layers each. Deltas go between neighbouring snapshots (lag 1,
most of lag 2) both ways, and across versions between their first and latest. A delta is `sub`, read
faster than a whole matrix, or `context`, smaller and slower, or both are offered. With 54 versions
of 10 snapshots of 16 layers that makes 8,640 matrices and some 41,800 edges, and what LAST, PAS-PT
and PAS-MT lose on them is near to what was seen on the synthetic repository of dlv's design.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlv.kinds import Longs
from dlv.pas.storage_graph import StorageGraph

Doubles = NDArray[np.float64]

READ = 200.0  # bytes per microsecond from the store
DECODED = {"materialise": 500.0, "sub": 1000.0, "context": 150.0}  # bytes per microsecond
FIXED = 50.0  # microseconds of any matrix
WHOLE = 0.82  # of a matrix's bytes, materialised
CONTEXT = 0.9  # `context`, of what `sub` takes
BOTH, ONLY_SUB = 0.15, 0.255  # of the pairs; the others have `context` alone
SECOND = 0.7  # of the pairs with lag 2 are edges
ACROSS = 0.93  # of the layers have a delta to another version: the others changed their shape
MOST = 0.98  # no delta is larger


class Edges:
    """Columns of edges, layer by layer."""

    def __init__(self, rng: np.random.Generator, sizes: Longs) -> None:
        self.rng = rng
        self.sizes = sizes
        self.columns: list[tuple[Longs, Longs, Longs, Longs]] = []
        self.kinds: list[str] = []

    def add(self, kind: str, tails: Longs, heads: Longs, ratio: Doubles, layers: Longs) -> None:
        size = self.sizes[layers]
        storage = (np.minimum(ratio[layers], MOST) * size).astype(np.int64)
        recreation = (FIXED + storage / READ + size / DECODED[kind]).astype(np.int64)
        self.columns.append((tails[layers], heads[layers], storage, recreation))
        self.kinds += [kind] * len(layers)

    def link(self, a: Longs, b: Longs, ratio: float, spread: float, keep: float) -> None:
        """Deltas both ways."""
        count = len(self.sizes)
        there = self.rng.random(count) < keep
        base = ratio * np.exp(self.rng.normal(0, spread, count))
        for tails, heads in ((a, b), (b, a)):
            size = base * np.exp(self.rng.normal(0, 0.02, count))
            draw = self.rng.random(count)
            sub, context = draw < BOTH + ONLY_SUB, (draw < BOTH) | (draw >= BOTH + ONLY_SUB)
            self.add("sub", tails, heads, size, np.flatnonzero(there & sub))
            self.add("context", tails, heads, size * CONTEXT, np.flatnonzero(there & context))


def repository(versions: int, snapshots: int, layers: int, seed: int) -> StorageGraph:
    """Vertex 1 + (version * snapshots + snapshot) * layers + layer is a matrix."""
    rng = np.random.default_rng(seed)
    edges = Edges(rng, np.exp(rng.normal(13.5, 1.3, layers)).astype(np.int64) + 1000)
    parent = [int(rng.integers(max(0, v - 6), v)) if v else -1 for v in range(versions)]
    noise = np.exp(rng.normal(0, 0.12, versions)).tolist()
    every, last = np.arange(layers), snapshots - 1
    youngest: dict[int, int] = {}  # version -> its latest child

    def matrices(version: int, snapshot: int) -> Longs:
        return 1 + (version * snapshots + snapshot) * layers + every

    for version in range(versions):
        for snapshot in range(snapshots):
            here = matrices(version, snapshot)
            whole = WHOLE * np.exp(rng.normal(0, 0.01, layers))
            edges.add("materialise", np.zeros(layers, np.int64), here, whole, every)
            ratio = noise[version] * (0.70 + 0.06 / (1 + snapshot))
            if snapshot >= 1:
                edges.link(matrices(version, snapshot - 1), here, ratio, 0.12, 1.0)
            if snapshot >= 2:
                edges.link(matrices(version, snapshot - 2), here, ratio * 1.2, 0.12, SECOND)
        if version:
            base, latest = matrices(parent[version], last), matrices(version, last)
            edges.link(base, matrices(version, 0), 0.5, 0.25, ACROSS)
            edges.link(base, latest, 0.6, 0.25, ACROSS)
            if parent[version] in youngest:
                sibling = matrices(youngest[parent[version]], last)
                edges.link(sibling, latest, 0.65, 0.2, ACROSS)
            youngest[parent[version]] = version
    tails, heads, storage, recreation = map(np.concatenate, zip(*edges.columns, strict=True))
    members = np.arange(1, versions * snapshots * layers + 1).reshape(-1, layers)
    count = members.size + 1
    return StorageGraph(count, tails, heads, edges.kinds, storage, recreation, list(members))
