"""Trees in whole arrays: sums along paths and over subtrees, a numbering, links of siblings.

`parent` of the root, vertex 0, is the root itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlv.kinds import Longs

Doubles = NDArray[np.float64]


class Links(NamedTuple):
    """Child, sibling, sibling before: -1 for none."""

    first: Longs
    after: Longs
    before: Longs


def along(parent: Longs, *steps: Longs) -> list[Longs]:
    """Sums of the steps on the way to each vertex, all paths halved at once; the root's are 0."""
    sums, up = list(steps), parent
    while np.any(up):
        sums = [one + one[up] for one in sums]
        up = up[up]
    return sums


def ranked(keys: Longs) -> Longs:
    """Vertices by their keys, which are vertices or depths; those with equal ones by number."""
    short = len(keys) <= 1 << 16  # numpy sorts 16 bits in a fifth of the time
    return np.argsort(keys.astype(np.uint16) if short else keys, kind="stable")


def spans(parent: Longs, depth: Longs, prices: Doubles) -> tuple[Longs, Longs, Doubles]:
    """A numbering in which the subtree of v is start[v] to end[v], and what a microsecond on the
    edge into v costs all of that subtree together."""
    count = len(parent)
    size, load = np.ones(count, np.int64), prices.copy()
    order = ranked(depth)
    above, levels = parent[order], np.cumsum(np.bincount(depth))
    for low, high in zip(levels[-2::-1], levels[:0:-1], strict=True):  # the deepest first
        here, bases = order[low:high], above[low:high]
        np.add.at(size, bases, size[here])
        np.add.at(load, bases, load[here])
    # Each vertex begins after its parent and the subtrees of its siblings with smaller numbers.
    order, children = ranked(parent), np.bincount(parent, minlength=count)
    ahead = np.cumsum(size[order]) - size[order]
    first = np.cumsum(children) - children
    start = np.zeros(count, np.int64)
    start[order] = ahead - ahead[first[parent[order]]] + 1
    start[parent == 0] -= count  # the root is the first of its own children
    start[0] = 0
    (start,) = along(parent, start)
    return start, start + size, load


def links(parent: Longs) -> Links:
    """Children in the order of their numbers."""
    found = Links(*(np.full(len(parent), -1, np.int64) for _ in range(3)))
    order = ranked(parent)[1:]  # without the root
    bases = parent[order]
    siblings = bases[1:] == bases[:-1]
    found.after[order[:-1][siblings]] = order[1:][siblings]
    found.before[order[1:][siblings]] = order[:-1][siblings]
    found.first[bases[::-1]] = order[::-1]
    return found
