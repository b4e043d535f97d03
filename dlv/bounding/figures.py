"""Norms of a node's weight as a record lists them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.bounds import LevelNorms, NodeNorms
from dlv.network.graph import Node
from dlv.network.norms import level_norms, norms_of
from dlv.network.sizes import Shape

Array = NDArray[Any]

MOST_ROWS = 1 << 17  # norms of more rows would make a record as large as what it spares
_DIGITS = 4


@dataclass(frozen=True)
class Figures:
    """`shape`: of the node's input. `rows`: whether norms of rows are wanted too.

    `raised`: against rounding, as a record stores them; else as they come out.
    """

    shape: Shape | None
    rows: bool
    raised: bool = True


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
        dopn = found.dopn if math.isfinite(found.dopn) and node.op != "FULL" else None
        levels.append(LevelNorms(planes, found.dn, found.dfro, _rows(found.drows, wanted), dopn))
    rows = _rows(whole.rows, wanted)
    return NodeNorms(
        *(node.name, whole.opn, whole.opn_any, whole.fro, whole.absmax),
        finite=True,
        rows=rows,
        levels=tuple(level for level in levels if math.isfinite(level.dn)),
    )


def _rows(found: Array | None, wanted: Figures) -> tuple[float, ...] | None:
    """To few digits, upwards: there are many, and they are looked at one by one."""
    if found is None or not wanted.rows or len(found) > MOST_ROWS:
        return None
    values: list[float] = np.asarray(found, np.float64).tolist()
    return tuple(map(_short, values)) if wanted.raised else tuple(values)


def _short(value: float) -> float:
    """The number of few digits that is not below this one."""
    if value <= 0 or not math.isfinite(value):
        return abs(value)
    found = float(f"{value:.{_DIGITS - 1}e}")
    if found >= value:
        return found
    unit = 10.0 ** (math.floor(math.log10(value)) - _DIGITS + 1)
    more = float(f"{value + unit:.{_DIGITS - 1}e}")
    return more if more >= value else value
