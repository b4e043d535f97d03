"""Which vertices can be stored at all."""

from __future__ import annotations

import numpy as np

from dlv.errors import Damaged
from dlv.kinds import Longs
from dlv.pas.storage_graph import StorageGraph


def refuse_unreachable(graph: StorageGraph) -> None:
    """Damaged, naming vertices, where no plan exists."""
    lost = unreachable(graph)
    if len(lost):
        named = ", ".join(map(str, lost[:10].tolist())) + (", ..." if len(lost) > 10 else "")
        count = f"{len(lost)} vertices" if len(lost) > 1 else "a vertex"
        raise Damaged(
            f"{count} of the storage graph cannot be reached from the empty matrix",
            why=f"vertices {named}",
            hint="every matrix needs an edge from 0 or from a matrix that has one",
        )


def unreachable(graph: StorageGraph) -> Longs:
    """Vertices that no path from the empty matrix leads to."""
    seen = np.zeros(graph.vertices, np.bool_)
    seen[0] = True
    order = np.argsort(graph.tails, kind="stable")
    starts = np.searchsorted(graph.tails[order], np.arange(graph.vertices + 1))
    new = np.array([0])
    while len(new):
        lengths = starts[new + 1] - starts[new]
        within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        targets = graph.heads[order[np.repeat(starts[new], lengths) + within]]
        new = np.unique(targets[~seen[targets]])
        seen[new] = True
    return np.flatnonzero(~seen)
