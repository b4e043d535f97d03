"""Norms of a node's weight as a record lists them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dlv.kinds import Array
from dlv.network.bounds.ball import short
from dlv.network.bounds.norms import level_norms, norms_of
from dlv.network.graph import Node
from dlv.network.sizes import Shape
from dlv.weights.bounds import LevelNorms, NodeNorms

MOST_ROWS = 1 << 17  # norms of more rows would make a record as large as what it spares


@dataclass(frozen=True)
class Figures:
    """`shape`: of the node's input. `rows`: whether norms of rows are wanted too.

    `raised`: against rounding, as a record stores them; else as they come out.
    """

    shape: Shape | None
    rows: bool
    raised: bool = True

    def cut(self, value: float, digits: int) -> float:
        """To few digits, upwards: a record is read before anything else."""
        return short(value, digits) if self.raised else value


def figures(
    node: Node, weight: Array, centres: Iterable[tuple[int, Array]], wanted: Figures
) -> NodeNorms:
    """Of a weight, and of what each (planes, centre) leaves open of it."""
    whole = norms_of(node, weight, wanted.shape, raised=wanted.raised)
    if not whole.finite:
        infinite = (math.inf, math.inf, math.inf, math.inf)
        return NodeNorms(node.name, *infinite, False)
    levels = []
    for planes, centre in centres:
        found = level_norms(node, weight, centre, wanted.shape, raised=wanted.raised)
        dn, dfro = wanted.cut(found.dn, 4), wanted.cut(found.dfro, 4)
        dopn = None
        if math.isfinite(found.dopn) and node.op != "FULL":
            dopn = wanted.cut(found.dopn, 4)
        levels.append(LevelNorms(planes, dn, dfro, _rows(found.drows, wanted), dopn))
    rows = _rows(whole.rows, wanted)
    opn, opn_any = wanted.cut(whole.opn, 5), wanted.cut(whole.opn_any, 5)
    return NodeNorms(
        *(node.name, opn, opn_any, wanted.cut(whole.fro, 8), wanted.cut(whole.absmax, 5)),
        finite=True,
        rows=rows,
        levels=tuple(level for level in levels if math.isfinite(level.dn)),
    )


def _rows(found: Array | None, wanted: Figures) -> tuple[float, ...] | None:
    """To few digits, upwards: there are many, and they are looked at one by one."""
    if found is None or not wanted.rows or len(found) > MOST_ROWS:
        return None
    values: list[float] = np.asarray(found, np.float64).tolist()
    return tuple(map(short, values)) if wanted.raised else tuple(values)
