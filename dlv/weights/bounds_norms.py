"""Norms of linear nodes as a bounds record has them, read strictly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dlv.canonical import float_of, number
from dlv.objects.record import Reader
from dlv.pas.footer import MAX_PLANES

MOST = 1 << 20  # rows, matrices, levels of a schedule: no record has more


@dataclass(frozen=True)
class LevelNorms:
    """Of dW, what the first `planes` planes do not tell of the weight.

    `dopn`, if there is one, bounds it as an operator on inputs of the record's size.
    """

    planes: int
    dn: float
    dfro: float
    drows: tuple[float, ...] | None = None
    dopn: float | None = None


@dataclass(frozen=True)
class NodeNorms:
    """Of the weight W of a linear node, batch normalisation folded in.

    `opn` bounds it as an operator on inputs of the record's size, `opn_any` on those of any size.
    """

    name: str
    opn: float
    opn_any: float
    fro: float
    absmax: float
    finite: bool
    rows: tuple[float, ...] | None = None
    levels: tuple[LevelNorms, ...] = ()

    def level(self, planes: int) -> LevelNorms | None:
        return next((level for level in self.levels if level.planes == planes), None)


def node_json(node: NodeNorms) -> dict[str, Any]:
    return {
        "name": node.name,
        "opn": number(node.opn),
        "opn_any": number(node.opn_any),
        "fro": number(node.fro),
        "absmax": number(node.absmax),
        "finite": node.finite,
        "rows": _list(node.rows),
        "levels": [
            {
                "planes": level.planes,
                "dn": number(level.dn),
                "dfro": number(level.dfro),
                "drows": _list(level.drows),
                "dopn": None if level.dopn is None else number(level.dopn),
            }
            for level in node.levels
        ],
    }


def _list(values: tuple[float, ...] | None) -> list[float | str] | None:
    return None if values is None else [number(value) for value in values]


def read_node(row: Reader) -> NodeNorms:
    finite = row.take("finite", bool)
    rows = _floats(row, "rows", finite=finite)
    levels = tuple(
        LevelNorms(
            level.take("planes", int, lambda planes: 0 < planes < MAX_PLANES),
            _float(level, "dn", finite=finite),
            _float(level, "dfro", finite=finite),
            _floats(level, "drows", finite=finite),
            None if level.value["dopn"] is None else _float(level, "dopn", finite=finite),
        )
        for level in row.each("levels", "planes dn dfro drows dopn")
    )
    depths = [level.planes for level in levels]
    if depths != sorted(set(depths)):
        raise row.damaged("its levels are not in order")
    told = (rows, *(level.drows for level in levels))
    lengths = {len(found) for found in told if found is not None}
    if len(lengths) > 1:
        raise row.damaged("its norms of rows are of different lengths")
    return NodeNorms(
        name=row.take("name", str),
        opn=_float(row, "opn", finite=finite),
        opn_any=_float(row, "opn_any", finite=finite),
        fro=_float(row, "fro", finite=finite),
        absmax=_float(row, "absmax", finite=finite),
        finite=finite,
        rows=rows,
        levels=levels,
    )


def _norm(value: Any, *, finite: bool) -> float | None:
    """A norm as it may stand in a record; None if it is none."""
    if isinstance(value, str):
        if finite or value not in ("NaN", "Infinity"):
            return None
        return float_of(value)
    if not isinstance(value, float) or not value >= 0 or (math.copysign(1, value) < 0):
        return None
    return value


def _float(row: Reader, key: str, *, finite: bool) -> float:
    found = _norm(row.value[key], finite=finite)
    if found is None:
        raise row.damaged(f"`{key}` is no norm")
    return found


def _floats(row: Reader, key: str, *, finite: bool) -> tuple[float, ...] | None:
    values = row.optional(key, list, lambda found: len(found) <= MOST)
    if values is None:
        return None
    found = [_norm(value, finite=finite) for value in values]
    if None in found:
        raise row.damaged(f"`{key}` holds what is no norm")
    return tuple(value for value in found if value is not None)
